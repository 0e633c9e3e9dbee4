"""Sets of small numbers, represented as Python integers.

Bit ``i`` of the integer stands for number ``i``. Union is ``|``, difference is ``& ~``, and the
size is ``int.bit_count``. These operations are fast even for sets of thousands of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count
from typing import TypeVar

T = TypeVar("T")

# Translates the digits of a binary text to selectors for itertools.compress.
_SELECTORS = bytes.maketrans(b"01", b"\x00\x01")

_FEW = 16
"""Largest number of members that are handled one by one. Each step creates an integer as long as
the set, so the cost would be quadratic for large sets."""


def of(numbers: Iterable[int]) -> int:
    """Return the set of the given non-negative numbers."""
    members = list(numbers)
    if len(members) <= _FEW:
        bits = 0
        for number in members:
            bits |= 1 << number
        return bits
    # Set in place: ``1 << number`` would create an integer as long as the set for each member.
    octets = bytearray(max(members) // 8 + 1)
    for number in members:
        octets[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(octets, "little")


def union(sets: Iterable[int]) -> int:
    """Return the union of the sets."""
    bits = 0
    for each in sets:
        bits |= each
    return bits


def from_flags(flags: Sequence[bool]) -> int:
    """Return the set of positions at which ``flags`` is true; takes linear time."""
    if not flags:
        return 0
    # int() parses the digits 0 and 1 at C speed; shifting bit by bit would be quadratic.
    return int(bytes(49 if flag else 48 for flag in reversed(flags)), 2)


def flags(bits: int) -> bytes:
    """Return one byte for each number from 0 to the largest member of the set: 1 for a member, 0
    for any other number."""
    return f"{bits:b}".encode()[::-1].translate(_SELECTORS)


def numbers(bits: int) -> Iterator[int]:
    """Iterate over the members of a set in ascending order."""
    if bits.bit_count() > _FEW:
        yield from compress(count(), flags(bits))
        return
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def select(items: Sequence[T], bits: int) -> tuple[T, ...]:
    """Return the items whose position is in the set ``bits``, in order."""
    if bits.bit_count() <= _FEW:
        return tuple([items[number] for number in numbers(bits)])
    return tuple(compress(items, flags(bits)))


def lowest(bits: int, wanted: int) -> int:
    """Return the set of the ``wanted`` lowest members of ``bits``, or ``bits`` if it has
    fewer."""
    if wanted >= bits.bit_count():
        return bits
    if wanted > _FEW:
        return bits & _lower_part(bits, wanted)
    higher = bits
    for _ in range(wanted):
        higher &= higher - 1
    return bits ^ higher


def _lower_part(bits: int, wanted: int) -> int:
    """Return the set of all numbers up to the ``wanted``-th member of ``bits``, by bisection."""
    low, high = 0, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < wanted:
            low = middle + 1
        else:
            high = middle
    return (1 << low) - 1
