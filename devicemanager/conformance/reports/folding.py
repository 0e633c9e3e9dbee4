"""Shorten a text in which lines repeat: replace the repetitions by their number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["fold"]

_T = TypeVar("_T")
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?", re.IGNORECASE)
_LONGEST_BLOCK = 8
"""Maximum number of lines in a block that repeats, such as the lines of one failed attempt."""
_LEAST_REPEATS = 2
"""Number of repetitions from which a line or block is folded."""


def fold(lines: Sequence[_T], text: Callable[[_T], str] = str) -> Iterator[_T | str]:
    """Iterate over lines. For a line or block of lines that repeats, yield it once, and then one
    text with the number of repetitions.

    Lines that differ only in numbers count as equal.
    """
    # Lines of a retry loop often differ only in a counter, a time or an address.
    keys = [_NUMBER.sub("#", text(line)) for line in lines]
    place = 0
    while place < len(lines):
        size, count = _longest_repetition(keys, place)
        yield from lines[place : place + size]
        if count and size == 1:
            yield f"({count} more like this)"
        elif count:
            yield f"({count} more times the last {size} lines)"
        place += size * (count + 1)


def _longest_repetition(keys: Sequence[str], place: int) -> tuple[int, int]:
    """Find the block at ``place`` whose repetitions have the most lines. Return its size and the
    number of its repetitions, or (1, 0) if no block repeats often enough."""
    best, most = (1, 0), 0
    for size in range(1, _LONGEST_BLOCK + 1):
        block, count = keys[place : place + size], 0
        while keys[place + size * (count + 1) : place + size * (count + 2)] == block:
            count += 1
        if count >= _LEAST_REPEATS and size * count > most:
            best, most = (size, count), size * count
    return best
