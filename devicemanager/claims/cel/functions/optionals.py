"""Functions that create or read optional values, such as ``optional.of`` and ``list.first``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.values import NONE, CelError, Map, Optional, Value, text_of


def _of_non_zero(value: Value) -> Optional:
    is_zero = not value if type(value) in (bool, int, str, bytes, float, list, Map) else False
    return NONE if is_zero or value is None or value == 0 else Optional(value)


def _value(optional: Optional) -> Value:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrap(values: list[Value]) -> list[Value]:
    for value in values:
        if type(value) is not Optional:
            raise CelError(f"value {text_of(value)} is not optional")
    return [value.value for value in values if value.has_value]


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "optional_of": Optional,
    "optional_ofNonZeroValue": _of_non_zero,
    "optional_none": lambda: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda optional: optional.has_value,
    "list_last": lambda values: Optional(values[-1]) if values else NONE,
    "list_first": lambda values: Optional(values[0]) if values else NONE,
    "optional_unwrap": _unwrap,
    "optional_unwrapOpt": _unwrap,
}
