"""Keeping what was made of the elements of a sequence when a few of them change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not, ne
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Reuse(Generic[T]):
    """Of two sequences of objects, what is in both. Made once, for all that was made of the
    elements of the one before.

    Fast when little has changed: what both begin and end with is found and copied without
    a loop in Python.
    """

    def __init__(self, before: Sequence[T], now: Sequence[T]) -> None:
        head, tail = common_ends(before, now)
        self._head, self._end = head, len(before) - tail
        self._before = before[head : self._end]
        self._now = now[head : len(now) - tail]

    def values(self, values: Sequence[U], make: Callable[[T], U]) -> list[U]:
        """A value for each element of the present sequence: the one that the very same object
        had among ``values``, which belong to the sequence before, or a new one."""
        old = values[self._head : self._end]
        known = dict(zip(map(id, self._before), old, strict=True))
        between = [known[id(each)] if id(each) in known else make(each) for each in self._now]
        return [*values[: self._head], *between, *values[self._end :]]


def common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many objects both begin with, and how many of the rest both end with."""
    shorter = min(len(one), len(other))
    head = _common(one, other, shorter)
    return head, _common(one[::-1], other[::-1], shorter - head)


def unequal(one: Sequence[int | None], other: Sequence[int | None]) -> list[int]:
    """The places at which two sequences of one length differ."""
    start, end = _equal(one, other), len(one)
    if start == end:
        return []
    end -= _equal(one[:start:-1], other[:start:-1])
    return list(compress(count(start), map(ne, one[start:end], other[start:end])))


def _equal(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    """How many elements both begin with, found by comparing whole slices."""
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
    # The two may be of different lengths: map ends with the shorter one.
    differences = compress(count(), map(is_not, one, other))
    return min(next(differences, limit), limit)
