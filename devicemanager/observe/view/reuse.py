"""Reuse objects of the previous view where nothing has changed."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["reuse_equal", "reuse_unchanged"]

T = TypeVar("T")


def reuse_equal(before: T | None, after: T) -> T:
    """Return ``before`` if it is equal to ``after``, else ``after``."""
    return before if before is not None and before == after else after


def reuse_unchanged(before: tuple[T, ...], after: Iterable[T]) -> tuple[T, ...]:
    """Return ``before`` if it consists of the same objects as ``after``, else ``after`` as a
    tuple."""
    new = tuple(after)
    # Compared by identity, because comparing values would cost as much as building them.
    same = len(new) == len(before) and all(map(operator.is_, new, before))
    return before if same else new
