"""Exact resource quantities such as ``500m``, ``1Gi`` or ``1e3``.

An amount is a whole number of nano-units, the smallest step of a quantity, so comparisons are
exact. Grammar, rounding and canonical text are those of k8s.io/apimachinery/pkg/api/resource
(``quantity.go``, ``suffix.go``; v1.32). That package limits amounts to an upper bound. Here, only
the argument ``largest`` of ``parse_quantity`` sets an upper bound.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import attrs

NANOS = 10**9
"""Nano-units in one unit."""
NANOS_PER_MILLI = 10**6
LARGEST = (2**63 - 1) * NANOS
"""``maxAllowed`` of quantity.go, in nano-units: the kubelet reduces larger amounts to this
amount."""

BAD_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
BAD_NUMBER = "unable to parse numeric part of quantity"
BAD_SUFFIX = "unable to parse quantity's suffix"

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

# ``\Z``, because ``$`` would also match before a newline at the end.
_FORMAT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,18})\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LONGEST = 300
# A text has at most 300 digits. With an exponent beyond this limit, the absolute value of an amount
# other than 0 is above ``LARGEST`` or is rounded to one nano-unit.
_FARTHEST = 2 * _LONGEST


@attrs.frozen(order=True, hash=True)
class Quantity:
    """A resource quantity: an amount in nano-units, and the format of its text.

    Equality, order and hash depend only on the amount.
    """

    nanos: int
    format: Format = attrs.field(default="DecimalSI", eq=False, order=False)

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse a quantity such as ``500m``, rounded away from zero to nano-units.

        Raises ValueError with the message of the Go function ``ParseQuantity``.
        """
        return cls(*_parsed(text))

    def __str__(self) -> str:
        """Return the canonical text: a number without a fraction, with the largest possible
        suffix."""
        return canonical(self.nanos, self.format)


def parse_quantity(text: str, largest: int | None = None) -> int:
    """Parse a quantity such as ``500m`` to nano-units, rounded away from zero.

    ``largest`` limits the absolute value, also in nano-units. Raises ValueError with the message
    of the Go function ``ParseQuantity``.
    """
    nanos, _ = _parsed(text)
    return nanos if largest is None else max(-largest, min(nanos, largest))


# Cached: the pods of a node repeat few quantities.
@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[int, Format]:
    match = _FORMAT.match(text)
    if not text or match is None or len(text) > _LONGEST:
        raise ValueError(BAD_FORMAT)
    sign, whole, fraction, suffix = match.groups(default="")
    if not whole + fraction:
        raise ValueError(BAD_NUMBER)
    amount, format_ = _scaled(int(whole + fraction), len(fraction), suffix)
    # The amount was rounded up. With the sign applied afterwards, it is rounded away from zero.
    return (-amount if sign == "-" else amount), format_


def _scaled(digits: int, decimals: int, suffix: str) -> tuple[int, Format]:
    """Return a value in nano-units, rounded up, and the format of its suffix.

    The value is ``digits`` with a decimal point before the last ``decimals`` digits.
    """
    if suffix in _BINARY:
        return _ceil(digits * NANOS << _BINARY[suffix], 10**decimals), "BinarySI"
    exponent, format_ = _exponent(suffix)
    power = exponent + 9 - decimals
    if power >= 0:
        return digits * 10**power, format_
    return _ceil(digits, 10 ** (-power)), format_


def _exponent(suffix: str) -> tuple[int, Format]:
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return exponent, "DecimalSI"
    match = _EXPONENT.match(suffix)
    if match is None:
        raise ValueError(BAD_SUFFIX)
    # The exponent is limited, because the number 1e999999999999 would fill the memory.
    return max(-_FARTHEST, min(int(match[1]), _FARTHEST)), "DecimalExponent"


def canonical(nanos: int, format_: Format = "DecimalSI") -> str:
    """Return the canonical text of an amount of nano-units (``CanonicalizeBytes``, v1.32)."""
    if nanos == 0:
        return "0"
    if format_ == "BinarySI" and abs(nanos) >= 1024 * NANOS and nanos % NANOS == 0:
        return _binary(nanos // NANOS)
    # Small or fractional binary amounts are written as decimal ones: "0.5Ki" has no binary
    # form without a fraction.
    number, exponent = _without_zeros(nanos)
    if format_ == "DecimalExponent":
        return f"{number}e{exponent}" if exponent else str(number)
    # The largest decimal suffix is E (10**18). Larger exponents become zeros of the number.
    beyond = max(exponent - 18, 0)
    return f"{number * 10**beyond}{_DECIMAL_SUFFIX[exponent - beyond]}"


def _without_zeros(nanos: int) -> tuple[int, int]:
    """Split an amount into mantissa and exponent; the exponent is the largest possible multiple
    of 3."""
    exponent = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    return nanos, exponent


def _binary(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _ceil(numerator: int, denominator: int) -> int:
    # Integers stay exact. ``math.ceil`` of a quotient would be wrong above 2**53.
    return -(-numerator // denominator)


def _away_from_zero(nanos: int, step: int) -> int:
    return _ceil(nanos, step) if nanos >= 0 else -_ceil(-nanos, step)


def whole_units(nanos: int) -> int:
    """Convert nano-units to whole units, rounded away from zero (``Quantity.Value``, v1.32)."""
    return _away_from_zero(nanos, NANOS)


def milli_units(nanos: int) -> int:
    """Convert nano-units to milli-units, rounded away from zero (``Quantity.MilliValue``,
    v1.32)."""
    return _away_from_zero(nanos, NANOS_PER_MILLI)


def round_up(nanos: int, block: int) -> int:
    """Round an amount of nano-units up to a multiple of ``block`` nano-units (> 0)."""
    return _ceil(nanos, block) * block


def round_down(nanos: int, block: int) -> int:
    """Round an amount of nano-units down to a multiple of ``block`` nano-units (> 0)."""
    return nanos // block * block
