"""The private descriptor pool that all messages of this package are built in.

Protobuf keeps one default pool per process and rejects a second definition of a name in
it. A plugin under test brings its own ``api_pb2`` with the very names used here, so these
messages stay out of the default pool. They are built from descriptors at run time because
generated modules reject a protobuf older than the compiler that made them.
"""

from pathlib import Path

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message

__all__ = ["file", "message"]


_POOL = descriptor_pool.DescriptorPool()


def file(name: str) -> FileDescriptor:
    """Add one .proto file, such as ``deviceplugin_v1beta1.proto``, and return its descriptor."""
    _POOL.AddSerializedFile(Path(__file__).with_name(name).with_suffix(".binpb").read_bytes())
    return _POOL.FindFileByName(f"protos/{name}")


def message(full_name: str) -> type[Message]:
    """The class of one message, such as ``v1beta1.Device``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))
