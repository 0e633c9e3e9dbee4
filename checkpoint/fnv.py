"""FNV-1a with 32 bits, from any state, at the speed of the C library.

One step is ``h = (h ^ byte) * PRIME mod 2**32``. The xor touches only the low byte of h, so
after a text of n bytes the state is ``h * PRIME**n + c mod 2**32``, where c depends on the
text and on the low byte of h alone. Two things follow, and both are used here: a hash of
(one byte + text) tells what the text does to *any* state with the same low byte, and what a
text does can be remembered in at most 256 numbers.
"""

from __future__ import annotations

from typing import Final

from fnv_hash_fast import fnv1a_32

__all__ = ["OFFSET_BASIS", "PRIME", "Effect", "extend", "fnv1a_32"]

OFFSET_BASIS: Final = 0x811C9DC5
"""The state before the first byte."""
PRIME: Final = 0x01000193
_SIZE: Final = 1 << 32

# The low byte of PRIME is odd, so the 256 one-byte texts lead to 256 different low bytes.
_STATES: Final = {state & 0xFF: state for state in (fnv1a_32(bytes((b,))) for b in range(256))}
_BYTES: Final = {fnv1a_32(bytes((b,))) & 0xFF: bytes((b,)) for b in range(256)}


def extend(state: int, text: bytes) -> int:
    """The state after ``text``, starting from ``state``."""
    low = state & 0xFF
    shift = (state - _STATES[low]) * pow(PRIME, len(text), _SIZE)
    return (fnv1a_32(_BYTES[low] + text) + shift) % _SIZE


class Effect:
    """What one text does to any state; hashes the text at most once per low byte."""

    __slots__ = ("_constants", "_power", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._power = pow(PRIME, len(text), _SIZE)
        self._constants: dict[int, int] = {}

    def on(self, state: int) -> int:
        """The state after the text, starting from ``state``."""
        low = state & 0xFF
        constant = self._constants.get(low)
        if constant is None:
            constant = fnv1a_32(_BYTES[low] + self._text) - _STATES[low] * self._power
            self._constants[low] = constant
        return (state * self._power + constant) % _SIZE
