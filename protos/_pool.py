"""The private descriptor pool that all messages of this package are built in.

Protobuf keeps one default pool per process and refuses a second definition of a name in
it. A plugin under test brings its own ``api_pb2`` with the very names used here, so these
messages stay out of the default pool. They are built from a descriptor set at run time
because generated modules refuse a protobuf older than the compiler that made them.
"""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message

__all__ = ["file", "message"]


def _load() -> descriptor_pool.DescriptorPool:
    data = Path(__file__).with_name("descriptors.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for proto in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(proto.SerializeToString())
    return pool


_POOL = _load()


def file(name: str) -> FileDescriptor:
    """The descriptor of one .proto file, such as ``deviceplugin_v1beta1.proto``."""
    return _POOL.FindFileByName(f"protos/{name}")


def message(full_name: str) -> type[Message]:
    """The class of one message, such as ``v1beta1.Device``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))
