"""The private descriptor pool of all messages in this package; see ``protos/__init__.py``."""

from pathlib import Path

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

__all__ = ["enum", "file", "message"]


_POOL = descriptor_pool.DescriptorPool()


def file(name: str) -> FileDescriptor:
    """Add a .proto file such as ``deviceplugin_v1beta1.proto``; return its descriptor."""
    _POOL.AddSerializedFile(Path(__file__).with_name(name).with_suffix(".binpb").read_bytes())
    return _POOL.FindFileByName(f"protos/{name}")


def message(full_name: str) -> type[Message]:
    """Return the class of a message such as ``v1beta1.Device``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))


def enum(full_name: str) -> EnumTypeWrapper:
    """Return the names and numbers of an enum such as ``v1alpha1.EventType``."""
    return EnumTypeWrapper(_POOL.FindEnumTypeByName(full_name))
