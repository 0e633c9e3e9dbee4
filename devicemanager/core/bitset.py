"""Sets of small numbers, held as Python integers.

Bit ``i`` of the integer stands for number ``i``. Union, difference and counting are
then ``|``, ``& ~`` and ``int.bit_count``, at C speed for any number of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count
from typing import TypeVar

T = TypeVar("T")

# Maps the digits of a binary text to selectors for itertools.compress.
_SELECTORS = bytes.maketrans(b"01", b"\x00\x01")

_FEW = 16
"""Up to this many members are handled one by one. Each step costs an integer of the set's
length, so for many that would be quadratic."""


def of(numbers: Iterable[int]) -> int:
    """The set of the given numbers, none negative, in any order."""
    members = list(numbers)
    if len(members) <= _FEW:
        bits = 0
        for number in members:
            bits |= 1 << number
        return bits
    octets = bytearray(max(members) // 8 + 1)
    for number in members:
        octets[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(octets, "little")


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


def flags(bits: int) -> bytes:
    """1 for each member and 0 for each other number, up to the largest member."""
    return f"{bits:b}".encode()[::-1].translate(_SELECTORS)


def numbers(bits: int) -> Iterator[int]:
    """The members, ascending."""
    if bits.bit_count() > _FEW:
        yield from compress(count(), flags(bits))
        return
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def select(items: Sequence[T], bits: int) -> tuple[T, ...]:
    """Those of ``items`` whose position is in the set, in order."""
    if bits.bit_count() <= _FEW:
        return tuple([items[number] for number in numbers(bits)])
    return tuple(compress(items, flags(bits)))


def lowest(bits: int, wanted: int) -> int:
    """The ``wanted`` lowest members (all, if there are fewer)."""
    if wanted >= bits.bit_count():
        return bits
    if wanted > _FEW:
        return bits & _lower_part(bits, wanted)
    rest = bits
    for _ in range(wanted):
        rest &= rest - 1
    return bits ^ rest


def _lower_part(bits: int, wanted: int) -> int:
    """All numbers up to the ``wanted``-th member, found by halving."""
    low, high = 0, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < wanted:
            low = middle + 1
        else:
            high = middle
    return (1 << low) - 1
