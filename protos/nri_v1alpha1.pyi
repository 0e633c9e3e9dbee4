"""The Node Resource Interface (NRI), v1alpha1: how a container runtime calls its plugins.

A plugin connects to nri.sock of the runtime, and both sides make calls on this connection. Only
the methods and fields that the mock kubelet uses are here.
"""

# Generated from nri_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor
Event: EnumTypeWrapper
ContainerState: EnumTypeWrapper

class RegisterPluginRequest(Message):
    plugin_name: str
    plugin_idx: str
    """Two digits. Plugins are called in the order of their indexes."""
    def __init__(
        self,
        *,
        plugin_name: str | None = ...,
        plugin_idx: str | None = ...,
    ) -> None: ...

class UpdateContainersRequest(Message):
    @property
    def update(self) -> RepeatedCompositeFieldContainer[ContainerUpdate]: ...
    def __init__(
        self,
        *,
        update: Iterable[ContainerUpdate] | None = ...,
    ) -> None: ...

class UpdateContainersResponse(Message):
    @property
    def failed(self) -> RepeatedCompositeFieldContainer[ContainerUpdate]:
        """Updates that failed."""
    def __init__(
        self,
        *,
        failed: Iterable[ContainerUpdate] | None = ...,
    ) -> None: ...

class ConfigureRequest(Message):
    config: str
    runtime_name: str
    runtime_version: str
    registration_timeout: int
    """In milliseconds."""
    request_timeout: int
    """In milliseconds."""
    NRI_version: str
    def __init__(
        self,
        *,
        config: str | None = ...,
        runtime_name: str | None = ...,
        runtime_version: str | None = ...,
        registration_timeout: int | None = ...,
        request_timeout: int | None = ...,
        NRI_version: str | None = ...,
    ) -> None: ...

class ConfigureResponse(Message):
    events: int
    """Bit n - 1 stands for event n; 0 for all events."""
    def __init__(
        self,
        *,
        events: int | None = ...,
    ) -> None: ...

class SynchronizeRequest(Message):
    @property
    def pods(self) -> RepeatedCompositeFieldContainer[PodSandbox]: ...
    @property
    def containers(self) -> RepeatedCompositeFieldContainer[Container]: ...
    more: bool
    """True if another request with more pods and containers follows."""
    def __init__(
        self,
        *,
        pods: Iterable[PodSandbox] | None = ...,
        containers: Iterable[Container] | None = ...,
        more: bool | None = ...,
    ) -> None: ...

class SynchronizeResponse(Message):
    @property
    def update(self) -> RepeatedCompositeFieldContainer[ContainerUpdate]: ...
    def __init__(
        self,
        *,
        update: Iterable[ContainerUpdate] | None = ...,
    ) -> None: ...

class CreateContainerRequest(Message):
    @property
    def pod(self) -> PodSandbox: ...
    @property
    def container(self) -> Container: ...
    def __init__(
        self,
        *,
        pod: PodSandbox | None = ...,
        container: Container | None = ...,
    ) -> None: ...

class CreateContainerResponse(Message):
    @property
    def adjust(self) -> ContainerAdjustment:
        """What the plugin changes in the new container."""
    @property
    def update(self) -> RepeatedCompositeFieldContainer[ContainerUpdate]:
        """What the plugin changes in other containers."""
    def __init__(
        self,
        *,
        adjust: ContainerAdjustment | None = ...,
        update: Iterable[ContainerUpdate] | None = ...,
    ) -> None: ...

class StopContainerRequest(Message):
    @property
    def pod(self) -> PodSandbox: ...
    @property
    def container(self) -> Container: ...
    def __init__(
        self,
        *,
        pod: PodSandbox | None = ...,
        container: Container | None = ...,
    ) -> None: ...

class StopContainerResponse(Message):
    @property
    def update(self) -> RepeatedCompositeFieldContainer[ContainerUpdate]: ...
    def __init__(
        self,
        *,
        update: Iterable[ContainerUpdate] | None = ...,
    ) -> None: ...

class StateChangeEvent(Message):
    event: int
    @property
    def pod(self) -> PodSandbox: ...
    @property
    def container(self) -> Container:
        """Absent for events of a pod."""
    def __init__(
        self,
        *,
        event: int | None = ...,
        pod: PodSandbox | None = ...,
        container: Container | None = ...,
    ) -> None: ...

class Empty(Message):
    def __init__(self) -> None: ...

class PodSandbox(Message):
    id: str
    name: str
    uid: str
    namespace: str
    @property
    def labels(self) -> ScalarMap[str, str]: ...
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    def __init__(
        self,
        *,
        id: str | None = ...,
        name: str | None = ...,
        uid: str | None = ...,
        namespace: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        annotations: Mapping[str, str] | None = ...,
    ) -> None: ...

