"""Arithmetic operators on 64-bit integers, doubles and times.

An integer overflow is an error (types/overflow.go of cel-go).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from devicemanager.claims.cel.limits import check_size
from devicemanager.claims.cel.values import (
    NO_OVERLOAD,
    CelError,
    Duration,
    Timestamp,
    UInt,
    Value,
)

_INT_MIN, _INT_MAX, _UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
EARLIEST, LATEST = -62135596800, 253402300799
"""First and last second of the years 1 to 9999, as seconds since 1970."""
SECOND = 10**9
"""Nanoseconds per second."""


def checked_int(number: int) -> int:
    """Return the number as an int. Raises CelError if it does not fit into 64 bits."""
    if not _INT_MIN <= number <= _INT_MAX:
        raise CelError("integer overflow")
    return number


def checked_uint(number: int) -> UInt:
    """Return the number as a uint. Raises CelError if it is negative or does not fit into 64
    bits."""
    if not 0 <= number <= _UINT_MAX:
        raise CelError("unsigned integer overflow")
    return UInt(number)


def checked_duration(nanos: int) -> Duration:
    """Return the duration of ``nanos`` nanoseconds.

    Raises CelError if ``nanos`` does not fit into 64 bits.
    """
    if not _INT_MIN <= nanos <= _INT_MAX:
        raise CelError("duration overflow")
    return Duration(nanos)


def checked_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return the timestamp that is ``nanos`` nanoseconds after the start of 1970 (UTC).

    ``offset``: UTC offset for converting the timestamp to text, in seconds; positive east of
    Greenwich. Raises CelError for a timestamp outside the years 1 to 9999.
    """
    if not EARLIEST <= nanos // SECOND <= LATEST:
        raise CelError("timestamp overflow")
    return Timestamp(nanos, offset)


def _same(one: Value, other: Value) -> type:
    """Return the common class of two values. Raises CelError if they differ in class."""
    if type(one) is not type(other):
        raise CelError(NO_OVERLOAD)
    return type(one)


def add(one: Value, other: Value) -> Value:
    """Evaluate ``one + other``."""
    kind = type(one)
    if kind is Duration and type(other) is Timestamp:
        one, other = other, one
    if type(one) is Timestamp and type(other) is Duration:
        return checked_timestamp(one.nanos + other.nanos, one.offset)
    _same(one, other)
    if kind is int:
        return checked_int(one + other)
    if kind is UInt:
        return checked_uint(int(one) + int(other))
    if kind is Duration:
        return checked_duration(one.nanos + other.nanos)
    if kind is Timestamp:
        raise CelError(NO_OVERLOAD)
    if kind is not float:
        check_size(len(one) + len(other))
    return one + other


def subtract(one: Value, other: Value) -> Value:
    """Evaluate ``one - other``."""
    kind = type(one)
    if kind is Timestamp and type(other) is Duration:
        return checked_timestamp(one.nanos - other.nanos, one.offset)
    _same(one, other)
    if kind is int:
        return checked_int(one - other)
    if kind is UInt:
        return checked_uint(int(one) - int(other))
    if kind in (Duration, Timestamp):
        return checked_duration(one.nanos - other.nanos)
    return one - other


def multiply(one: Value, other: Value) -> Value:
    """Evaluate ``one * other``."""
    kind = _same(one, other)
    if kind is int:
        return checked_int(one * other)
    return checked_uint(int(one) * int(other)) if kind is UInt else one * other


def divide(one: Value, other: Value) -> Value:
    """Evaluate ``one / other``. Integer division rounds toward zero."""
    kind = _same(one, other)
    if kind is float:
        return _divide_doubles(one, other)
    if other == 0:
        raise CelError("division by zero")
    if kind is UInt:
        return UInt(int(one) // int(other))
    quotient = abs(one) // abs(other)
    return checked_int(quotient if (one < 0) == (other < 0) else -quotient)


def _divide_doubles(one: float, other: float) -> float:
    if other:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def modulo(one: Value, other: Value) -> Value:
    """Evaluate ``one % other``. The result has the sign of ``one``."""
    kind = _same(one, other)
    if other == 0:
        raise CelError("modulus by zero")
    if kind is UInt:
        return UInt(int(one) % int(other))
    if (one, other) == (_INT_MIN, -1):
        raise CelError("integer overflow")
    return abs(one) % abs(other) * (-1 if one < 0 else 1)


def negate(one: Value) -> Value:
    """Evaluate ``-one``."""
    if type(one) is bool:
        raise CelError(NO_OVERLOAD)
    if type(one) is Duration:
        return checked_duration(-one.nanos)
    return checked_int(-one) if type(one) is int else -one


NUMBERS = (int, UInt, float)
BINARY: dict[str, tuple[Callable[[Value, Value], Value], tuple[type, ...]]] = {
    "_+_": (add, (bytes, float, Duration, int, list, str, Timestamp, UInt)),
    "_-_": (subtract, (float, Duration, int, Timestamp, UInt)),
    "_*_": (multiply, NUMBERS),
    "_/_": (divide, NUMBERS),
    "_%_": (modulo, (int, UInt)),
}
"""Operators with two operands.

Keys: the names of the operators. Values: the function that evaluates the operator, and the Python
classes that the left operand can have.
"""
NEGATABLE = (bool, float, Duration, int)
"""Classes of values that can be negated."""
