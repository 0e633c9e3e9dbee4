"""Do the claims fit at all? The exact decision for whole devices, after first fit gave up.

In:  the slots of a ``Problem``, all exclusive (or all admin access of one claim).
Out: an answer, or None if there is certainly none. The answer need not be the first in the
     documented order; it is the same every time.
"""

# First fit can spend its limit on one early choice without ever revising it. This search goes
# the other way: it settles the matched values, one constraint after another, and asks after
# each if what is left can still be served when the open constraints are ignored. There are
# only few values, and most fail at once. Three cases:
#
# 1. No pool charges anything: ``max_flow`` decides in polynomial time.
# 2. Pools charge for devices: ``max_flow`` first, which says no quickly; then ``budgets``,
#    which is exact and exponential in the worst case, therefore limited by steps.
# 3. Shared requests, or admin access next to other requests: not decidable here
#    (``is_decidable``). Dividing capacity is a knapsack problem, and first fit continues.
#
# Once all values are settled, nothing is ignored, and the answer of that check is the result.

from __future__ import annotations

from collections.abc import Sequence

from devicemanager.claims.core import budgets, max_flow
from devicemanager.claims.core.first_fit import SlotDevices
from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.core.problem import Problem
from devicemanager.core import bitset


def is_decidable(problem: Problem, slots: Sequence[int]) -> bool:
    """True if ``decide`` can answer for these slots."""
    found = [problem.slots[place] for place in slots]
    if all(slot.mode is AccessMode.EXCLUSIVE for slot in found):
        return True
    return len({slot.claim for slot in found}) == 1 and all(
        slot.mode is AccessMode.ADMIN and not slot.alternative.every for slot in found
    )


def decide(problem: Problem, slots: Sequence[int]) -> dict[int, SlotDevices] | None:
    """Return an answer for the slots, or None if there is none. Raises OutOfStepsError."""
    found = _Decision(problem, slots).settle(0, [problem.slots[place].usable for place in slots])
    if found is None:
        return None
    return {
        place: SlotDevices(tuple(bitset.numbers(devices)))
        for place, devices in zip(slots, found, strict=True)
    }


class _Decision:
    def __init__(self, problem: Problem, slots: Sequence[int]) -> None:
        self._problem = problem
        self._slots = slots
        self._counts = [problem.slots[place].least for place in slots]
        self._charges = problem.slots[slots[0]].mode is AccessMode.EXCLUSIVE and any(
            kind.charge and kind.devices & problem.slots[place].usable
            for kind in problem.view.inventory.kinds
            for place in slots
        )
        used = {constraint for place in slots for constraint in problem.slots[place].constraints}
        # Constraints of many slots come first: their values exclude the most devices.
        self._open = sorted(used, key=lambda place: (-len(problem.constraints[place].slots), place))

    def settle(self, place: int, usable: list[int]) -> list[int] | None:
        """Return devices per slot within ``usable``, or None.

        The constraints before ``place`` are already fixed.
        """
        answer = self._relaxed(usable)
        if answer is None or place == len(self._open):
            return answer
        constraint = self._problem.constraints[self._open[place]]
        bound = [slot in constraint.slots for slot in self._slots]
        for devices in constraint.values.values():
            self._problem.steps.spend(1)
            if not devices & constraint.allowed:
                continue
            kept = [each & devices if b else each for each, b in zip(usable, bound, strict=True)]
            found = self.settle(place + 1, kept)
            if found is not None:
                return found
        return None

    def _relaxed(self, usable: list[int]) -> list[int] | None:
        """Find an answer that ignores the open constraints."""
        demands = list(zip(usable, self._counts, strict=True))
        if any(devices.bit_count() < count for devices, count in demands):
            return None
        steps = self._problem.steps
        found = max_flow.assign(demands, steps)
        if found is None or not self._charges:
            return found
        return budgets.assign(self._problem.view, demands, steps)
