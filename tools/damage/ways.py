"""Damage a file in one of several ways, selected by a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

_NOISE: Final = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\0", b"\xff", b" ", b"7"),
    b'{"PodUID":',
)
_SECTOR: Final = 64
"""Number of bytes that are lost together. It is smaller than a disk sector, because the files are
small."""


def _cut_off(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _bits(data: bytes, random: Random) -> bytes:
    altered = bytearray(data)
    # Mostly change one bit: such damage is the hardest to notice.
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        altered[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(altered)


def _digit(data: bytes, random: Random) -> bytes:
    """Change a digit, like a manual edit."""
    places = [place for place, byte in enumerate(data) if 0x30 <= byte < 0x3A]
    altered = bytearray(data)
    altered[random.choice(places)] = random.choice(b"0123456789")
    return bytes(altered)


def _noise(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(_NOISE) * random.randint(1, 4) + data[place:]


def _hole(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    return data[:start] + data[end:]


def _zeros(data: bytes, random: Random) -> bytes:
    """Fill a block with zeros, as if it had not been written to disk."""
    start = random.randrange(len(data)) // _SECTOR * _SECTOR
    end = min(start + _SECTOR * random.randint(1, 4), len(data))
    return data[:start] + b"\0" * (end - start) + data[end:]


def _doubled(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    return data[:end] + data[start:end] + data[end:]


def _swapped(data: bytes, random: Random) -> bytes:
    one, two, three = sorted(random.randrange(len(data) + 1) for _ in range(3))
    return data[:one] + data[two:three] + data[one:two] + data[three:]


def _older_end(data: bytes, random: Random) -> bytes:
    """Append the end of an older file, as if the file had been overwritten in place."""
    return data[: random.randrange(len(data))] + data[random.randrange(len(data)) :]


def _twice(data: bytes, random: Random) -> bytes:
    return data + data[random.randrange(len(data)) :]


def _piece(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data))
    return start, min(len(data), start + random.randint(1, 200))


WAYS: Final[dict[str, Callable[[bytes, Random], bytes]]] = {
    "cut off": _cut_off,
    "bits": _bits,
    "digit": _digit,
    "noise": _noise,
    "hole": _hole,
    "zeros": _zeros,
    "doubled": _doubled,
    "swapped": _swapped,
    "older end": _older_end,
    "twice": _twice,
}


def damaged(data: bytes, seed: int) -> tuple[str, bytes]:
    """Damage the data in the way that the seed selects. Return the name of the way and the damaged
    data."""
    random = Random(seed)
    way = random.choice(list(WAYS))
    return way, WAYS[way](data, random)
