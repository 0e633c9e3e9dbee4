"""Limits of one evaluation: its cost, its work, and the size of the strings and lists it creates.

The cost is what Kubernetes charges for the evaluation. The work is the number of elements of lists
and maps that the evaluation reads; 64 characters of a string count as one element.
"""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.claims.cel.values import CostExceeded, EvaluationStopped, Map, Value

MAX_COST = 1_000_000
"""Cost limit of one evaluation, in Kubernetes' units (``CELSelectorExpressionMaxCost``)."""
MAX_WORK = 3_000_000
"""Maximum work of one evaluation, in elements read. This much work takes about a second."""
MAX_SIZE = 5_000_000
"""Maximum size of a string or list that an evaluation creates, in characters or elements."""


_PERIOD = 1000
"""Cost units between two calls of ``Spend``."""

Spend = Callable[[int], None]
"""Function that is called with the number of cost units spent since its last call. It can raise an
exception to stop the evaluation."""


class NoAnswer(EvaluationStopped):
    """Error for an evaluation that this package cannot finish, although Kubernetes may finish
    it."""


class TooMuchWork(NoAnswer):
    """Error for an evaluation that needs more time or memory than this package allows.

    Kubernetes' cost alone does not limit time and memory. For example, Kubernetes charges one unit
    for concatenating two long lists.
    """

    def __init__(self) -> None:
        super().__init__("not supported: the evaluation takes too much time or memory")


class Meter:
    """Counter of the cost and the work of one evaluation."""

    __slots__ = ("_limit", "_next", "_reported", "_spend", "cost", "work")

    def __init__(self, limit: int = MAX_COST, spend: Spend | None = None) -> None:
        """Create a meter that starts at zero. ``limit`` is the maximum cost.

        ``spend`` is called with the cost since its last call, and may raise any exception.
        """
        self.cost = 0
        self.work = 0
        self._limit = limit
        self._spend = spend
        self._reported = 0
        self._next = limit if spend is None else min(limit, _PERIOD)

    def charge(self, units: int) -> None:
        """Count cost units. Raises CostExceeded above the limit."""
        self.cost += units
        if self.cost > self._next:
            self.report()

    def report(self) -> None:
        """Pass the cost since the last report to ``spend``. Raises CostExceeded above the limit."""
        if self.cost > self._limit:
            raise CostExceeded
        if self._spend is not None:
            self._spend(self.cost - self._reported)
            self._reported = self.cost
            self._next = min(self._limit, self.cost + _PERIOD)

    def read(self, value: Value) -> None:
        """Add the number of a value's elements, including nested elements, to the work.

        Raises TooMuchWork above ``MAX_WORK``.
        """
        kind = type(value)
        if kind is str or kind is bytes:
            self.work += len(value) >> 6
        elif kind is list or kind is Map:
            stack = [value]
            while stack:
                self._read_container(stack.pop(), stack)
        if self.work > MAX_WORK:
            raise TooMuchWork

    def _read_container(self, container: Value, stack: list[Value]) -> None:
        self.work += len(container) + 1
        if self.work > MAX_WORK:
            raise TooMuchWork
        values = container if type(container) is list else (v for _, v in container.items())
        stack += [each for each in values if type(each) in (list, Map)]


def check_size(size: int) -> None:
    """Raise TooMuchWork if the size of a new string or list exceeds ``MAX_SIZE``."""
    if size > MAX_SIZE:
        raise TooMuchWork
