"""The device plugin API, v1beta1: how a plugin offers devices to the kubelet.

Two services meet over unix sockets in one directory. The kubelet serves
Registration on kubelet.sock; the plugin serves DevicePlugin on a socket of
its own and names that socket when it registers.
"""

# Generated from deviceplugin_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable, Mapping
from typing import Literal

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class DevicePluginOptions(Message):
    """Which optional calls a plugin wants."""
    pre_start_required: bool
    """PreStartContainer is wanted before each container start."""
    get_preferred_allocation_available: bool
    """GetPreferredAllocation is implemented."""
    def __init__(
        self,
        *,
        pre_start_required: bool | None = ...,
        get_preferred_allocation_available: bool | None = ...,
    ) -> None: ...

class RegisterRequest(Message):
    """A plugin's introduction to the kubelet."""
    version: str
    """Version of this API that the plugin speaks: "v1beta1"."""
    endpoint: str
    """File name of the plugin's socket, in the directory of the kubelet's own."""
    resource_name: str
    """Extended resource the devices are offered as, such as "vendor.com/gpu"."""
    @property
    def options(self) -> DevicePluginOptions:
        """Which optional calls are wanted."""
    def __init__(
        self,
        *,
        version: str | None = ...,
        endpoint: str | None = ...,
        resource_name: str | None = ...,
        options: DevicePluginOptions | None = ...,
    ) -> None: ...

class Empty(Message):
    """Nothing to say."""
    def __init__(self) -> None: ...

class ListAndWatchResponse(Message):
    """All devices of a plugin as of now; replaces the list sent before it."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]: ...
    def __init__(
        self,
        *,
        devices: Iterable[Device] | None = ...,
    ) -> None: ...

class TopologyInfo(Message):
    """Where in the machine a device sits."""
    @property
    def nodes(self) -> RepeatedCompositeFieldContainer[NUMANode]:
        """NUMA nodes the device is close to; none means anywhere."""
    def __init__(
        self,
        *,
        nodes: Iterable[NUMANode] | None = ...,
    ) -> None: ...

class NUMANode(Message):
    """One NUMA node."""
    ID: int
    """Number of the node as the operating system counts them."""
    def __init__(
        self,
        *,
        ID: int | None = ...,
    ) -> None: ...

class Device(Message):
    """One device of a plugin."""
    ID: str
    """Name of the device, unique within its resource."""
    health: str
    """"Healthy" or "Unhealthy"; all but "Healthy" counts as unhealthy."""
    @property
    def topology(self) -> TopologyInfo:
        """Absent: the device has no affinity."""
    def __init__(
        self,
        *,
        ID: str | None = ...,
        health: str | None = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class PreStartContainerRequest(Message):
    """Devices of one container that is about to start."""
    @property
    def devices_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        devices_ids: Iterable[str] | None = ...,
    ) -> None: ...

class PreStartContainerResponse(Message):
    """Success is all there is to report."""
    def __init__(self) -> None: ...

class PreferredAllocationRequest(Message):
    """Asks for a preference, one request per container."""
    @property
    def container_requests(self) -> RepeatedCompositeFieldContainer[
        ContainerPreferredAllocationRequest
    ]: ...
    def __init__(
        self,
        *,
        container_requests: Iterable[ContainerPreferredAllocationRequest] | None = ...,
    ) -> None: ...

class ContainerPreferredAllocationRequest(Message):
    """What one container may be given."""
    @property
    def available_deviceIDs(self) -> RepeatedScalarFieldContainer[str]:
        """Devices to choose from."""
    @property
    def must_include_deviceIDs(self) -> RepeatedScalarFieldContainer[str]:
        """Devices that the answer must contain; a subset of the available ones."""
    allocation_size: int
    """How many devices to choose, those that must be included among them."""
    def __init__(
        self,
        *,
        available_deviceIDs: Iterable[str] | None = ...,
        must_include_deviceIDs: Iterable[str] | None = ...,
        allocation_size: int | None = ...,
    ) -> None: ...

class PreferredAllocationResponse(Message):
    """The preferences, in the order of the requests."""
    @property
    def container_responses(self) -> RepeatedCompositeFieldContainer[
        ContainerPreferredAllocationResponse
    ]: ...
    def __init__(
        self,
        *,
        container_responses: Iterable[ContainerPreferredAllocationResponse] | None = ...,
    ) -> None: ...

class ContainerPreferredAllocationResponse(Message):
    """What the plugin would choose for one container."""
    @property
    def deviceIDs(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        deviceIDs: Iterable[str] | None = ...,
    ) -> None: ...

class AllocateRequest(Message):
    """Asks for the settings that go with chosen devices, one request per container."""
    @property
    def container_requests(self) -> RepeatedCompositeFieldContainer[ContainerAllocateRequest]: ...
    def __init__(
        self,
        *,
        container_requests: Iterable[ContainerAllocateRequest] | None = ...,
    ) -> None: ...

class ContainerAllocateRequest(Message):
    """Devices chosen for one container."""
    @property
    def devices_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        devices_ids: Iterable[str] | None = ...,
    ) -> None: ...

class CDIDevice(Message):
    """A device described by the Container Device Interface."""
    name: str
    """Fully qualified name, such as "vendor.com/gpu=gpu0"."""
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...

class AllocateResponse(Message):
    """The settings, in the order of the requests."""
    @property
    def container_responses(self) -> RepeatedCompositeFieldContainer[ContainerAllocateResponse]: ...
    def __init__(
        self,
        *,
        container_responses: Iterable[ContainerAllocateResponse] | None = ...,
    ) -> None: ...

class ContainerAllocateResponse(Message):
    """What one container must be given to use its devices."""
    @property
    def envs(self) -> ScalarMap[str, str]:
        """Environment variables."""
    @property
    def mounts(self) -> RepeatedCompositeFieldContainer[Mount]:
        """Directories and files to mount."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[DeviceSpec]:
        """Device files to create."""
    @property
    def annotations(self) -> ScalarMap[str, str]:
        """Annotations for the container runtime."""
    @property
    def cdi_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]:
        """Devices the container runtime is to look up by CDI name."""
    @property
    def typed_devices(self) -> RepeatedCompositeFieldContainer[TypedDevice]:
        """Devices that are more than a path. An extension of this project, numbered
        far above the kubelet's own fields: a kubelet without it skips it.
        """
    def __init__(
        self,
        *,
        envs: Mapping[str, str] | None = ...,
        mounts: Iterable[Mount] | None = ...,
        devices: Iterable[DeviceSpec] | None = ...,
        annotations: Mapping[str, str] | None = ...,
        cdi_devices: Iterable[CDIDevice] | None = ...,
        typed_devices: Iterable[TypedDevice] | None = ...,
    ) -> None: ...

