"""Remove fields whose feature gate is off, as the API server does (v1.37)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["GATES", "drop_disabled"]

_Object = dict[str, Any]

_LISTS: Final = "DRAListTypeAttributes"
GATES: Final = frozenset({_LISTS})
"""Feature gates that can be enabled. They are off by default."""


def drop_disabled(kind: str, value: _Object, gates: Iterable[str] = ()) -> None:
    """Remove fields of disabled features, and fields that only alpha versions have.

    ``value``: the object; it is changed. ``gates``: names of the enabled feature gates (``GATES``).
    """
    spec, is_listed = value.get("spec") or {}, _LISTS in gates
    match kind:
        case "ResourceSlice":
            _drop_from_slice(spec, is_listed=is_listed)
        case "ResourceClaim":
            _drop_from_claim(spec)
            for result in _at(value.get("status"), "allocation", "devices", "results"):
                result.pop("skipNodeOperations", None)
        case "ResourceClaimTemplate":
            _drop_from_claim(spec.get("spec") or {})


def _drop_from_slice(spec: _Object, *, is_listed: bool) -> None:
    _drop(spec, "partitionTypeAttribute", "skipNodeOperations")
    for device in spec.get("devices") or ():
        _drop(device, "nodeAllocatableResources")
        for consumption in device.get("consumesCounters") or ():
            _drop(consumption, "compatibilityGroups")
        for attribute in () if is_listed else (device.get("attributes") or {}).values():
            _drop(attribute, "ints", "bools", "strings", "versions")


def _drop_from_claim(spec: _Object) -> None:
    for request in _at(spec, "devices", "requests"):
        for each in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            _drop(each, "derivedAttributes")


def _drop(value: _Object, *names: str) -> None:
    for name in names:
        value.pop(name, None)


def _at(value: Any, *path: str) -> Iterator[_Object]:
    for name in path:
        # A client can send null for a field, which the API treats like an absent field.
        value = (value or {}).get(name)
    yield from value or ()
