"""Imitate Go's JSON decoder and encoder for objects of resource.k8s.io.

The types of the fields come from the protobuf messages. ``decoded`` finds wrong types and unknown
fields, as the decoder does. ``pruned`` omits the fields that the encoder omits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from devicemanager.apiserver.kinds import RESOURCE_GROUP
from devicemanager.apiserver.protobuf import (
    DROP_ZERO,
    INLINE,
    KEEP_EMPTY,
    Descriptor,
    Field,
    descriptor,
    field_type,
    value_of_map,
)
from devicemanager.apiserver.store import Object
from devicemanager.core.quantity import Quantity

__all__ = ["StructureError", "decoded", "has_structure", "mismatch", "pruned", "quantity"]


class StructureError(ValueError):
    """Error for an object that the API server cannot decode, with the message of its decoder."""


def has_structure(api_version: str, kind: str) -> bool:
    """True if this module knows the fields of the kind at this ``apiVersion``."""
    in_group = api_version.startswith(f"{RESOURCE_GROUP}/")
    return in_group and descriptor(api_version, kind) is not None


def decoded(value: Object, api_version: str, kind: str, *, strict: bool = False) -> Object:
    """Return ``value`` without unknown fields and null values, with quantities in canonical form.

    If ``strict`` is True, unknown fields are an error. Raises StructureError for an object that a
    real API server cannot decode.
    """
    reader = _Reader()
    type_ = descriptor(api_version, kind)
    assert type_ is not None, f"{api_version} {kind} has no structure"
    found = reader.object(type_, value, "", _go_name(type_))
    if strict and reader.unknown:
        texts = ", ".join(f'unknown field "{each}"' for each in reader.unknown)
        raise StructureError(f"strict decoding error: {texts}")
    return {"apiVersion": api_version, "kind": kind, **found}


class _Reader:
    """Convert an object by the fields of its message. Collect unknown fields."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def object(self, type_: Descriptor, value: Any, at: str, owner: str) -> Object:
        if not isinstance(value, Mapping):
            raise _wrong(value, f"v1.{_go_name(type_)}", at, owner)
        known, found = _fields(type_), {}
        for name, each in value.items():
            if not at and name in ("apiVersion", "kind"):
                continue
            field = known.get(name)
            if field is None:
                self.unknown.append(_under(at, name))
            elif each is not None:
                found[name] = self.field(field, each, _under(at, name), _go_name(type_))
        return found

    def field(self, field: Field, value: Any, at: str, owner: str) -> Any:
        if (inner := value_of_map(field)) is not None:
            return self.map(inner, value, at, owner)
        if field.has_presence:
            return self.value(field, value, at, owner)
        if not isinstance(value, list):
            raise _wrong(value, f"[]{_go_type(field)}", at, owner)
        return [self.value(field, each, f"{at}[{n}]", owner) for n, each in enumerate(value)]

    def map(self, field: Field, value: Any, at: str, owner: str) -> Object:
        if not isinstance(value, Mapping):
            raise _wrong(value, f"map[string]{_go_type(field)}", at, owner)
        return {
            key: self.value(field, each, f"{at}.{key}", owner)
            for key, each in value.items()
            if each is not None
        }

    def value(self, field: Field, value: Any, at: str, owner: str) -> Any:
        name = field_type(field)
        if read := _SPECIAL.get(name):
            return read(value)
        if name:
            return self.object(field.message_type, {} if value is None else value, at, owner)
        types = _PLAIN[field.type]
        if isinstance(value, bool) is not (bool in types) or not isinstance(value, types):
            raise _wrong(value, _go_type(field), at, owner)
        return value


def _fields(type_: Descriptor) -> dict[str, Field]:
    """Return the fields of a message by JSON name."""
    found: dict[str, Field] = {}
    for field in type_.fields:
        if field.name == INLINE:
            found |= _fields(field.message_type)
        else:
            found[field.json_name] = field
    return found


