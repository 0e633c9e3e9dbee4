"""Resource quantities such as ``500m``, ``1Gi`` or ``1e3``, exactly.

The kubernetes package has a parser, but importing it costs a quarter of a second and it
takes what the API server refuses. Values are whole numbers of nano-units: the finest
step that a quantity keeps, so nothing is lost in a comparison.
"""

from __future__ import annotations

import re
from functools import lru_cache

NANOS = 10**9
"""Nano-units in one unit."""
NANOS_PER_MILLI = 10**6
LARGEST = (2**63 - 1) * NANOS
"""Larger amounts count as this one (``maxAllowed``, pkg/api/resource/quantity.go)."""

_BAD_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BAD_NUMBER = "unable to parse numeric part of quantity"
_BAD_SUFFIX = "unable to parse quantity's suffix"

_FORMAT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,18})\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LONGEST = 300
_FARTHEST = 2 * _LONGEST
_POWERS: list[int] = [10**power for power in range(4 * _LONGEST)]


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> int:
    """The amount in nano-units, rounded away from zero; ValueError with Go's text.

    ``ParseQuantity`` of k8s.io/apimachinery/pkg/api/resource (v1.32).
    """
    match = _FORMAT.match(text)
    if not text or match is None or len(text) > _LONGEST:
        raise ValueError(_BAD_FORMAT)
    sign, whole, fraction, suffix = match.groups(default="")
    if not whole + fraction:
        raise ValueError(_BAD_NUMBER)
    amount = _scaled(int(whole + fraction), len(fraction), suffix)
    return -amount if sign == "-" else amount


def _scaled(digits: int, decimals: int, suffix: str) -> int:
    """``digits`` / 10^``decimals`` times suffix, in nano-units, rounded up and capped."""
    if suffix in _BINARY:
        return min(_ceil(digits * NANOS << _BINARY[suffix], _POWERS[decimals]), LARGEST)
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        match = _EXPONENT.match(suffix)
        if match is None:
            raise ValueError(_BAD_SUFFIX)
        # Beyond this the result is the cap or one nano-unit anyway.
        exponent = max(-_FARTHEST, min(int(match[1]), _FARTHEST))
    power = exponent + 9 - decimals
    if power >= 0:
        return min(digits * _POWERS[power], LARGEST)
    return min(_ceil(digits, _POWERS[-power]), LARGEST)


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def whole_units(nanos: int) -> int:
    """Whole units, rounded up, as ``Quantity.Value`` has it."""
    return _ceil(nanos, NANOS)


def milli_units(nanos: int) -> int:
    """Thousandths, rounded up, as ``Quantity.MilliValue`` has it."""
    return _ceil(nanos, NANOS_PER_MILLI)
