"""Limits of one evaluation: Kubernetes' cost, and work that the cost does not include."""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.claims.cel.values import CostExceeded, EvaluationStopped, Map, Value

MAX_COST = 1_000_000
"""Cost limit of one evaluation, in Kubernetes' units (``CELSelectorExpressionMaxCost``)."""
MAX_WORK = 3_000_000
"""Limit of the work of one evaluation, in elements read; about a second."""
MAX_SIZE = 5_000_000
"""Maximum size of a text or list that an evaluation creates, in characters or elements."""


_PERIOD = 1000
"""Cost units between two reports of the cost."""

Spend = Callable[[int], None]
"""Function that gets the cost of an evaluation while it runs, and may stop it by an exception."""


class NoAnswer(EvaluationStopped):
    """Error for an evaluation that this package cannot finish, although Kubernetes may."""


class TooMuchWork(NoAnswer):
    """The evaluation takes more time or memory than this package allows.

    Kubernetes' cost does not count all work: it charges one unit for joining two long lists.
    """

    def __init__(self) -> None:
        super().__init__("not supported: the evaluation takes too much time or memory")


class Meter:
    """Counter of the cost and of the work of one evaluation."""

    __slots__ = ("_limit", "_next", "_reported", "_spend", "cost", "work")

    def __init__(self, limit: int = MAX_COST, spend: Spend | None = None) -> None:
        """Start at zero; ``limit`` is the limit of the cost.

        ``spend`` is called with the cost since its last call, and may raise any exception.
        """
        self.cost = 0
        self.work = 0
        self._limit = limit
        self._spend = spend
        self._reported = 0
        self._next = limit if spend is None else min(limit, _PERIOD)

    def charge(self, units: int) -> None:
        """Count cost units. Raises CostExceeded at the limit."""
        self.cost += units
        if self.cost > self._next:
            self.report()

    def report(self) -> None:
        """Report the cost since the last report. Raises CostExceeded at the limit."""
        if self.cost > self._limit:
            raise CostExceeded
        if self._spend is not None:
            self._spend(self.cost - self._reported)
            self._reported = self.cost
            self._next = min(self._limit, self.cost + _PERIOD)

    def read(self, value: Value) -> None:
        """Count the work of reading a value with all that it contains. Raises TooMuchWork."""
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
    """Raise TooMuchWork if a value to be created is too large."""
    if size > MAX_SIZE:
        raise TooMuchWork
