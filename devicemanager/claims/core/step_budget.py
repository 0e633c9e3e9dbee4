"""Step budget of one search for devices.

Evaluating CEL expressions, searching, and explaining a rejection all spend steps of this budget.
"""

# A step is work that costs about as much as picking one device, 8 µs on a usual machine. Steps
# are counted instead of time, so a search stops at the same point on every machine, and tests
# are reproducible. The caller can add a time limit, which only a slow machine reaches first.

from __future__ import annotations

from collections.abc import Callable

_PERIOD = 24
"""Number of steps after which the caller's function is called again."""


class OutOfStepsError(Exception):
    """Error for a search that has spent its step budget and has no result yet."""


class FirstFitCutOffError(Exception):
    """Error if first fit has picked as many devices as its limit allows. ``solve`` then searches
    with ``decide.decide`` instead."""


class StepBudget:
    """Step budget of one search for devices.

    One step is the pick of one device, or any other computation that takes about as long.
    """

    def __init__(self, total: int, may_continue: Callable[[], bool] | None = None) -> None:
        """Create a budget of ``total`` steps.

        ``may_continue`` is called every few steps. If it returns False, the budget counts as spent.
        """
        self.spent = 0
        self.is_out_of_time = False
        self._may_continue = may_continue
        self._total = total
        # Steps that only the explanation of a rejection can use.
        self._reserved = 0
        self._next = 0
        self._picks_end = total

    def reserve(self, amount: int) -> None:
        """Reserve ``amount`` steps for explaining a rejection, so that the search cannot use them.

        0 ends the reservation.
        """
        self._reserved = amount
        self._next = min(self._next, self._total - amount)

    def begin_first_fit(self, picks: int | None) -> None:
        """Start to count the picks of first fit. After ``picks`` picks, ``pick`` raises
        FirstFitCutOffError. If ``picks`` is None, their number has no limit."""
        self._picks = 0
        self._picks_end = self._total if picks is None else picks

    def pick(self) -> None:
        """Count one pick of a device, which is also a step.

        Raises FirstFitCutOffError if this pick exceeds the limit of picks, and OutOfStepsError if
        the budget is spent.
        """
        self._picks += 1
        if self._picks > self._picks_end:
            raise FirstFitCutOffError
        self.spend(1)

    def spend(self, amount: int) -> None:
        """Count ``amount`` steps of work. Raises OutOfStepsError if the budget is spent."""
        self.spent += amount
        if self.spent > self._next:
            self._check()

    def _check(self) -> None:
        most = self._total - self._reserved
        if self.spent > most:
            self.spent = max(0, most)
            raise OutOfStepsError
        if self._may_continue is not None and not (self.is_out_of_time or self._may_continue()):
            self.is_out_of_time = True
        if self.is_out_of_time:
            raise OutOfStepsError
        self._next = min(most, self.spent + _PERIOD) if self._may_continue is not None else most
