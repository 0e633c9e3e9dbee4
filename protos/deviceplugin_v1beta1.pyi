"""The device plugin API, v1beta1: how plugins advertise devices to the kubelet.

There are two services, on unix sockets in one directory. The kubelet serves
Registration on kubelet.sock. A plugin serves DevicePlugin on another socket
and passes its name when it registers.
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
    """The optional calls that a plugin supports."""
    pre_start_required: bool
    """PreStartContainer must be called before each container start."""
    get_preferred_allocation_available: bool
    """GetPreferredAllocation is implemented."""
    def __init__(
        self,
        *,
        pre_start_required: bool | None = ...,
        get_preferred_allocation_available: bool | None = ...,
    ) -> None: ...

class RegisterRequest(Message):
    """The registration of a plugin."""
    version: str
    """API version of the plugin: "v1beta1"."""
    endpoint: str
    """File name of the plugin's socket, in the directory of the kubelet's socket."""
    resource_name: str
    """Extended resource of the devices, such as "vendor.com/gpu"."""
    @property
    def options(self) -> DevicePluginOptions:
        """The optional calls that the plugin supports."""
    def __init__(
        self,
        *,
        version: str | None = ...,
        endpoint: str | None = ...,
        resource_name: str | None = ...,
        options: DevicePluginOptions | None = ...,
    ) -> None: ...

class Empty(Message):
    """An empty message."""
    def __init__(self) -> None: ...

class ListAndWatchResponse(Message):
    """All present devices of a plugin; replaces the list before."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]: ...
    def __init__(
        self,
        *,
        devices: Iterable[Device] | None = ...,
    ) -> None: ...

class TopologyInfo(Message):
    """The location of a device in the machine."""
    @property
    def nodes(self) -> RepeatedCompositeFieldContainer[NUMANode]:
        """NUMA nodes of the device; empty means no affinity."""
    def __init__(
        self,
        *,
        nodes: Iterable[NUMANode] | None = ...,
    ) -> None: ...

class NUMANode(Message):
    """One NUMA node."""
    ID: int
    """Number of the node in the operating system."""
    def __init__(
        self,
        *,
        ID: int | None = ...,
    ) -> None: ...

class Device(Message):
    """One device of a plugin."""
    ID: str
    """Device id, unique within its resource."""
    health: str
    """"Healthy" or "Unhealthy"; any other text counts as unhealthy."""
    @property
    def topology(self) -> TopologyInfo:
        """Absent if the device has no affinity."""
    def __init__(
        self,
        *,
        ID: str | None = ...,
        health: str | None = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class PreStartContainerRequest(Message):
    """The devices of a container that is about to start."""
    @property
    def devices_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        devices_ids: Iterable[str] | None = ...,
    ) -> None: ...

class PreStartContainerResponse(Message):
    """An empty message: the call was successful."""
    def __init__(self) -> None: ...

class PreferredAllocationRequest(Message):
    """Requests preferences, one per container."""
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
    """The devices to choose from for one container."""
    @property
    def available_deviceIDs(self) -> RepeatedScalarFieldContainer[str]:
        """Devices to choose from."""
    @property
    def must_include_deviceIDs(self) -> RepeatedScalarFieldContainer[str]:
        """Devices that the response must contain; a subset of the available ones."""
    allocation_size: int
    """Number of devices to choose, including those that the response must contain."""
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
    """The devices that the plugin prefers for one container."""
    @property
    def deviceIDs(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        deviceIDs: Iterable[str] | None = ...,
    ) -> None: ...

class AllocateRequest(Message):
    """Requests the settings for chosen devices, one request per container."""
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
    """The settings that one container needs to use its devices."""
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
        """Devices that the container runtime resolves by CDI name."""
    @property
    def typed_devices(self) -> RepeatedCompositeFieldContainer[TypedDevice]:
        """Devices that are more than a path. This is an extension of devicemanager.
        Its number is far above the kubelet's fields, and kubelets ignore it.
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
    """Permissions in the device cgroup: any of r (read), w (write) and m (mknod)."""
    def __init__(
        self,
        *,
        container_path: str | None = ...,
        host_path: str | None = ...,
        permissions: str | None = ...,
    ) -> None: ...

class TypedDevice(Message):
    """A device with a type. Extension of devicemanager."""
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
    """A device with a device file. Extension of devicemanager."""
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
    """A network interface that is moved into the container. Extension of devicemanager."""
    net_ns: str
    """Present network namespace of the interface; empty means the host's."""
    interface_name: str
    """Present name of the interface."""
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
    """A PCI device, identified by vendor and product. Extension of devicemanager."""
    vendor_id: str
    """Vendor id, four hexadecimal digits."""
    product_id: str
    """Product id, four hexadecimal digits."""
    @property
    def addresses(self) -> RepeatedScalarFieldContainer[str]:
        """Addresses such as 0000:3b:00.0. Plugins leave it empty; the kubelet's side adds the
        addresses it has chosen, so that a container has the same devices after a restart.
        """
    def __init__(
        self,
        *,
        vendor_id: str | None = ...,
        product_id: str | None = ...,
        addresses: Iterable[str] | None = ...,
    ) -> None: ...
