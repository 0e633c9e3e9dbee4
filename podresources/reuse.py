"""Reuse values that were computed from the elements of a sequence, if few elements have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not, ne
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Reuse(Generic[T]):
    """Comparison of an old and a new sequence. It reuses values that were computed from the old
    sequence.

    :meth:`values` can be called for several lists of values. Each list has one value per element of
    the old sequence. The comparison is fast if few elements differ: common leading and trailing
    elements are found and copied without a loop in Python.
    """

    def __init__(self, before: Sequence[T], now: Sequence[T]) -> None:
        head, tail = common_ends(before, now)
        self._head, self._end = head, len(before) - tail
        self._before = before[head : self._end]
        self._now = now[head : len(now) - tail]

    def values(self, values: Sequence[U], make: Callable[[T], U]) -> list[U]:
        """Return the values for the elements of the new sequence.

        ``values`` are the values for the elements of the old sequence. An element that is the same
        object in both sequences keeps its value. ``make`` computes the value of any other element.
        """
        old = values[self._head : self._end]
        known = dict(zip(map(id, self._before), old, strict=True))
        between = [known[id(each)] if id(each) in known else make(each) for each in self._now]
        return [*values[: self._head], *between, *values[self._end :]]


def common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """Return the number of leading objects, and the number of trailing objects, that are the same
    in both sequences. No object is counted in both numbers."""
    shorter = min(len(one), len(other))
    head = _common(one, other, shorter)
    return head, _common(one[::-1], other[::-1], shorter - head)


def unequal(one: Sequence[int | None], other: Sequence[int | None]) -> list[int]:
    """Return the positions at which two sequences of equal length differ."""
    start, end = _equal(one, other), len(one)
    if start == end:
        return []
    end -= _equal(one[:start:-1], other[:start:-1])
    return list(compress(count(start), map(ne, one[start:end], other[start:end])))


def _equal(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    """Return the number of equal leading elements of two sequences of equal length."""
    low, high = 0, len(one)
    if one == other:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common(one: Sequence[object], other: Sequence[object], limit: int) -> int:
    # The sequences may have different lengths: map stops at the end of the shorter one.
    differences = compress(count(), map(is_not, one, other))
    return min(next(differences, limit), limit)
