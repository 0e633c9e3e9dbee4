"""Sets of small numbers, held as Python integers.

Bit ``i`` of the integer stands for number ``i``. Union, difference and counting are
then ``|``, ``& ~`` and ``int.bit_count``, at C speed for any number of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TypeVar

T = TypeVar("T")

# Maps the digits of a binary text to selectors for itertools.compress.
_SELECTORS = bytes.maketrans(b"01", b"\x00\x01")


def of(numbers: Iterable[int]) -> int:
    """The set of the given numbers."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def union(sets: Iterable[int]) -> int:
    """What is in any of the sets."""
    bits = 0
    for each in sets:
        bits |= each
    return bits


def from_flags(flags: Sequence[bool]) -> int:
    """The set of positions at which ``flags`` is true. Linear, for long sequences."""
    if not flags:
        return 0
    return int(bytes(49 if flag else 48 for flag in reversed(flags)), 2)


def numbers(bits: int) -> Iterator[int]:
    """The members, ascending. For small sets; ``select`` is faster for large ones."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def select(items: Sequence[T], bits: int) -> tuple[T, ...]:
    """Those of ``items`` whose position is in the set, in order."""
    if bits.bit_count() <= 16:
        return tuple(items[number] for number in numbers(bits))
    digits = f"{bits:b}".encode()[::-1]
    return tuple(compress(items, digits.translate(_SELECTORS)))


def lowest(bits: int, count: int) -> int:
    """The ``count`` lowest members (all, if there are fewer)."""
    if count >= bits.bit_count():
        return bits
    rest = bits
    for _ in range(count):
        rest &= rest - 1
    return bits ^ rest
