"""The PodResources API, v1alpha1: the first version, for old clients.

Served by the kubelet on the same socket as v1.
"""

# Generated from podresources_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

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
    """One pod and its devices."""
    name: str
    namespace: str
    @property
    def containers(self) -> RepeatedCompositeFieldContainer[ContainerResources]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        namespace: str | None = ...,
        containers: Iterable[ContainerResources] | None = ...,
    ) -> None: ...

class ContainerResources(Message):
    """One container and its devices."""
    name: str
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[ContainerDevices]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        devices: Iterable[ContainerDevices] | None = ...,
    ) -> None: ...

class ContainerDevices(Message):
    """Devices of one resource."""
    resource_name: str
    """Extended resource, such as "vendor.com/gpu"."""
    @property
    def device_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        resource_name: str | None = ...,
        device_ids: Iterable[str] | None = ...,
    ) -> None: ...
