"""The part of the core/v1 Pod that a mock kubelet knows.

Field numbers are those of Kubernetes. Other fields are skipped when a Pod is read.
"""

# Generated from core_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    ScalarMap,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class Pod(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> PodSpec: ...
    @property
    def status(self) -> PodStatus: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: PodSpec | None = ...,
        status: PodStatus | None = ...,
    ) -> None: ...

class ObjectMeta(Message):
    name: str
    namespace: str
    uid: str
    @property
    def creationTimestamp(self) -> Time: ...
    @property
    def deletionTimestamp(self) -> Time: ...
    deletionGracePeriodSeconds: int
    @property
    def labels(self) -> ScalarMap[str, str]: ...
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        namespace: str | None = ...,
        uid: str | None = ...,
        creationTimestamp: Time | None = ...,
        deletionTimestamp: Time | None = ...,
        deletionGracePeriodSeconds: int | None = ...,
        labels: Mapping[str, str] | None = ...,
        annotations: Mapping[str, str] | None = ...,
    ) -> None: ...

class Time(Message):
    seconds: int
    nanos: int
    def __init__(
        self,
        *,
        seconds: int | None = ...,
        nanos: int | None = ...,
    ) -> None: ...

class Quantity(Message):
    string: str
    def __init__(
        self,
        *,
        string: str | None = ...,
    ) -> None: ...

class PodSpec(Message):
    @property
    def containers(self) -> RepeatedCompositeFieldContainer[Container]: ...
    restartPolicy: str
    terminationGracePeriodSeconds: int
    nodeName: str
    @property
    def initContainers(self) -> RepeatedCompositeFieldContainer[Container]: ...
    @property
    def resourceClaims(self) -> RepeatedCompositeFieldContainer[PodResourceClaim]: ...
    def __init__(
        self,
        *,
        containers: Iterable[Container] | None = ...,
        restartPolicy: str | None = ...,
        terminationGracePeriodSeconds: int | None = ...,
        nodeName: str | None = ...,
        initContainers: Iterable[Container] | None = ...,
        resourceClaims: Iterable[PodResourceClaim] | None = ...,
    ) -> None: ...

class Container(Message):
    name: str
    image: str
    @property
    def resources(self) -> ResourceRequirements: ...
    restartPolicy: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        image: str | None = ...,
        resources: ResourceRequirements | None = ...,
        restartPolicy: str | None = ...,
    ) -> None: ...

class ResourceRequirements(Message):
    @property
    def limits(self) -> MessageMap[str, Quantity]: ...
    @property
    def requests(self) -> MessageMap[str, Quantity]: ...
    @property
    def claims(self) -> RepeatedCompositeFieldContainer[ResourceClaim]: ...
    def __init__(
        self,
        *,
        limits: Mapping[str, Quantity] | None = ...,
        requests: Mapping[str, Quantity] | None = ...,
        claims: Iterable[ResourceClaim] | None = ...,
    ) -> None: ...

class ResourceClaim(Message):
    name: str
    request: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        request: str | None = ...,
    ) -> None: ...

class PodResourceClaim(Message):
    name: str
    resourceClaimName: str
    resourceClaimTemplateName: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        resourceClaimName: str | None = ...,
        resourceClaimTemplateName: str | None = ...,
    ) -> None: ...

class PodStatus(Message):
    phase: str
    @property
    def conditions(self) -> RepeatedCompositeFieldContainer[PodCondition]: ...
    message: str
    reason: str
    hostIP: str
    podIP: str
    @property
    def startTime(self) -> Time: ...
    @property
    def containerStatuses(self) -> RepeatedCompositeFieldContainer[ContainerStatus]: ...
    qosClass: str
    @property
    def initContainerStatuses(self) -> RepeatedCompositeFieldContainer[ContainerStatus]: ...
    @property
    def podIPs(self) -> RepeatedCompositeFieldContainer[PodIP]: ...
    @property
    def resourceClaimStatuses(self) -> RepeatedCompositeFieldContainer[PodResourceClaimStatus]: ...
    @property
    def hostIPs(self) -> RepeatedCompositeFieldContainer[HostIP]: ...
    def __init__(
        self,
        *,
        phase: str | None = ...,
        conditions: Iterable[PodCondition] | None = ...,
        message: str | None = ...,
        reason: str | None = ...,
        hostIP: str | None = ...,
        podIP: str | None = ...,
        startTime: Time | None = ...,
        containerStatuses: Iterable[ContainerStatus] | None = ...,
        qosClass: str | None = ...,
        initContainerStatuses: Iterable[ContainerStatus] | None = ...,
        podIPs: Iterable[PodIP] | None = ...,
        resourceClaimStatuses: Iterable[PodResourceClaimStatus] | None = ...,
        hostIPs: Iterable[HostIP] | None = ...,
    ) -> None: ...

