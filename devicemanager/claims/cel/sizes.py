"""Bounds of sizes and costs, with which ``estimate`` computes the cost of an expression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import attrs

UNBOUNDED = 2**64 - 1
"""Value for "no upper bound" of a size or cost. Sums and products never exceed it."""


@attrs.frozen(eq=False)
class Sized:
    """Maximum sizes of a variable and of the values in it."""

    size: int
    """Maximum size: characters of a string, elements of a list, entries of a map."""
    key: Sized | None = None
    """Sizes of the keys, for a map."""
    element: Sized | None = None
    """Sizes of the elements of a list, or of the values of a map."""
    fields: Mapping[str, Sized] = attrs.field(factory=dict)
    has_uniform_values: bool = False
    """True for a map if all its values have the sizes in ``element``."""


class Range(NamedTuple):
    """Lower and upper bound of a size or a cost."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        """Return the range of the sum of a number from this range and a number from ``other``."""
        return Range(capped(self.low + other.low), capped(self.high + other.high))

    def times(self, other: Range) -> Range:
        """Return the range of the product of a number from this range and a number from
        ``other``."""
        return Range(capped(self.low * other.low), capped(self.high * other.high))

    def scaled(self, factor: float) -> Range:
        """Return the range with both bounds multiplied by ``factor`` and rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def joined(self, other: Range) -> Range:
        """Return the smallest range that includes this range and ``other``."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def capped(number: int) -> int:
    return min(number, UNBOUNDED)


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNBOUNDED if product >= 2.0**64 else capped(math.ceil(product))


def exactly(number: int) -> Range:
    return Range(number, number)


ZERO, ONE = exactly(0), exactly(1)
ANY_SIZE = Range(0, UNBOUNDED)


class Entries(NamedTuple):
    """Sizes of the elements of a list, or of the keys and values of a map."""

    kind: str
    """``list`` or ``map``."""
    key: Range
    value: Range

    def joined(self, other: Entries | None) -> Entries | None:
        if other is None:
            return None
        return Entries(self.kind, self.key.joined(other.key), self.value.joined(other.value))
