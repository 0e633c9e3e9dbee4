"""Choose devices of one pool, if each budget of the pool suffices for only one device.

In:  the budgets that each device charges, and the demands for devices.
Out: the devices for each demand; no two of the devices charge the same budget. None if this is
     impossible.
"""

# Two devices that charge the same budget exclude each other. So this is the search for an
# independent set of a graph whose cliques are the budgets. With three budgets per device, it is
# three-dimensional matching. Counting the devices that the budgets can still pay for prunes more
# than trying devices in order.
#
# 1. ``_cover`` divides the usable devices into parts. The devices of a part share a budget, so a
#    part serves one device. With fewer parts than wanted devices, there is no answer.
# 2. With exactly as many parts as wanted devices, each part must serve one. The part with the
#    fewest devices comes first. A part with one device leaves no choice. A part without devices is
#    a dead end.
# 3. Otherwise, that part may also serve none.

from __future__ import annotations

from collections.abc import Sequence

from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.core import bitset

Picks = tuple[tuple[int, int], ...]
"""Picked devices: pairs of a device number and the index of the demand that gets the device."""


class Packing:
    """Search for devices of one pool, as a part of one call of ``budgets.assign``."""

    def __init__(
        self, budgets: Sequence[int], users: Sequence[int], devices: int, steps: StepBudget
    ) -> None:
        """Create a search for devices of one pool.

        ``budgets``: for each budget, the set of devices that charge it. ``users``: for each demand,
        the set of devices that it can use. ``devices``: the number of devices.
        """
        self._budgets = [each for each in budgets if each.bit_count() > 1]
        self._users = users
        self._steps = steps
        self._excludes = [1 << number for number in range(devices)]
        for budget in self._budgets:
            for number in bitset.numbers(budget):
                self._excludes[number] |= budget

    def find(self, free: int, missing: tuple[int, ...], picks: Picks = ()) -> Picks | None:
        """Return ``picks``, extended by devices from the set ``free`` that satisfy all demands.

        ``missing``: for each demand, the number of devices that it still needs. ``picks``: the
        devices picked so far. Return None if the demands cannot be satisfied. Raises
        OutOfStepsError if the step budget is spent.
        """
        # Each round picks no device of one part. A pick is a recursive call.
        while any(missing):
            usable = [
                free & users if count else 0
                for users, count in zip(self._users, missing, strict=True)
            ]
            if any(map(_is_short, usable, missing)):
                return None
            free = bitset.union(usable)
            parts = self._cover(free)
            spare = len(parts) - sum(missing)
            if spare < 0:
                return None
            part = min(parts, key=int.bit_count)
            found = self._pick_from(part, free, usable, missing, picks)
            if found is not None or not spare:
                return found
            free &= ~part
        return picks

    def _pick_from(
        self,
        part: int,
        free: int,
        usable: Sequence[int],
        missing: tuple[int, ...],
        picks: Picks,
    ) -> Picks | None:
        for number in bitset.numbers(part):
            left = free & ~self._excludes[number]
            for demand, devices in enumerate(usable):
                if devices >> number & 1:
                    fewer = tuple([count - (each == demand) for each, count in enumerate(missing)])
                    found = self.find(left, fewer, (*picks, (number, demand)))
                    if found is not None:
                        return found
            free &= ~(1 << number)  # every answer with this device was tried
        return None

    def _cover(self, free: int) -> list[int]:
        """Divide devices into parts whose devices charge a common budget, largest parts first."""
        parts = []
        budgets = self._budgets
        while free:
            # Counted for each part, not once at the end: the budget's callback must be called
            # often.
            self._steps.spend(1 + len(self._budgets) // 128)
            budgets = [devices for each in budgets if (devices := each & free)]
            part = max(budgets, key=int.bit_count, default=free & -free)
            parts.append(part)
            free &= ~part
        return parts


def _is_short(devices: int, count: int) -> bool:
    return devices.bit_count() < count
