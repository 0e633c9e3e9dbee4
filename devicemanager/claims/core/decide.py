"""Decide with certainty whether requests for whole devices fit. The search uses this module if
first fit reaches its limit.

In:  slots of a ``Problem``. Either all slots need exclusive use of their devices, or all slots
     have admin access, belong to one claim, and do not request all matching devices.
Out: an answer; None means that certainly no answer exists. The answer need not be the first in
     the documented order, but equal arguments give the same answer.

The docstring of the package ``claims.core`` defines slot, answer and all other terms.
"""

# First fit can spend its limit on one early choice without ever revising it. This search fixes
# the matched values instead, one constraint after another. After each value it checks that the
# slots can still be filled if the constraints without a fixed value are ignored. There are only
# few values, and most fail this check. Three cases:
#
# 1. No device is charged to its pool: ``max_flow`` decides in polynomial time.
# 2. Devices are charged to pools: ``max_flow`` first, which quickly finds that demands do not
#    fit; then ``budgets``, which is exact and exponential in the worst case, so its steps are
#    limited.
# 3. Shared requests, or admin access together with other requests: this module cannot decide
#    (``is_decidable``). Dividing capacity is a knapsack problem, and first fit continues.
#
# Once all values are fixed, no constraint is ignored, and the answer of the check is the result.

from __future__ import annotations

from collections.abc import Sequence

from devicemanager.claims.core import budgets, max_flow
from devicemanager.claims.core.first_fit import SlotDevices
from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.core.problem import Problem
from devicemanager.core import bitset


def is_decidable(problem: Problem, slots: Sequence[int]) -> bool:
    """True if ``decide`` supports the given slots.

    It supports slots that all need exclusive use of their devices. It also supports slots that all
    have admin access and belong to one claim, unless one of them requests all matching devices.
    """
    found = [problem.slots[place] for place in slots]
    if all(slot.mode is AccessMode.EXCLUSIVE for slot in found):
        return True
    return len({slot.claim for slot in found}) == 1 and all(
        slot.mode is AccessMode.ADMIN and not slot.alternative.every for slot in found
    )


def decide(problem: Problem, slots: Sequence[int]) -> dict[int, SlotDevices] | None:
    """Return the devices for each slot, by index of the slot; None if no answer exists.

    Raises OutOfStepsError if the step budget is spent.
    """
    found = _Decision(problem, slots).fix_values(
        0, [problem.slots[place].usable for place in slots]
    )
    if found is None:
        return None
    return {
        place: SlotDevices(tuple(bitset.numbers(devices)))
        for place, devices in zip(slots, found, strict=True)
    }


class _Decision:
    """Search that fixes the values of matched attributes, one constraint after another."""

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

    def fix_values(self, place: int, usable: list[int]) -> list[int] | None:
        """Return devices for each slot, or None if there is no answer.

        ``place``: index (in ``_open``) of the next constraint whose value is to be fixed.
        ``usable``: for each slot, its usable devices that match the values fixed so far.
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
            found = self.fix_values(place + 1, kept)
            if found is not None:
                return found
        return None

    def _relaxed(self, usable: list[int]) -> list[int] | None:
        """Return devices for each slot, or None if there are too few.

        Ignore constraints without a fixed value.
        """
        demands = list(zip(usable, self._counts, strict=True))
        if any(devices.bit_count() < count for devices, count in demands):
            return None
        steps = self._problem.steps
        found = max_flow.assign(demands, steps)
        if found is None or not self._charges:
            return found
        return budgets.assign(self._problem.view, demands, steps)
