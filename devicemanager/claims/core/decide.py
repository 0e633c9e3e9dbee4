"""Does it fit at all? For whole devices, once the documented order took too long to search.

Matched values are settled one constraint after another, each choice checked before the
next: by flow, and within the budgets where pools charge. With all values settled that check
is exact, so its answer is one; it need not be the first in the documented order.
"""

from __future__ import annotations

from collections.abc import Sequence

from devicemanager.claims.core import budgets, max_flow
from devicemanager.claims.core.firstfit import Part
from devicemanager.claims.core.model import Mode
from devicemanager.claims.core.problem import Problem
from devicemanager.core import bitset


def is_decidable(problem: Problem, slots: Sequence[int]) -> bool:
    """Can ``decide`` answer? Not for shares, nor where admin access meets other requests."""
    found = [problem.slots[place] for place in slots]
    if all(slot.mode is Mode.EXCLUSIVE for slot in found):
        return True
    return len({slot.claim for slot in found}) == 1 and all(
        slot.mode is Mode.ADMIN and not slot.alternative.every for slot in found
    )


def decide(problem: Problem, slots: Sequence[int]) -> dict[int, Part] | None:
    """An answer for the slots, None if there is none. Raises ``OutOfStepsError``."""
    found = _Decision(problem, slots).settle(0, [problem.slots[place].usable for place in slots])
    if found is None:
        return None
    return {
        place: Part(tuple(bitset.numbers(devices)))
        for place, devices in zip(slots, found, strict=True)
    }


class _Decision:
    def __init__(self, problem: Problem, slots: Sequence[int]) -> None:
        self._problem = problem
        self._slots = slots
        self._counts = [problem.slots[place].least for place in slots]
        self._charges = problem.slots[slots[0]].mode is Mode.EXCLUSIVE and any(
            kind.charge and kind.devices & problem.slots[place].usable
            for kind in problem.view.inventory.kinds
            for place in slots
        )
        used = {constraint for place in slots for constraint in problem.slots[place].constraints}
        self._open = sorted(used, key=lambda place: (-len(problem.constraints[place].slots), place))
        """The constraints, those of many slots first: they cut most."""

    def settle(self, place: int, usable: list[int]) -> list[int] | None:
        """An answer in which the slots use these devices only, the first constraints settled."""
        answer = self._relaxed(usable)
        if answer is None or place == len(self._open):
            return answer
        constraint = self._problem.constraints[self._open[place]]
        bound = [slot in constraint.slots for slot in self._slots]
        for devices in constraint.values.values():
            self._problem.steps.work(1)
            if not devices & constraint.allowed:
                continue
            kept = [each & devices if b else each for each, b in zip(usable, bound, strict=True)]
            found = self.settle(place + 1, kept)
            if found is not None:
                return found
        return None

    def _relaxed(self, usable: list[int]) -> list[int] | None:
        """An answer that ignores the constraints which are still open."""
        demands = list(zip(usable, self._counts, strict=True))
        if any(devices.bit_count() < count for devices, count in demands):
            return None
        steps = self._problem.steps
        found = max_flow.assign(demands, steps)
        if found is None or not self._charges:
            return found
        return budgets.assign(self._problem.view, demands, steps)
