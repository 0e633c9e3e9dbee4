"""The PodResources API, v1: the resources that are allocated to containers.

Served by the kubelet on kubelet.sock in its pod-resources directory.
"""

# Generated from podresources_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class AllocatableResourcesRequest(Message):
    """An empty message."""
    def __init__(self) -> None: ...

class AllocatableResourcesResponse(Message):
    """All resources that can be allocated on the node."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[ContainerDevices]:
        """Healthy devices."""
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]:
        """CPUs that can be allocated exclusively."""
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]:
        """Memory and huge pages per NUMA node."""
    def __init__(
        self,
        *,
        devices: Iterable[ContainerDevices] | None = ...,
        cpu_ids: Iterable[int] | None = ...,
        memory: Iterable[ContainerMemory] | None = ...,
    ) -> None: ...

class ListPodResourcesRequest(Message):
    """An empty message."""
    def __init__(self) -> None: ...

class ListPodResourcesResponse(Message):
    """All pods of the node."""
    @property
    def pod_resources(self) -> RepeatedCompositeFieldContainer[PodResources]: ...
    def __init__(
        self,
        *,
        pod_resources: Iterable[PodResources] | None = ...,
    ) -> None: ...

class PodResources(Message):
    """One pod and its resources."""
    name: str
    namespace: str
    @property
    def containers(self) -> RepeatedCompositeFieldContainer[ContainerResources]:
        """The containers and their resources."""
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]:
        """CPUs of the pod as a whole."""
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]:
        """Memory of the pod as a whole."""
    def __init__(
        self,
        *,
        name: str | None = ...,
        namespace: str | None = ...,
        containers: Iterable[ContainerResources] | None = ...,
        cpu_ids: Iterable[int] | None = ...,
        memory: Iterable[ContainerMemory] | None = ...,
    ) -> None: ...

class ContainerResources(Message):
    """One container and its resources."""
    name: str
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[ContainerDevices]:
        """Devices of device plugins."""
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]:
        """Exclusive CPUs."""
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]:
        """Memory and huge pages."""
    @property
    def dynamic_resources(self) -> RepeatedCompositeFieldContainer[DynamicResource]:
        """Devices allocated by dynamic resource allocation."""
    def __init__(
        self,
        *,
        name: str | None = ...,
        devices: Iterable[ContainerDevices] | None = ...,
        cpu_ids: Iterable[int] | None = ...,
        memory: Iterable[ContainerMemory] | None = ...,
        dynamic_resources: Iterable[DynamicResource] | None = ...,
    ) -> None: ...

class ContainerMemory(Message):
    """An amount of memory of one type."""
    memory_type: str
    """"memory", or a huge page size such as "hugepages-2Mi"."""
    size: int
    """Bytes."""
    @property
    def topology(self) -> TopologyInfo:
        """NUMA nodes of the memory."""
    def __init__(
        self,
        *,
        memory_type: str | None = ...,
        size: int | None = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class ContainerDevices(Message):
    """Devices of one resource with the same topology."""
    resource_name: str
    """Extended resource, such as "vendor.com/gpu"."""
    @property
    def device_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def topology(self) -> TopologyInfo:
        """Absent if the devices have no affinity."""
    def __init__(
        self,
        *,
        resource_name: str | None = ...,
        device_ids: Iterable[str] | None = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class TopologyInfo(Message):
    """A location in the machine."""
    @property
    def nodes(self) -> RepeatedCompositeFieldContainer[NUMANode]: ...
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

class DynamicResource(Message):
    """One resource claim of a container."""
    claim_name: str
    claim_namespace: str
    @property
    def claim_resources(self) -> RepeatedCompositeFieldContainer[ClaimResource]:
        """The devices of the claim."""
    def __init__(
        self,
        *,
        claim_name: str | None = ...,
        claim_namespace: str | None = ...,
        claim_resources: Iterable[ClaimResource] | None = ...,
    ) -> None: ...

class ClaimResource(Message):
    """One device of a claim."""
    @property
    def cdi_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]:
        """Names by which the container runtime finds the device."""
    driver_name: str
    """Driver of the device."""
    pool_name: str
    """Pool of the device."""
    device_name: str
    """Name of the device in the pool."""
    share_id: str
    """Share of the device, if it is allocated in shares."""
    def __init__(
        self,
        *,
        cdi_devices: Iterable[CDIDevice] | None = ...,
        driver_name: str | None = ...,
        pool_name: str | None = ...,
        device_name: str | None = ...,
        share_id: str | None = ...,
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

class GetPodResourcesRequest(Message):
    """Requests one pod."""
    pod_name: str
    pod_namespace: str
    def __init__(
        self,
        *,
        pod_name: str | None = ...,
        pod_namespace: str | None = ...,
    ) -> None: ...

class GetPodResourcesResponse(Message):
    """The requested pod."""
    @property
    def pod_resources(self) -> PodResources: ...
    def __init__(
        self,
        *,
        pod_resources: PodResources | None = ...,
    ) -> None: ...
