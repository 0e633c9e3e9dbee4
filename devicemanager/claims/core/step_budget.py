"""Limits of one search for devices, counted in steps."""

# A step is work that costs about as much as picking one device. Steps are counted instead of
# time, so a search stops at the same point on every machine, and tests are reproducible.

from __future__ import annotations


class OutOfStepsError(Exception):
    """The step budget of a search is spent, so the search has no result."""


class FirstFitCutOffError(Exception):
    """First fit reached its limit of picks. The exact decision can still find an answer."""


class StepBudget:
    """Step budget of one search, which counts device picks and other work."""

    def __init__(self, total: int) -> None:
        self.spent = 0
        self._total = total
        self._picks_end = total

    def begin_first_fit(self, picks: int | None) -> None:
        """Start first fit: let ``pick`` raise FirstFitCutOffError after ``picks`` picks.

        None: never.
        """
        self._picks = 0
        self._picks_end = self._total if picks is None else picks

    def pick(self) -> None:
        """Count one pick of a device. Raises FirstFitCutOffError or OutOfStepsError at a limit."""
        self._picks += 1
        if self._picks > self._picks_end:
            raise FirstFitCutOffError
        self.spend(1)

    def spend(self, amount: int) -> None:
        """Count ``amount`` steps of work. Raises OutOfStepsError if the budget is spent."""
        self.spent += amount
        if self.spent > self._total:
            self.spent = self._total
            raise OutOfStepsError