class Mount(Message):
    """A mount into a container."""
    container_path: str
    """Path in the container."""
    host_path: str
    """Path on the host."""
    read_only: bool
    """Mounted read-only."""
    def __init__(
        self,
        *,
        container_path: str | None = ...,
        host_path: str | None = ...,
        read_only: bool | None = ...,
    ) -> None: ...

class DeviceSpec(Message):
    """A device file in a container."""
    container_path: str
    """Path in the container."""
    host_path: str
    """Path on the host."""
    permissions: str
    """What the device cgroup allows: any of r (read), w (write) and m (mknod)."""
    def __init__(
        self,
        *,
        container_path: str | None = ...,
        host_path: str | None = ...,
        permissions: str | None = ...,
    ) -> None: ...

class TypedDevice(Message):
    """A device that says what kind of thing it is. Extension of this project."""
    @property
    def filesystem(self) -> FilesystemDevice: ...
    @property
    def netlink(self) -> NetlinkDevice: ...
    @property
    def pci(self) -> PciDevice: ...
    def __init__(
        self,
        *,
        filesystem: FilesystemDevice | None = ...,
        netlink: NetlinkDevice | None = ...,
        pci: PciDevice | None = ...,
    ) -> None: ...
    def WhichOneof(self, oneof_group: str) -> Literal["filesystem", "netlink", "pci"] | None: ...

class FilesystemDevice(Message):
    """A device reached through a device file. Extension of this project."""
    container_path: str
    """Path in the container."""
    host_path: str
    """Path on the host."""
    permissions: str
    """Any of r (read), w (write) and m (mknod)."""
    def __init__(
        self,
        *,
        container_path: str | None = ...,
        host_path: str | None = ...,
        permissions: str | None = ...,
    ) -> None: ...

class NetlinkDevice(Message):
    """A network interface that moves into the container. Extension of this project."""
    net_ns: str
    """Network namespace the interface is in before; empty means the host's."""
    interface_name: str
    """Name of the interface there."""
    container_name: str
    """Name of the interface in the container; empty means unchanged."""
    def __init__(
        self,
        *,
        net_ns: str | None = ...,
        interface_name: str | None = ...,
        container_name: str | None = ...,
    ) -> None: ...

class PciDevice(Message):
    """A PCI device named by what it is, not where. Extension of this project."""
    vendor_id: str
    """Vendor id, four hexadecimal digits."""
    product_id: str
    """Product id, four hexadecimal digits."""
    @property
    def addresses(self) -> RepeatedScalarFieldContainer[str]:
        """Addresses such as 0000:3b:00.0. Left empty by plugins; the kubelet's side adds what it
        found, so that a container has the same devices after a restart.
        """
    def __init__(
        self,
        *,
        vendor_id: str | None = ...,
        product_id: str | None = ...,
        addresses: Iterable[str] | None = ...,
    ) -> None: ...
