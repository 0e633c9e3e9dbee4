"""Limits of one search, counted in steps."""

# A step is work that costs about as much as picking one device. Steps are counted instead of
# time, so a search that is cut off is cut off at the same place on every machine. A test that
# sees ``Undecided`` once therefore always sees it.

from __future__ import annotations


class OutOfStepsError(Exception):
    """The total is spent. What was not searched is unknown."""


class FirstFitCutOffError(Exception):
    """First fit is cut off. The exact decision can still find an answer."""


class StepBudget:
    """Counter of device picks and of other work."""

    def __init__(self, total: int) -> None:
        self.spent = 0
        self._total = total
        self._picks_end = total

    def begin_first_fit(self, picks: int | None) -> None:
        """Let ``pick`` raise ``FirstFitCutOffError`` after ``picks`` picks; None is never."""
        self._picks = 0
        self._picks_end = self._total if picks is None else picks

    def pick(self) -> None:
        """Count one pick of a device."""
        self._picks += 1
        if self._picks > self._picks_end:
            raise FirstFitCutOffError
        self.spend(1)

    def spend(self, amount: int) -> None:
        """Count work that costs as much as ``amount`` picks."""
        self.spent += amount
        if self.spent > self._total:
            self.spent = self._total
            raise OutOfStepsError
