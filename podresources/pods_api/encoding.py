"""Convert pods between the form of Kubernetes' JSON and core/v1 protobuf bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from protos import core_v1

__all__ = ["pod_from_bytes", "pod_to_bytes"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def pod_to_bytes(pod: Mapping[str, Any]) -> bytes:
    """Encode a pod. Raises ValueError for a field that ``core_v1.proto`` does not have."""
    message = core_v1.Pod()
    _fill(message, pod)
    return message.SerializeToString(deterministic=True)


def pod_from_bytes(data: bytes) -> dict[str, Any]:
    """Decode a pod; skip fields that ``core_v1.proto`` does not have. Raises ValueError for invalid
    bytes."""
    try:
        return _object(core_v1.Pod.FromString(data))
    except DecodeError as error:
        raise ValueError(f"not a core/v1 Pod: {error}") from error


# -- encoding ------------------------------------------------------------------------------

_Set = Callable[[Message, Any], None]
"""Sets one field of a message."""


def _fill(message: Message, values: Mapping[str, Any]) -> None:
    setters = _setters(message.DESCRIPTOR)
    for name, value in values.items():
        if name not in setters:
            raise ValueError(f"core_v1.proto has no field {name} in {message.DESCRIPTOR.name}")
        setters[name](message, value)


# Cached: a list of pods has thousands of fields, and reading descriptors takes most of the time.
@lru_cache(maxsize=64)
def _setters(descriptor: Descriptor) -> Mapping[str, _Set]:
    return {field.name: _setter(field) for field in descriptor.fields}


def _setter(field: FieldDescriptor) -> _Set:
    name, kind = field.name, field.message_type
    if kind is None:
        return lambda message, value: setattr(message, name, value)
    if _is_map(field):
        return _map_setter(name, kind.fields_by_name["value"])
    set_one = _message_setter(kind)
    if _is_repeated(field):

        def add_all(message: Message, values: Iterable[Any]) -> None:
            for value in values:
                set_one(getattr(message, name).add(), value)

        return add_all
    return lambda message, value: set_one(getattr(message, name), value)


def _map_setter(name: str, element: FieldDescriptor) -> _Set:
    if element.message_type is None:
        return lambda message, values: getattr(message, name).update(values)
    set_one = _message_setter(element.message_type)

    def set_all(message: Message, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            set_one(getattr(message, name)[key], value)

    return set_all


def _message_setter(kind: Descriptor) -> _Set:
    """Return a function that sets the fields of a message and marks the message as present."""
    match kind.name:
        case "Time":
            return _set_time
        case "Quantity":
            return lambda message, value: setattr(message, "string", value)

    def set_fields(message: Message, value: Mapping[str, Any]) -> None:
        # In JSON, ``{}`` is a message without fields, and present.
        message.SetInParent()
        _fill(message, value)

    return set_fields


def _set_time(message: Message, value: str | None) -> None:
    # As in the kubelet, an unknown time is a message without fields.
    message.SetInParent()
    if value is not None:
        seconds = int((datetime.fromisoformat(value) - _EPOCH).total_seconds())
        setattr(message, "seconds", seconds)  # noqa: B010 - the type is that of any message
        setattr(message, "nanos", 0)  # noqa: B010


# -- decoding ------------------------------------------------------------------------------


def _object(message: Message) -> dict[str, Any]:
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is None:
        return value
    if _is_map(field):
        element = kind.fields_by_name["value"]
        return {key: _value(element, each) for key, each in sorted(value.items())}
    read = _read_message(kind)
    return [read(each) for each in value] if _is_repeated(field) else read(value)


def _read_message(kind: Descriptor) -> Callable[[Any], Any]:
    match kind.name:
        case "Time":
            return _time
        case "Quantity":
            return lambda quantity: quantity.string
    return _object


def _time(message: Any) -> str | None:
    if not message.ListFields():
        return None
    return (_EPOCH + timedelta(seconds=message.seconds)).isoformat().replace("+00:00", "Z")


def _is_repeated(field: FieldDescriptor) -> bool:
    # protobuf 7 removed ``label``; older versions have no ``is_repeated``.
    repeated: bool | None = getattr(field, "is_repeated", None)
    if repeated is not None:
        return repeated
    label: int = getattr(field, "label")  # noqa: B009 - unknown to the newest version's stubs
    return label == FieldDescriptor.LABEL_REPEATED


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry
