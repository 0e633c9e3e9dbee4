"""Conversion of objects between the versions of their kinds.

Objects are stored at one version. Requests and responses can use another version:

* ``resource.k8s.io/v1beta2`` has the same fields as v1.
* In ``resource.k8s.io/v1beta1``, the field ``basic`` of a device contains all fields of the device
  except the name. Each request in a claim directly contains the fields that v1 has in ``exactly``.
* ``events.k8s.io/v1`` has the events of the core group with other field names.

A field that exists in only one of the versions is copied unchanged, so no data is lost
(``pkg/apis/resource/v1beta1``, ``pkg/apis/events/v1``; v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.apiserver.kinds import RESOURCE_GROUP, Kind
from devicemanager.apiserver.store import Object

__all__ = ["from_stored", "path_in", "to_stored"]

_Convert = Callable[[Object], Object]


def to_stored(kind: Kind, api_version: str, value: Object) -> Object:
    """Convert an object from ``api_version`` to the version in which objects are stored."""
    change, _ = _CONVERSIONS.get((kind.name, api_version), (dict, dict))
    return {**change(value), "apiVersion": kind.api_version, "kind": kind.name}


def from_stored(kind: Kind, api_version: str, value: Object) -> Object:
    """Convert an object from the version in which it is stored to ``api_version``."""
    _, change = _CONVERSIONS.get((kind.name, api_version), (dict, dict))
    return {**change(value), "apiVersion": api_version, "kind": kind.name}


# -- resource.k8s.io/v1beta1 -----------------------------------------------------------

_OF_BOTH: Final = ("name", "firstAvailable")
"""Fields of a request that have the same path in v1 and v1beta1."""


def _at(path: tuple[str, ...], change: Callable[[Any], Any]) -> _Convert:
    """Return a function that changes the value at ``path`` of an object, if it exists."""

    def changed(value: Any, rest: tuple[str, ...] = path) -> Any:
        if not rest:
            return change(value)
        if not isinstance(value, dict) or value.get(rest[0]) is None:
            return value
        return {**value, rest[0]: changed(value[rest[0]], rest[1:])}

    return changed


def _each(change: _Convert) -> Callable[[Any], Any]:
    def changed(values: Any) -> Any:
        if not isinstance(values, list):
            return values
        return [change(each) if isinstance(each, dict) else each for each in values]

    return changed


def _flat_device(device: Object) -> Object:
    rest = {key: value for key, value in device.items() if key != "basic"}
    return {**rest, **(device.get("basic") or {})}


def _basic_device(device: Object) -> Object:
    rest = {key: value for key, value in device.items() if key != "name"}
    return {"name": device.get("name", ""), "basic": rest}


def _exact_request(request: Object) -> Object:
    shared = {key: value for key, value in request.items() if key in _OF_BOTH}
    exactly = {key: value for key, value in request.items() if key not in _OF_BOTH}
    # An empty name or number is the same as a missing field.
    is_set = any(value not in ("", 0) or value is False for value in exactly.values())
    return {**shared, "exactly": exactly} if is_set else shared


def _flat_request(request: Object) -> Object:
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {"deviceClassName": "", **rest, **(request.get("exactly") or {})}


def path_in(api_version: str, path: str) -> str:
    """Return the path that a field has at ``api_version``.

    ``path``: path of the same field at the version in which objects are stored.
    """
    if api_version != _BETA1:
        return path
    path = path.replace(".exactly.", ".")
    return _OF_DEVICE.sub(r"\1.basic.", path, count=1)


_OF_DEVICE: Final = re.compile(r"^(spec\.devices\[\d+\])\.(?!name\b)")
_DEVICES: Final = ("spec", "devices")
_REQUESTS: Final = ("spec", "devices", "requests")
_TEMPLATE_REQUESTS: Final = ("spec", "spec", "devices", "requests")

# -- events.k8s.io/v1 ------------------------------------------------------------------

_EVENT_FIELDS: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def _renamed(names: Mapping[str, str]) -> _Convert:
    return lambda value: {names.get(key, key): each for key, each in value.items()}


_BETA1: Final = f"{RESOURCE_GROUP}/v1beta1"
_CONVERSIONS: Final[Mapping[tuple[str, str], tuple[_Convert, _Convert]]] = {
    ("ResourceSlice", _BETA1): (
        _at(_DEVICES, _each(_flat_device)),
        _at(_DEVICES, _each(_basic_device)),
    ),
    ("ResourceClaim", _BETA1): (
        _at(_REQUESTS, _each(_exact_request)),
        _at(_REQUESTS, _each(_flat_request)),
    ),
    ("ResourceClaimTemplate", _BETA1): (
        _at(_TEMPLATE_REQUESTS, _each(_exact_request)),
        _at(_TEMPLATE_REQUESTS, _each(_flat_request)),
    ),
    ("Event", "events.k8s.io/v1"): (
        _renamed(_EVENT_FIELDS),
        _renamed({new: old for old, new in _EVENT_FIELDS.items()}),
    ),
}
"""Conversions to and from the stored version, by kind and ``apiVersion``."""