class Container(Message):
    id: str
    pod_sandbox_id: str
    name: str
    state: int
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    @property
    def env(self) -> RepeatedScalarFieldContainer[str]:
        """NAME=VALUE each."""
    @property
    def mounts(self) -> RepeatedCompositeFieldContainer[Mount]: ...
    @property
    def linux(self) -> LinuxContainer: ...
    @property
    def CDI_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]: ...
    def __init__(
        self,
        *,
        id: str | None = ...,
        pod_sandbox_id: str | None = ...,
        name: str | None = ...,
        state: int | None = ...,
        annotations: Mapping[str, str] | None = ...,
        env: Iterable[str] | None = ...,
        mounts: Iterable[Mount] | None = ...,
        linux: LinuxContainer | None = ...,
        CDI_devices: Iterable[CDIDevice] | None = ...,
    ) -> None: ...

class Mount(Message):
    """A mount of the OCI configuration."""
    destination: str
    type: str
    source: str
    @property
    def options(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        destination: str | None = ...,
        type: str | None = ...,
        source: str | None = ...,
        options: Iterable[str] | None = ...,
    ) -> None: ...

class LinuxContainer(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[LinuxDevice]: ...
    @property
    def resources(self) -> LinuxResources: ...
    def __init__(
        self,
        *,
        devices: Iterable[LinuxDevice] | None = ...,
        resources: LinuxResources | None = ...,
    ) -> None: ...

class LinuxDevice(Message):
    path: str
    """Path in the container."""
    type: str
    """c or b, as in the OCI configuration."""
    major: int
    minor: int
    def __init__(
        self,
        *,
        path: str | None = ...,
        type: str | None = ...,
        major: int | None = ...,
        minor: int | None = ...,
    ) -> None: ...

class CDIDevice(Message):
    name: str
    """Qualified name, such as vendor.com/gpu=gpu-0."""
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...

class LinuxResources(Message):
    @property
    def memory(self) -> LinuxMemory: ...
    @property
    def cpu(self) -> LinuxCPU: ...
    def __init__(
        self,
        *,
        memory: LinuxMemory | None = ...,
        cpu: LinuxCPU | None = ...,
    ) -> None: ...

class LinuxMemory(Message):
    @property
    def limit(self) -> OptionalInt64:
        """In bytes."""
    def __init__(
        self,
        *,
        limit: OptionalInt64 | None = ...,
    ) -> None: ...

class LinuxCPU(Message):
    @property
    def shares(self) -> OptionalUInt64: ...
    @property
    def quota(self) -> OptionalInt64: ...
    @property
    def period(self) -> OptionalUInt64: ...
    cpus: str
    """A list such as 0-3,8."""
    mems: str
    """A list of NUMA nodes."""
    def __init__(
        self,
        *,
        shares: OptionalUInt64 | None = ...,
        quota: OptionalInt64 | None = ...,
        period: OptionalUInt64 | None = ...,
        cpus: str | None = ...,
        mems: str | None = ...,
    ) -> None: ...

class OptionalInt64(Message):
    value: int
    def __init__(
        self,
        *,
        value: int | None = ...,
    ) -> None: ...

class OptionalUInt64(Message):
    value: int
    def __init__(
        self,
        *,
        value: int | None = ...,
    ) -> None: ...

class ContainerAdjustment(Message):
    """A key or path that begins with - removes the entry."""
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    @property
    def mounts(self) -> RepeatedCompositeFieldContainer[Mount]: ...
    @property
    def env(self) -> RepeatedCompositeFieldContainer[KeyValue]: ...
    @property
    def linux(self) -> LinuxContainerAdjustment: ...
    @property
    def CDI_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]: ...
    def __init__(
        self,
        *,
        annotations: Mapping[str, str] | None = ...,
        mounts: Iterable[Mount] | None = ...,
        env: Iterable[KeyValue] | None = ...,
        linux: LinuxContainerAdjustment | None = ...,
        CDI_devices: Iterable[CDIDevice] | None = ...,
    ) -> None: ...

class LinuxContainerAdjustment(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[LinuxDevice]: ...
    @property
    def resources(self) -> LinuxResources: ...
    def __init__(
        self,
        *,
        devices: Iterable[LinuxDevice] | None = ...,
        resources: LinuxResources | None = ...,
    ) -> None: ...

class KeyValue(Message):
    key: str
    value: str
    def __init__(
        self,
        *,
        key: str | None = ...,
        value: str | None = ...,
    ) -> None: ...

class ContainerUpdate(Message):
    container_id: str
    @property
    def linux(self) -> LinuxContainerUpdate: ...
    def __init__(
        self,
        *,
        container_id: str | None = ...,
        linux: LinuxContainerUpdate | None = ...,
    ) -> None: ...

class LinuxContainerUpdate(Message):
    @property
    def resources(self) -> LinuxResources: ...
    def __init__(
        self,
        *,
        resources: LinuxResources | None = ...,
    ) -> None: ...
