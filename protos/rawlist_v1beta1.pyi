"""Device lists of the device plugin API, v1beta1, with each device as bytes.

Bytes and messages have the same encoding. A reader of long lists can compare
devices as bytes and decode only those that have changed.
"""

# Generated from rawlist_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedScalarFieldContainer
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class ListAndWatchResponse(Message):
    """A v1beta1.ListAndWatchResponse."""
    @property
    def devices(self) -> RepeatedScalarFieldContainer[bytes]:
        """Each a v1beta1.Device."""
    def __init__(
        self,
        *,
        devices: Iterable[bytes] | None = ...,
    ) -> None: ...
