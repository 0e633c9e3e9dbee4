"""Assign whole devices to all demands at the same time, if possible, by a maximum flow.

In:  demands, each a set of devices and the number of devices needed from this set.
Out: disjoint sets of devices, one for each demand; None means that no such sets exist.

Charges and matched values are ignored. So the sets can exceed a budget, or their devices can differ
in a matched value. If the result is None, the demands cannot be satisfied in any case.
"""

# Serving demands one after another is not enough. If the first demand takes the only device of
# the second demand, the second demand fails, although an exchange of devices would serve both.
# Augmenting paths find this exchange: a demand can take a device from another demand that gets
# a replacement, through any number of demands (bipartite b-matching, Ford-Fulkerson).
#
# Devices that the same demands can use form a cell. The flow runs between demands and cells,
# so its cost grows with the number of demands, not with the number of devices.

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.core import bitset

Demand = tuple[int, int]
"""A set of devices, and the number of devices needed from this set."""


def assign(demands: Sequence[Demand], steps: StepBudget) -> list[int] | None:
    """Return disjoint sets of devices, one for each demand; None if that is impossible.

    Devices with low numbers are preferred.
    """
    network = _Network(demands, steps)
    return network.sets() if network.serve_all() else None


def fits(demands: Sequence[Demand], steps: StepBudget) -> bool:
    """True if disjoint sets of devices can serve all demands."""
    return _Network(demands, steps).serve_all()


class _Network:
    """Flow network between demands and cells (devices that the same demands can use)."""

    def __init__(self, demands: Sequence[Demand], steps: StepBudget) -> None:
        self._demands = demands
        self._steps = steps
        self._cells = _divide([devices for devices, _ in demands])
        self._free = [cell.bit_count() for cell in self._cells]
        self._reach = [
            [place for place, cell in enumerate(self._cells) if cell & devices]
            for devices, _ in demands
        ]
        self._flow = [[0] * len(self._cells) for _ in demands]
        steps.spend((len(self._cells) * len(demands)) // 16)

    def serve_all(self) -> bool:
        return all(self._serve(demand) for demand in range(len(self._demands)))

    def _serve(self, demand: int) -> bool:
        """Give one demand all devices that it needs. Return False if that is impossible.

        The demands served before this one can get different devices, but never fewer.
        """
        missing = self._demands[demand][1]
        while missing:
            moved = self._augment(demand, missing)
            if not moved:
                return False
            missing -= moved
        return True

    def _augment(self, start: int, wanted: int) -> int:
        """Give the demand ``start`` more devices, at most ``wanted``; return their number.

        The devices move along one shortest augmenting path. Return 0 if there is no such path.
        """
        # Breadth first, so that a path never visits a demand twice.
        came: dict[int, tuple[int, int]] = {}  # demand to its predecessor and the cell between
        queue, seen = [start], {start}
        entered: set[int] = set()
        for demand in queue:
            self._steps.spend(1)
            for cell in self._reach[demand]:
                if self._free[cell]:
                    return self._move(start, demand, cell, came, wanted)
                if cell in entered:
                    continue
                entered.add(cell)
                for other, flow in enumerate(self._flow):
                    if flow[cell] and other not in seen:
                        seen.add(other)
                        came[other] = (demand, cell)
                        queue.append(other)
        return 0

    def _move(
        self, start: int, end: int, cell: int, came: dict[int, tuple[int, int]], wanted: int
    ) -> int:
        path = [(end, cell)]  # demands with the cells that they gain, in reverse order
        while path[-1][0] != start:
            path.append(came[path[-1][0]])
        amount = min(wanted, self._free[cell])
        for (loser, _), (_, lost) in pairwise(path):
            amount = min(amount, self._flow[loser][lost])
        self._free[cell] -= amount
        for (loser, _), (_, lost) in pairwise(path):
            self._flow[loser][lost] -= amount
        for gainer, gained in path:
            self._flow[gainer][gained] += amount
        return amount

    def sets(self) -> list[int]:
        rest = list(self._cells)
        found = []
        for flow in self._flow:
            devices = 0
            for cell, count in enumerate(flow):
                if count:
                    part = bitset.lowest(rest[cell], count)
                    rest[cell] ^= part
                    devices |= part
            found.append(devices)
        return found


def _divide(sets: Sequence[int]) -> list[int]:
    """Partition the union of the sets into cells, sorted by their lowest member.

    Two devices are in one cell if each set contains either both of them or neither.
    """
    cells = [bitset.union(sets)]
    for each in sets:
        cells = [part for cell in cells for part in (cell & each, cell & ~each) if part]
    return sorted(cells, key=lambda cell: cell & -cell)
