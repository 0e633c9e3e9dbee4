"""Bodies in the protobuf encoding of Kubernetes, converted to and from API objects.

A body is the text ``k8s`` and a zero byte, then a ``runtime.Unknown`` with kind, version and the
object's message. Decoded objects have the form of the API's JSON, which differs from protobuf's
JSON: an int64 is a number, and a Quantity and a Time are strings.

Go's protobuf encoder also writes empty fields. Decoding drops the empty fields that Go's JSON
encoder would omit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from devicemanager.apiserver.kinds import RESOURCE_GROUP
from protos import k8s_resource_v1 as k8s

__all__ = [
    "CONTENT_TYPE",
    "DROP_ZERO",
    "INLINE",
    "KEEP_EMPTY",
    "Descriptor",
    "Field",
    "ProtobufError",
    "decode",
    "descriptor",
    "encode",
    "field_type",
    "value_of_map",
]

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

_OF_RESOURCES: Final[Mapping[str, type[Message]]] = {
    "ResourceSlice": k8s.ResourceSlice,
    "ResourceClaim": k8s.ResourceClaim,
    "ResourceClaimTemplate": k8s.ResourceClaimTemplate,
    "DeviceClass": k8s.DeviceClass,
    "DeviceTaintRule": k8s.DeviceTaintRule,
}
_BETA1: Final = f"{RESOURCE_GROUP}/v1beta1"
_MESSAGES: Final[Mapping[tuple[str, str], type[Message]]] = {
    **{
        (f"{RESOURCE_GROUP}/{version}", kind): message
        for version in ("v1", "v1beta2", "v1beta1", "v1alpha3")
        for kind, message in _OF_RESOURCES.items()
    },
    (_BETA1, "ResourceSlice"): k8s.BetaResourceSlice,
    (_BETA1, "ResourceClaim"): k8s.BetaResourceClaim,
    (_BETA1, "ResourceClaimTemplate"): k8s.BetaResourceClaimTemplate,
    ("v1", "Event"): k8s.Event,
    ("events.k8s.io/v1", "Event"): k8s.NewEvent,
    ("coordination.k8s.io/v1", "Lease"): k8s.Lease,
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): k8s.SelfSubjectAccessReview,
}


class ProtobufError(ValueError):
    """Error for a body that cannot be decoded, or for a kind without a protobuf message."""


def descriptor(api_version: str, kind: str) -> Descriptor | None:
    """Return the descriptor of the protobuf message for a version and kind; None if unknown."""
    type_ = _MESSAGES.get((api_version, kind))
    return None if type_ is None else type_.DESCRIPTOR


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in a body, with ``apiVersion`` and ``kind``.

    Raises ProtobufError for a missing prefix, an invalid message, and an unknown kind.
    """
    if not body.startswith(_MAGIC):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        frame = k8s.Unknown.FromString(body[len(_MAGIC) :])
        api_version, kind = frame.typeMeta.apiVersion, frame.typeMeta.kind
        # Options, such as DeleteOptions, can have the version of any group.
        type_ = k8s.DeleteOptions if kind == "DeleteOptions" else _MESSAGES.get((api_version, kind))
        if type_ is None:
            raise ProtobufError(
                f"this API server cannot decode protobuf of {api_version} {kind}: use JSON"
            )
        found = _object(type_.FromString(frame.raw))
    except (DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise ProtobufError(f"invalid protobuf body: {error}") from None
    except json.JSONDecodeError:
        raise ProtobufError(
            "invalid protobuf body: a RawExtension or FieldsV1 is not valid JSON"
        ) from None
    return {"apiVersion": api_version, "kind": kind, **found}


def encode(value: Mapping[str, Any]) -> bytes:
    """Return the body for an object with ``apiVersion`` and ``kind``.

    Unknown fields are omitted, as by a real API server. Raises ProtobufError if the object's kind
    has no message, or if a field has a wrong type.
    """
    api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    type_ = k8s.DeleteOptions if kind == "DeleteOptions" else _MESSAGES.get((api_version, kind))
    if type_ is None:
        raise ProtobufError(f"{api_version} {kind} has no protobuf message: use JSON")
    message = type_()
    _fill(message, value, kind)
    meta = k8s.TypeMeta(apiVersion=api_version, kind=kind)
    return _MAGIC + k8s.Unknown(typeMeta=meta, raw=message.SerializeToString()).SerializeToString()


# -- from messages ---------------------------------------------------------------------

Field = Any
"""Protobuf descriptor of a field. The type is Any, because each protobuf backend has its own
class."""
Descriptor = Any
"""Protobuf descriptor of a message. The type is Any, because each protobuf backend has its own
class."""

INLINE: Final = "deviceConfiguration"
"""Name of a protobuf field that JSON does not have.

The field contains a message. In JSON, the fields of this message belong to the outer object.
"""

KEEP_EMPTY: Final = frozenset(
    {
        *("DeviceAttribute.string", "DeviceAttribute.version"),
        *("ResourceSliceSpec.nodeName", "Device.nodeName", "BetaBasicDevice.nodeName"),
        *("DeviceClassSpec.extendedResourceName", "OpaqueDeviceConfiguration.driver"),
        *("DeviceConstraint.matchAttribute", "DeviceConstraint.distinctAttribute"),
        *("DeviceTaintSelector.driver", "DeviceTaintSelector.pool", "DeviceTaintSelector.device"),
        *("Preconditions.uid", "Preconditions.resourceVersion"),
    }
)
"""String fields that are pointers in Go. An empty string in one of these fields is not omitted."""

DROP_ZERO: Final = frozenset(
    {
        *("ObjectMeta.generation", "Condition.observedGeneration"),
        *("ExactDeviceRequest.count", "DeviceSubRequest.count"),
        *("BetaDeviceRequest.count", "BetaDeviceSubRequest.count"),
        *("Event.count", "NewEvent.deprecatedCount", "BetaResourceSliceSpec.allNodes"),
    }
)
"""Fields that Go's JSON encoder omits if they are zero or false."""


def _object(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name == INLINE:
            found |= _object(value)
        elif (inner := value_of_map(field)) is not None:
            found[field.json_name] = {key: _value(inner, value[key]) for key in sorted(value)}
        elif not field.has_presence:
            found[field.json_name] = [_value(field, each) for each in value]
        elif not _is_absent(field, value):
            found[field.json_name] = _value(field, value)
    return found


def value_of_map(field: Field) -> Field | None:
    """Return the descriptor of the values of a map field; None if the field is not a map."""
    type_ = field.message_type
    if type_ is None or not type_.GetOptions().map_entry:
        return None
    return type_.fields_by_name["value"]


def field_type(field: Field) -> str:
    """Return the name of the message type of a field; empty if the field is not a message."""
    return "" if field.message_type is None else field.message_type.name


def _is_absent(field: Field, value: Any) -> bool:
    name = f"{field.containing_type.name}.{field.name}"
    if type_ := field_type(field):
        # Go encodes the zero time as an empty message, and a missing extension without bytes.
        special = type_ in ("Time", "MicroTime", "RawExtension", "FieldsV1")
        return special and not value.ByteSize()
    if isinstance(value, str):
        return not value and name not in KEEP_EMPTY
    return value == 0 and name in DROP_ZERO


def _value(field: Field, value: Any) -> Any:
    if field.message_type is None:
        return value
    read = _READ.get(field_type(field))
    return _object(value) if read is None else read(value)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _time(message: Any) -> str:
    return f"{_EPOCH + timedelta(seconds=message.seconds):%Y-%m-%dT%H:%M:%SZ}"


def _micro_time(message: Any) -> str:
    at = _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Quantity": lambda message: message.string or "0",
    "Time": _time,
    "MicroTime": _micro_time,
    "RawExtension": lambda message: json.loads(message.raw),
    "FieldsV1": lambda message: json.loads(message.Raw),
}


# -- to messages -----------------------------------------------------------------------


def _fill(message: Message, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise ProtobufError(f"{path}: expected an object")
    for field, given, name in _fields(message, value):
        at = f"{path}.{name}"
        try:
            _set(message, field, given, at)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ProtobufError):
                raise
            raise ProtobufError(f"{at}: {error}") from None


def _fields(message: Message, value: Mapping[str, Any]) -> Iterator[tuple[Field, Any, str]]:
    """Yield the fields of a message that have a value: descriptor, value, JSON name."""
    for field in message.DESCRIPTOR.fields:
        if field.name == INLINE:
            yield field, value, field.name
        elif value.get(field.json_name) is not None:
            yield field, value[field.json_name], field.json_name


def _set(message: Message, field: Field, given: Any, at: str) -> None:
    if (inner := value_of_map(field)) is not None:
        target = getattr(message, field.name)
        for key, each in given.items():
            if inner.message_type is None:
                target[key] = each
            else:
                _write(inner, target[key], each, f"{at}[{key}]")
    elif not field.has_presence:
        target = getattr(message, field.name)
        for index, each in enumerate(given):
            if field.message_type is None:
                target.append(each)
            else:
                _write(field, target.add(), each, f"{at}[{index}]")
    elif field.message_type is None:
        setattr(message, field.name, given)
    else:
        inner_message = getattr(message, field.name)
        inner_message.SetInParent()
        _write(field, inner_message, given, at)


def _write(field: Field, message: Message, given: Any, at: str) -> None:
    write = _WRITE.get(field_type(field))
    if write is None:
        _fill(message, given, at)
    else:
        write(message, given)


def _write_quantity(message: Any, given: Any) -> None:
    message.string = str(given)


def _write_time(message: Any, given: Any) -> None:
    since = datetime.fromisoformat(given) - _EPOCH
    message.seconds = since.days * 86_400 + since.seconds
    message.nanos = since.microseconds * 1000


def _write_raw(message: Any, given: Any) -> None:
    message.raw = json.dumps(given, separators=(",", ":")).encode()


def _write_fields(message: Any, given: Any) -> None:
    message.Raw = json.dumps(given, separators=(",", ":")).encode()


_WRITE: Final[Mapping[str, Callable[[Any, Any], None]]] = {
    "Quantity": _write_quantity,
    "Time": _write_time,
    "MicroTime": _write_time,
    "RawExtension": _write_raw,
    "FieldsV1": _write_fields,
}
