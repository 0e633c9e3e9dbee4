"""The Pods API, v1alpha1: the pods of a node.

Served by the kubelet on pods-api.sock in its pods-api directory.
"""

# Generated from pods_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedScalarFieldContainer
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor
EventType: EnumTypeWrapper

class WatchPodsEvent(Message):
    type: int
    pod: bytes
    """A core/v1 Pod; empty for INITIAL_SYNC_COMPLETE. For DELETED only with name, namespace and
    UID.
    """
    def __init__(
        self,
        *,
        type: int | None = ...,
        pod: bytes | None = ...,
    ) -> None: ...

class ListPodsResponse(Message):
    @property
    def pods(self) -> RepeatedScalarFieldContainer[bytes]:
        """core/v1 Pods."""
    def __init__(
        self,
        *,
        pods: Iterable[bytes] | None = ...,
    ) -> None: ...

class GetPodResponse(Message):
    pod: bytes
    """A core/v1 Pod."""
    def __init__(
        self,
        *,
        pod: bytes | None = ...,
    ) -> None: ...

class WatchPodsRequest(Message):
    def __init__(self) -> None: ...

class ListPodsRequest(Message):
    def __init__(self) -> None: ...

class GetPodRequest(Message):
    podUID: str
    def __init__(
        self,
        *,
        podUID: str | None = ...,
    ) -> None: ...
