"""The step budget of one call: what makes the search end, at the same place each time."""

from __future__ import annotations


class OutOfStepsError(Exception):
    """The total is spent; nothing is known about what was not searched."""


class OrderLostError(Exception):
    """The first-fit budget is spent; another way may still find whether it fits."""


class Steps:
    """Counts the picks of devices and the work done beside them."""

    def __init__(self, total: int) -> None:
        self.spent = 0
        self._total = total
        self._picks_end = total

    def begin_first_fit(self, picks: int | None) -> None:
        """From now on, ``pick`` raises ``OrderLostError`` after so many; None is never."""
        self._picks = 0
        self._picks_end = self._total if picks is None else picks

    def pick(self) -> None:
        self._picks += 1
        if self._picks > self._picks_end:
            raise OrderLostError
        self.work(1)

    def work(self, amount: int) -> None:
        """Count work that is worth ``amount`` picks."""
        self.spent += amount
        if self.spent > self._total:
            self.spent = self._total
            raise OutOfStepsError
