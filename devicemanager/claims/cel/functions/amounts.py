"""Functions of quantities and semantic versions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from devicemanager.claims.cel.semver import Version, parse_tolerant, parse_version
from devicemanager.claims.cel.values import CelError, Quantity
from devicemanager.core.quantity import NANOS, parse_quantity

_PARTS = re.compile(r"[+-]?([0-9]*)(?:\.([0-9]*))?([A-Za-z]*)([+-]?[0-9]*)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = 2**63 - 1


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    """Evaluate ``quantity('1Gi')``. Raises CelError with the message of Go's ``ParseQuantity``."""
    try:
        # A quantity without digits, such as "Gi", is zero in Go.
        nanos = parse_quantity(_with_digits(text))
    except ValueError as error:
        raise CelError(str(error)) from None
    match = _PARTS.match(text)
    suffix = match[3] if match else ""
    if suffix in _BINARY:
        nanos = max(-_LARGEST * NANOS, min(nanos, _LARGEST * NANOS))
    return Quantity(nanos, _stored_integer(text, nanos))


def _with_digits(text: str) -> str:
    match = _PARTS.match(text)
    if match is None or not text or match[1] or match[2]:
        return text
    sign = text[:1] if text[:1] in "+-" else ""
    return f"{sign}0{match[3]}{match[4]}"


def _stored_integer(text: str, nanos: int) -> int | None:
    """Return the value of a quantity that Kubernetes stores as a whole number, else None.

    Go stores a quantity of few digits as an integer and a power of ten. If that power is
    negative, as in ``1.0`` and ``2000m``, the quantity does not count as an integer.
    """
    # ``ParseQuantity`` in apimachinery/pkg/api/resource/quantity.go, v1.36.
    match = _PARTS.match(text)
    if match is None or nanos % NANOS:
        return None
    whole, fraction = (match[1] or "").lstrip("0") or "0", match[2] or ""
    if match[3] in _BINARY:
        exponent = _BINARY[match[3]]
        room = 15 - len(whole) - int(exponent * 3 / 10) - 1
        fits = room >= 0 and not fraction
    else:
        exponent = _DECIMAL.get(match[3] + match[4], _exponent(match[4]))
        fits = 18 - len(whole) - len(fraction) >= 0 and exponent - len(fraction) >= 0
    value = nanos // NANOS
    return value if (fits or text == "0") and abs(value) <= _LARGEST else None


def _exponent(text: str) -> int:
    return int(text) if text.lstrip("+-").isdigit() and len(text) < 10 else 0


def of_nanos(nanos: int) -> Quantity:
    """Return the quantity of ``nanos`` nano-units, for an attribute or a capacity."""
    whole, rest = divmod(nanos, NANOS)
    return Quantity(nanos, None if rest or abs(whole) > _LARGEST else whole)


def _accepts(parse: Callable[..., Any], *errors: type[Exception]) -> Callable[..., bool]:
    """Return a function such as ``isQuantity``: True if ``parse`` accepts its arguments."""

    def accepts(*args: Any) -> bool:
        try:
            parse(*args)
        except errors:
            return False
        return True

    return accepts


def _plus(one: Quantity, other: Quantity | int, sign: int) -> Quantity:
    nanos = other.nanos if isinstance(other, Quantity) else other * NANOS
    integer = other.integer if isinstance(other, Quantity) else other
    total = None if one.integer is None or integer is None else one.integer + sign * integer
    if total is not None and abs(total) > _LARGEST:
        total = None
    return Quantity(one.nanos + sign * nanos, total, is_computed=True)


def _add(one: Quantity, other: Quantity | int) -> Quantity:
    return _plus(one, other, 1)


def _subtract(one: Quantity, other: Quantity | int) -> Quantity:
    return _plus(one, other, -1)


def _as_integer(value: Quantity) -> int:
    if value.integer is None:
        raise CelError("cannot convert value to integer")
    return value.integer


def _as_float(value: Quantity) -> float:
    try:
        return value.nanos / NANOS
    except OverflowError:
        return math.copysign(math.inf, value.nanos)


def _order(one: Any, other: Any) -> int:
    if isinstance(one, Quantity):
        one, other = one.nanos, other.nanos
    return int(one > other) - int(one < other)


def version(text: str, normalize: bool = False) -> Version:
    """Evaluate ``semver('1.2.3')``. Raises CelError with the message of the Go package
    blang/semver.

    ``normalize``: True to accept other forms, too: a leading ``v``, missing numbers and leading
    zeros.
    """
    try:
        return parse_tolerant(text) if normalize else parse_version(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def _number(index: int) -> Callable[[Version], int]:
    # A version number is an unsigned 64-bit integer in Go. Its conversion to int can overflow.
    return lambda value: (value.numbers[index] + 2**63) % 2**64 - 2**63


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "string_to_quantity": quantity,
    "is_quantity_string": _accepts(quantity, CelError),
    "quantity_sign": lambda value: (value.nanos > 0) - (value.nanos < 0),
    "quantity_get_float": _as_float,
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda value: value.integer is not None,
    "quantity_add": _add,
    "quantity_add_int": _add,
    "quantity_sub": _subtract,
    "quantity_sub_int": _subtract,
    "string_to_semver": version,
    "string_bool_to_semver": version,
    "is_semver_string": _accepts(version, CelError),
    "is_semver_string_bool": _accepts(version, CelError),
    **{f"semver_{name}": _number(i) for i, name in enumerate(("major", "minor", "patch"))},
    **{f"{kind}_compare_to": _order for kind in ("quantity", "semver")},
    **{f"{kind}_is_less_than": lambda a, b: _order(a, b) < 0 for kind in ("quantity", "semver")},
    **{f"{kind}_is_greater_than": lambda a, b: _order(a, b) > 0 for kind in ("quantity", "semver")},
}
