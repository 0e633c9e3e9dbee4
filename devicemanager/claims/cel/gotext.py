"""Format values as Go's packages fmt and strconv do."""

from __future__ import annotations

import math
from decimal import Decimal

_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


def quote(text: str) -> str:
    """Return a text in double quotes, with Go's escapes (``%q``)."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def double(number: float) -> str:
    """Return the shortest text of a double (``%g``)."""
    if not math.isfinite(number):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(number, "NaN")
    digits, power = _shortest(number)
    if -4 <= power < 6:
        return plain_double(number)
    sign = "-" if number < 0 else ""
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def plain_double(number: float) -> str:
    """Return the shortest text of a finite double, without exponent (``%f``, precision -1)."""
    digits, power = _shortest(number)
    sign = "-" if math.copysign(1, number) < 0 else ""
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, fraction = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _shortest(number: float) -> tuple[str, int]:
    """Return the fewest digits that identify a double, and the decimal exponent of the first
    digit."""
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    return "".join(map(str, digits)), int(exponent) + len(digits) - 1
