"""Values of the picture before, kept as the same objects where nothing has changed."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["kept", "reuse_unchanged"]

T = TypeVar("T")


def kept(before: T | None, after: T) -> T:
    """``before`` if it is equal, else ``after``."""
    return before if before is not None and before == after else after


def reuse_unchanged(before: tuple[T, ...], after: Iterable[T]) -> tuple[T, ...]:
    """``before`` if it has just these objects, else a tuple of them."""
    found = tuple(after)
    same = len(found) == len(before) and all(map(operator.is_, found, before))
    return before if same else found
