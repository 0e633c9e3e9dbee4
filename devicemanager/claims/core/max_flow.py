"""Can all demands for whole devices be met at once? A maximum flow answers exactly.

In:  demands, each a set of devices and how many of them are needed.
Out: disjoint sets, or None. Charges and matched values are not considered: without them the
     answer is exact, with them "no" is still certain.
"""

# Serving demands one after another is not enough. If the first one takes a device that is the
# only one for the second, the second fails although exchanging the devices would serve both.
# Augmenting paths do this exchange: a demand can take a device from another one if that one
# gets a replacement, through any number of demands (bipartite b-matching, Ford-Fulkerson).
#
# Devices that the same demands can use form a cell. The flow runs between demands and cells,
# so its cost grows with the number of demands, not with the number of devices.

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.core import bitset

Demand = tuple[int, int]
"""A set of devices, and how many of them are needed."""


def assign(demands: Sequence[Demand], steps: StepBudget) -> list[int] | None:
    """Return a set of devices for each demand, disjoint, low numbers first; None if impossible."""
    network = _Network(demands, steps)
    return network.sets() if network.serve_all() else None


def fits(demands: Sequence[Demand], steps: StepBudget) -> bool:
    """True if all demands can be served at once."""
    return _Network(demands, steps).serve_all()


class _Network:
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
        """Serve one demand; demands served before get other devices, never fewer."""
        missing = self._demands[demand][1]
        while missing:
            moved = self._augment(demand, missing)
            if not moved:
                return False
            missing -= moved
        return True

    def _augment(self, start: int, wanted: int) -> int:
        """Move up to ``wanted`` devices along one shortest path; return how many."""
        # Breadth first, so that a path never passes a demand twice.
        came: dict[int, tuple[int, int]] = {}  # demand to the one before it and their cell
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
        path = [(end, cell)]  # each demand with the cell that it gains, from the end
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
    """Partition the members of the sets by the sets they are in, lowest first."""
    cells = [bitset.union(sets)]
    for each in sets:
        cells = [part for cell in cells for part in (cell & each, cell & ~each) if part]
    return sorted(cells, key=lambda cell: cell & -cell)