class PodCondition(Message):
    type: str
    status: str
    @property
    def lastProbeTime(self) -> Time: ...
    @property
    def lastTransitionTime(self) -> Time: ...
    reason: str
    message: str
    def __init__(
        self,
        *,
        type: str | None = ...,
        status: str | None = ...,
        lastProbeTime: Time | None = ...,
        lastTransitionTime: Time | None = ...,
        reason: str | None = ...,
        message: str | None = ...,
    ) -> None: ...

class HostIP(Message):
    ip: str
    def __init__(
        self,
        *,
        ip: str | None = ...,
    ) -> None: ...

class PodIP(Message):
    ip: str
    def __init__(
        self,
        *,
        ip: str | None = ...,
    ) -> None: ...

class PodResourceClaimStatus(Message):
    name: str
    resourceClaimName: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        resourceClaimName: str | None = ...,
    ) -> None: ...

class ContainerStatus(Message):
    name: str
    @property
    def state(self) -> ContainerState: ...
    @property
    def lastState(self) -> ContainerState: ...
    ready: bool
    restartCount: int
    image: str
    imageID: str
    containerID: str
    started: bool
    @property
    def allocatedResourcesStatus(self) -> RepeatedCompositeFieldContainer[ResourceStatus]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        state: ContainerState | None = ...,
        lastState: ContainerState | None = ...,
        ready: bool | None = ...,
        restartCount: int | None = ...,
        image: str | None = ...,
        imageID: str | None = ...,
        containerID: str | None = ...,
        started: bool | None = ...,
        allocatedResourcesStatus: Iterable[ResourceStatus] | None = ...,
    ) -> None: ...

class ContainerState(Message):
    @property
    def waiting(self) -> ContainerStateWaiting: ...
    @property
    def running(self) -> ContainerStateRunning: ...
    @property
    def terminated(self) -> ContainerStateTerminated: ...
    def __init__(
        self,
        *,
        waiting: ContainerStateWaiting | None = ...,
        running: ContainerStateRunning | None = ...,
        terminated: ContainerStateTerminated | None = ...,
    ) -> None: ...

class ContainerStateWaiting(Message):
    reason: str
    message: str
    def __init__(
        self,
        *,
        reason: str | None = ...,
        message: str | None = ...,
    ) -> None: ...

class ContainerStateRunning(Message):
    @property
    def startedAt(self) -> Time: ...
    def __init__(
        self,
        *,
        startedAt: Time | None = ...,
    ) -> None: ...

class ContainerStateTerminated(Message):
    exitCode: int
    signal: int
    reason: str
    message: str
    @property
    def startedAt(self) -> Time: ...
    @property
    def finishedAt(self) -> Time: ...
    containerID: str
    def __init__(
        self,
        *,
        exitCode: int | None = ...,
        signal: int | None = ...,
        reason: str | None = ...,
        message: str | None = ...,
        startedAt: Time | None = ...,
        finishedAt: Time | None = ...,
        containerID: str | None = ...,
    ) -> None: ...

class ResourceStatus(Message):
    name: str
    @property
    def resources(self) -> RepeatedCompositeFieldContainer[ResourceHealth]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        resources: Iterable[ResourceHealth] | None = ...,
    ) -> None: ...

class ResourceHealth(Message):
    resourceID: str
    health: str
    message: str
    def __init__(
        self,
        *,
        resourceID: str | None = ...,
        health: str | None = ...,
        message: str | None = ...,
    ) -> None: ...
