"""FNV-1a with 32 bits, from any state, at the speed of the C library.

One step is ``h = (h ^ byte) * PRIME mod 2**32``. The xor touches only the low byte of h, so
after a text of n bytes the state is ``h * PRIME**n + c mod 2**32``, where c depends on the
text and on the low byte of h alone. Two things follow, and both are used here: a hash of
(one byte + text) tells what the text does to *any* state with the same low byte, and what a
text does can be remembered in at most 256 numbers. In 128, if it is ASCII: no xor changes
the low byte's top bit then, and no lower bit ever hears of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from fnv_hash_fast import fnv1a_32 as _library

__all__ = ["OFFSET_BASIS", "PRIME", "Effect", "extend", "fnv1a_32", "step"]

OFFSET_BASIS: Final = 0x811C9DC5
"""The state before the first byte."""
PRIME: Final = 0x01000193
_SIZE: Final = 1 << 32


def _seeds() -> dict[int, tuple[bytes, int]]:
    # 255 of the low bytes have a seed of one byte. The last would need a zero byte, and
    # releases 1.x of fnv-hash-fast take that for the end of the text: it gets two.
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
    """The hash of ``text``."""
    return extend(OFFSET_BASIS, text)


def extend(state: int, text: bytes) -> int:
    """The state after ``text``, starting from ``state``."""
    first, *rest = text.split(b"\0")
    state = _extend(state, first)
    for part in rest:
        state = _extend(state * PRIME % _SIZE, part)
    return state


def _extend(state: int, text: bytes) -> int:
    """As :func:`extend`, for a text without zero bytes."""
    seed, seeded = _SEEDS[state & 0xFF]
    shift = (state - seeded) * _power(len(text))
    return (_library(seed + text) + shift) % _SIZE


@lru_cache(maxsize=1024)
def _power(length: int) -> int:
    """What ``length`` steps multiply the state by. Remembered: entries of pods that ask for the
    same have the same length, and a power takes as long as all the rest of a step here."""
    return pow(PRIME, length, _SIZE)


def step(state: int, byte: int) -> int:
    """The state after one byte, starting from ``state``."""
    return (state ^ byte) * PRIME % _SIZE


class Effect:
    """What one text does to any state; hashes the text at most once per low byte."""

    __slots__ = ("_constants", "_mask", "_parts", "_power")

    def __init__(self, *parts: bytes) -> None:
        """The text is the parts one after another; they are put together only to be hashed."""
        self._parts: Sequence[bytes] = parts
        self._power = _power(sum(map(len, parts)))
        self._mask = 0x7F if all(map(bytes.isascii, parts)) else 0xFF
        self._constants = array("q", (-1,)) * (self._mask + 1)

    def on(self, state: int) -> int:
        """The state after the text, starting from ``state``."""
        low = state & self._mask
        constant = self._constants[low]
        if constant < 0:
            # From the state that is the low bits alone.
            after = extend(low, b"".join(self._parts))
            constant = self._constants[low] = (after - low * self._power) % _SIZE
        return (state * self._power + constant) % _SIZE
