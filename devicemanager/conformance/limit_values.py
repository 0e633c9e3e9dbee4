"""Fields of limits: numbers with a default, which the option ``--limit`` can set."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import attrs

from devicemanager.conformance.outcomes import CheckError

__all__ = ["limit", "overridden"]

_LEAST = "least"

T = TypeVar("T", bound=attrs.AttrsInstance)


def limit(default: float, least: int = 0) -> Any:
    """Return an attrs field for a number of at least ``least``. If ``default`` is an int, the
    field accepts only whole numbers."""
    return attrs.field(default=default, validator=_check_number, metadata={_LEAST: least})


def overridden(limits: T, settings: Iterable[str]) -> T:
    """Return a copy of ``limits`` with changed values. Each setting has the form ``NAME=NUMBER``.
    Raises CheckError for any other text."""
    names = [field.name for field in attrs.fields(type(limits))]
    changes: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in names:
            raise CheckError(f"unknown limit {name!r}: use one of {', '.join(names)}")
        try:
            changes[name] = int(value) if value.isdigit() else float(value)
        except ValueError:
            raise CheckError(f"invalid limit {setting!r}: expected {name}=NUMBER") from None
    return attrs.evolve(limits, **changes)  # type: ignore[misc]  # mypy wants one class


def _check_number(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    least = field.metadata[_LEAST]
    # In Python, a bool is an int. NaN fails the comparison, too.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value < math.inf:
        raise CheckError(
            f"invalid limit {field.name} {value!r}: expected a number of at least {least}"
        )
    if isinstance(field.default, int) and not isinstance(value, int):
        raise CheckError(f"invalid limit {field.name} {value!r}: expected a whole number")
