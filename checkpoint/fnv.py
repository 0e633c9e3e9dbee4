"""Compute the 32-bit FNV-1a hash with a C library, starting from any hash state.

A hash state is the hash of all bytes so far. The hash can be continued from it with more bytes.
"""

# Theory of operation. The C library (fnv-hash-fast) hashes only whole texts, starting from FNV's
# fixed initial state. A document that changes piece by piece needs two more operations: continue
# from a known state (``extend``), and apply a text to a new state without hashing the text again
# (``Effect``).
#
# One step for a byte is ``h = (h ^ byte) * PRIME mod 2**32``. The xor changes only the low byte of
# h. After a text of n bytes the state is therefore ``h * PRIME**n + c mod 2**32``, where c depends
# on the text and on the low byte of h, but on no other bit. Both operations use this:
#
# * ``extend``: to continue from state h, hash a *seed* of two bytes that leads to the low byte
#   of h, followed by the text. The result differs from the wanted state by a known multiple of
#   ``PRIME**n``.
# * ``Effect``: at most 256 constants c describe the effect of a text on all states. For an ASCII
#   text, 128 constants are enough: no xor changes the top bit of h's low byte, and no lower bit
#   depends on that bit.

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from fnv_hash_fast import fnv1a_32 as _library

OFFSET_BASIS: Final = 0x811C9DC5
"""Hash state before the first byte of a text."""
PRIME: Final = 0x01000193
_SIZE: Final = 1 << 32


def _seeds() -> dict[int, tuple[bytes, int]]:
    # One byte is not enough: the seed of one low byte would be a zero byte, which releases 1.x of
    # fnv-hash-fast treat as the end of the text.
    seeds: dict[int, tuple[bytes, int]] = {}
    for letters in product(range(1, 256), repeat=2):
        state = _library(seed := bytes(letters))
        seeds.setdefault(state & 0xFF, (seed, state))
        if len(seeds) == 256:
            return seeds
    raise AssertionError("the low byte of PRIME is odd, so every low byte is reached")


_SEEDS: Final = _seeds()
"""For each low byte: a text without zero bytes whose hash has this low byte, and the hash."""


def fnv1a_32(text: bytes) -> int:
    """Return the 32-bit FNV-1a hash of the bytes ``text``."""
    return extend(OFFSET_BASIS, text)


def extend(state: int, text: bytes) -> int:
    """Return the hash state after ``text``, starting from the hash state ``state``."""
    # Split the text at zero bytes: releases 1.x of fnv-hash-fast treat them as its end.
    first, *rest = text.split(b"\0")
    state = _extend(state, first)
    for part in rest:
        state = _extend(state * PRIME % _SIZE, part)
    return state


def _extend(state: int, text: bytes) -> int:
    """Return the hash state after ``text``, which has no zero bytes, starting from ``state``."""
    seed, seeded = _SEEDS[state & 0xFF]
    shift = (state - seeded) * _power(len(text))
    return (_library(seed + text) + shift) % _SIZE


@lru_cache(maxsize=1024)
def _power(length: int) -> int:
    """Return ``PRIME ** length`` modulo 2**32. ``length`` steps with the same bytes multiply the
    difference of two states by this factor, if the states have the same low byte."""
    # Cached: entries of similar pods have equal lengths, and computing the power takes as long as
    # the rest of ``extend``.
    return pow(PRIME, length, _SIZE)


def step(state: int, byte: int) -> int:
    """Return the hash state after one byte, starting from the hash state ``state``."""
    return (state ^ byte) * PRIME % _SIZE


class Effect:
    """Effect of one text on hash states: :meth:`on` returns the hash state after the text. The text
    is hashed at most 256 times, however often the method is called."""

    __slots__ = ("_constants", "_mask", "_parts", "_power")

    def __init__(self, *parts: bytes) -> None:
        """``parts`` are the pieces of the text. They are joined only when the text is hashed."""
        self._parts: Sequence[bytes] = parts
        self._power = _power(sum(map(len, parts)))
        self._mask = 0x7F if all(map(bytes.isascii, parts)) else 0xFF
        self._constants = array("q", (-1,)) * (self._mask + 1)

    def on(self, state: int) -> int:
        """Return the hash state after the text, starting from the hash state ``state``."""
        low = state & self._mask
        constant = self._constants[low]
        if constant < 0:
            # Hash from a state that has only the low bits. Subtracting the contribution of these
            # bits leaves the constant, which is the same for all states with these low bits.
            after = extend(low, b"".join(self._parts))
            constant = self._constants[low] = (after - low * self._power) % _SIZE
        return (state * self._power + constant) % _SIZE
