"""Keeping what was made of the elements of a sequence when a few of them change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def reuse_unchanged(
    before: Sequence[T], values: Sequence[U], now: Sequence[T], make: Callable[[T], U]
) -> list[U]:
    """A value for each element of ``now``: the one that the very same object had among
    ``values``, which belong to ``before``, or a new one.

    Fast when little has changed: what both begin and end with is found and copied without
    a loop in Python.
    """
    head, tail = common_ends(before, now)
    old, new = slice(head, len(before) - tail), slice(head, len(now) - tail)
    known = dict(zip(map(id, before[old]), values[old], strict=True))
    between = [known[id(each)] if id(each) in known else make(each) for each in now[new]]
    return [*values[:head], *between, *values[len(before) - tail :]]


def common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many objects both begin with, and how many of the rest both end with."""
    shorter = min(len(one), len(other))
    head = _common(one, other, shorter)
    return head, _common(one[::-1], other[::-1], shorter - head)


def _common(one: Sequence[object], other: Sequence[object], limit: int) -> int:
    # The two may be of different lengths: map ends with the shorter one.
    differences = compress(count(), map(is_not, one, other))
    return min(next(differences, limit), limit)
