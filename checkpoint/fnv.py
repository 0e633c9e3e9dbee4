"""32-bit FNV-1a from any state, at the speed of the C library."""

# Theory of operation. The C library hashes only whole texts from the fixed initial state. A
# document that changes piece by piece needs more: to continue from a known state (``extend``),
# and to apply a text to a new state without hashing it again (``Effect``).
#
# One step is ``h = (h ^ byte) * PRIME mod 2**32``. The xor changes only the low byte of h. After
# a text of n bytes the state is therefore ``h * PRIME**n + c mod 2**32``, where c depends on the
# text and on the low byte of h, but on no other bit. Two things follow:
#
# * ``extend``: to continue from state h, hash a *seed* of one or two bytes that leads to the low
#   byte of h, followed by the text. The result differs from the wanted one by a multiple of
#   ``PRIME**n``, which is known.
# * ``Effect``: the effect of a text on all states is described by at most 256 constants c. For
#   an ASCII text 128 are enough: no xor changes the top bit of h's low byte, and no lower bit
#   depends on it.

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from fnv_hash_fast import fnv1a_32 as _library

OFFSET_BASIS: Final = 0x811C9DC5
"""The state before the first byte."""
PRIME: Final = 0x01000193
_SIZE: Final = 1 << 32


def _seeds() -> dict[int, tuple[bytes, int]]:
    # 255 low bytes have a seed of one byte. The last one would need a zero byte, which
    # releases 1.x of fnv-hash-fast treat as the end of the text, so its seed has two bytes.
    seeds: dict[int, tuple[bytes, int]] = {}
    for length in (1, 2):
        for letters in product(range(1, 256), repeat=length):
            state = _library(seed := bytes(letters))
            seeds.setdefault(state & 0xFF, (seed, state))
            if len(seeds) == 256:
                return seeds
    raise AssertionError("the low byte of PRIME is odd, so every low byte is reached")


_SEEDS: Final = _seeds()
"""Low byte to a text without zero bytes that leads to it, and the state after that text."""


def fnv1a_32(text: bytes) -> int:
    """Return the hash of ``text``."""
    return extend(OFFSET_BASIS, text)


def extend(state: int, text: bytes) -> int:
    """Return the state after ``text``, starting from ``state``."""
    # Split at zero bytes, which releases 1.x of fnv-hash-fast treat as the end of the text.
    first, *rest = text.split(b"\0")
    state = _extend(state, first)
    for part in rest:
        state = _extend(state * PRIME % _SIZE, part)
    return state


def _extend(state: int, text: bytes) -> int:
    """Like :func:`extend`, for a text without zero bytes."""
    seed, seeded = _SEEDS[state & 0xFF]
    shift = (state - seeded) * _power(len(text))
    return (_library(seed + text) + shift) % _SIZE


@lru_cache(maxsize=1024)
def _power(length: int) -> int:
    """Return the factor by which ``length`` steps multiply the state."""
    # Cached: entries of similar pods have equal lengths, and computing a power takes as long
    # as everything else in a step.
    return pow(PRIME, length, _SIZE)


def step(state: int, byte: int) -> int:
    """Return the state after one byte, starting from ``state``."""
    return (state ^ byte) * PRIME % _SIZE


class Effect:
    """The effect of a text on any state; hashes the text at most once per low byte."""

    __slots__ = ("_constants", "_mask", "_parts", "_power")

    def __init__(self, *parts: bytes) -> None:
        """The text is the concatenation of the parts; they are joined only for hashing."""
        self._parts: Sequence[bytes] = parts
        self._power = _power(sum(map(len, parts)))
        self._mask = 0x7F if all(map(bytes.isascii, parts)) else 0xFF
        self._constants = array("q", (-1,)) * (self._mask + 1)

    def on(self, state: int) -> int:
        """Return the state after the text, starting from ``state``."""
        low = state & self._mask
        constant = self._constants[low]
        if constant < 0:
            # Hash from the state that has only the low bits; subtracting their share leaves
            # the constant for all states with these low bits.
            after = extend(low, b"".join(self._parts))
            constant = self._constants[low] = (after - low * self._power) % _SIZE
        return (state * self._power + constant) % _SIZE
