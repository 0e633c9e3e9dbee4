"""Operators, and the functions ``size``, ``matches`` and ``type``.

For these, cel-go does not choose an overload by the types of the arguments
(interpreter/interpretable.go, v0.26). The functions here therefore accept values of all types and
check the types themselves. Their errors differ from the errors of other functions.
"""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.claims.cel.functions import Implementation, arithmetic, lists, regex
from devicemanager.claims.cel.values import (
    NO_OVERLOAD,
    CelError,
    Duration,
    Map,
    Timestamp,
    TypeName,
    Value,
    size_of,
    type_name,
)

SIZED = frozenset({str, bytes, list, Map})
"""Classes of values that have a length."""


def _checked(answer: bool | None) -> bool:
    if answer is None:
        raise CelError(NO_OVERLOAD)
    return answer


def _with_classes(
    name: str, run: Callable[[Value, Value], Value], classes: tuple[type, ...]
) -> Implementation:
    def checked(one: Value, other: Value) -> Value:
        if type(one) not in classes:
            raise _without(name, one)
        return run(one, other)

    return checked


def _without(name: str, value: Value) -> CelError:
    """Return the error for a left operand whose class lacks the operator ``name``."""
    return CelError(NO_OVERLOAD if type(value) in _RECEIVERS else f"{NO_OVERLOAD}: {name}")


_RECEIVERS = (str, Duration, Timestamp)
"""Classes for which the error about a missing operator does not name the operator, as in cel-go."""


def _ordering(
    order: Callable[[Value, Value], int], is_wanted: Callable[[int], bool]
) -> Callable[[Value, Value], bool]:
    return lambda one, other: is_wanted(order(one, other))


def _not(value: Value) -> bool:
    if type(value) is not bool:
        raise CelError(NO_OVERLOAD)
    return not value


def _negate(value: Value) -> Value:
    if type(value) not in arithmetic.NEGATABLE:
        raise _without("-_", value)
    return arithmetic.negate(value)


def _size(value: Value) -> int:
    if type(value) not in SIZED:
        raise _without("size", value)
    return size_of(value)


def _matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str:
        raise _without("matches", text)
    if type(pattern) is not str:
        raise CelError(NO_OVERLOAD)
    return regex.matches(text, pattern)


_OPERATORS: dict[str, Implementation] = {
    "!_": _not,
    "-_": _negate,
    "size": _size,
    "matches": _matches,
    "@in": lists.inside,
    "type": lambda value: TypeName(type_name(value)),
}
"""Operators and functions by name."""
_ORDERS: dict[str, Callable[[int], bool]] = {
    "_<_": lambda order: order < 0,
    "_<=_": lambda order: order <= 0,
    "_>_": lambda order: order > 0,
    "_>=_": lambda order: order >= 0,
}
"""Comparison operators: True if ``order`` (-1, 0 or 1) satisfies the operator."""


def operator(
    name: str,
    equal: Callable[[Value, Value], bool | None],
    order: Callable[[Value, Value], int],
    ordered: tuple[type, ...],
) -> Implementation | None:
    """Return the implementation of the operator or function ``name``, such as ``_==_`` or ``size``.

    Return None if this module does not implement ``name``. ``equal``: function that returns True if
    two values are equal, and None if they cannot be compared. ``order``: function that returns -1,
    0 or 1, and raises CelError if two values cannot be compared. ``ordered``: Python classes of the
    values that can be the left operand of ``<``.
    """
    if name == "_==_":
        return lambda one, other: _checked(equal(one, other))
    if name == "_!=_":
        # A comparison that is an error counts as unequal.
        return lambda one, other: equal(one, other) is not True
    if name in arithmetic.BINARY:
        return _with_classes(name, *arithmetic.BINARY[name])
    if name in _ORDERS:
        return _with_classes(name, _ordering(order, _ORDERS[name]), ordered)
    return _OPERATORS.get(name)