def _under(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _go_name(type_: Descriptor) -> str:
    return str(type_.name).removeprefix("Beta")


# -- plain values ------------------------------------------------------------------------

_STRING, _BOOL, _INT64 = 9, 8, 3
_PLAIN: Final[Mapping[int, tuple[type, ...]]] = {
    _STRING: (str,),
    _BOOL: (bool,),
    _INT64: (int,),
}
"""Python types by field type (its number in ``descriptor.proto``)."""
_GO: Final = {_STRING: "string", _BOOL: "bool", _INT64: "int64"}


def _go_type(field: Field) -> str:
    if field.message_type is None:
        return _GO[field.type]
    name = _go_name(field.message_type)
    return _GO_TYPES.get(name, f"v1.{name}")


_GO_TYPES: Final = {"Quantity": "resource.Quantity", "RawExtension": "runtime.RawExtension"}


def _wrong(value: Any, wanted: str, at: str, owner: str) -> StructureError:
    # In its errors, Go's decoder omits list indexes.
    path = ".".join(part.partition("[")[0] for part in at.split("."))
    return StructureError(mismatch(value, f"{owner}.{path}", wanted))


def mismatch(value: Any, field: str, type_: str) -> str:
    """Return the error of Go's decoder for a value whose type differs from the field's."""
    what = _described(value)
    return f"json: cannot unmarshal {what} into Go struct field {field} of type {type_}"


def _described(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return f"number {value}" if isinstance(value, float) else "number"
    return "array" if isinstance(value, list) else "object"


# -- values with a form of their own -------------------------------------------------------


def quantity(value: Any) -> str:
    """Return a quantity in canonical form. Raises StructureError for an invalid quantity."""
    text = value if isinstance(value, str) else str(value)
    try:
        return str(Quantity.parse(text))
    except ValueError as error:
        raise StructureError(str(error)) from None


def _time(value: Any) -> str:
    try:
        at = datetime.fromisoformat(value)
        if at.tzinfo is None:
            raise ValueError(value)
    except (TypeError, ValueError):
        layout = "2006-01-02T15:04:05Z07:00"
        raise StructureError(
            f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
        ) from None
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _raw(value: Any) -> Any:
    return value


_SPECIAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Quantity": quantity,
    "Time": _time,
    "RawExtension": _raw,
    "FieldsV1": _raw,
}


# -- what Go's JSON leaves out --------------------------------------------------------------

_ALWAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ResourceSlice": {"spec": {}},
    "ResourceSliceSpec": {"driver": "", "pool": {}},
    "ResourcePool": {"name": "", "generation": 0, "resourceSliceCount": 0},
    "CounterSet": {"name": ""},
    "Device": {"name": ""},
    "DeviceCounterConsumption": {"counterSet": ""},
    "DeviceCapacity": {"value": "0"},
    "Counter": {"value": "0"},
    "CapacityRequestPolicy": {"default": None},
    "DeviceTaint": {"key": "", "effect": ""},
    "ResourceClaim": {"spec": {}, "status": {}},
    "ResourceClaimSpec": {"devices": {}},
    "ResourceClaimTemplate": {"spec": {}},
    "ResourceClaimTemplateSpec": {"metadata": {}, "spec": {}},
    "DeviceClaim": {"requests": None},
    "DeviceRequest": {"name": ""},
    "ExactDeviceRequest": {"deviceClassName": ""},
    "DeviceSubRequest": {"name": "", "deviceClassName": ""},
    "AllocationResult": {"devices": {}},
    "AllocatedDeviceStatus": {"conditions": None},
    "DeviceClass": {"spec": {}},
    "DeviceTaintRule": {"spec": {}, "status": {}},
    "DeviceTaintRuleSpec": {"taint": {}},
    "NodeSelector": {"nodeSelectorTerms": None},
    "Condition": {"lastTransitionTime": None, "message": ""},
}
"""By message: fields that JSON always contains, with their empty values."""


def pruned(value: Object, api_version: str, kind: str) -> Object:
    """Return the object ``value`` in the form of a real API server's JSON.

    Omit empty fields that Go's JSON encoder omits, and add fields that it always writes.
    """
    type_ = descriptor(api_version, kind)
    assert type_ is not None, f"{api_version} {kind} has no structure"
    return {"apiVersion": api_version, "kind": kind, **_pruned(type_, value)}


def _pruned(type_: Descriptor, value: Mapping[str, Any]) -> Object:
    always = _ALWAYS.get(_go_name(type_), {})
    found: Object = {}
    for name, field in _fields(type_).items():
        given = value.get(name, always.get(name))
        if given is None and name not in always:
            continue
        if name in always or not _is_left_out(field, given):
            found[name] = _inner(field, given)
    return found


def _is_left_out(field: Field, value: Any) -> bool:
    if not field.has_presence:
        return not value
    name = f"{field.containing_type.name}.{field.name}"
    if isinstance(value, str):
        return not value and name not in KEEP_EMPTY
    return not isinstance(value, Mapping) and value == 0 and name in DROP_ZERO


def _inner(field: Field, value: Any) -> Any:
    entry = value_of_map(field)
    if isinstance(value, Mapping) and entry is not None:
        return {key: _inner(entry, value[key]) for key in sorted(value)}
    if isinstance(value, list) and not field.has_presence:
        return [_one(field, each) for each in value] or None
    return _one(field, value)


def _one(field: Field, value: Any) -> Any:
    is_special = field_type(field) in _SPECIAL or field.message_type is None
    if is_special or not isinstance(value, Mapping):
        return value
    return _pruned(field.message_type, value)
