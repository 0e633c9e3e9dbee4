"""Requests that want whole devices, each of its own set: can all be served at once?

Bipartite b-matching by augmenting paths, over cells of devices that the same requests may
use, so its cost does not grow with the number of devices. Charges and matched attributes
are the caller's: with neither, the answer is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from devicemanager.claims.core.step_budget import Steps
from devicemanager.core import bitset

Demand = tuple[int, int]
"""A set of devices, and how many of them are wanted."""


def assign(demands: Sequence[Demand], steps: Steps) -> list[int] | None:
    """A set of devices for each demand, disjoint, low numbers first; None if there is no way."""
    network = _Network(demands, steps)
    return network.sets() if network.serve_all() else None


def fits(demands: Sequence[Demand], steps: Steps) -> bool:
    """Is there a way?"""
    return _Network(demands, steps).serve_all()


class _Network:
    def __init__(self, demands: Sequence[Demand], steps: Steps) -> None:
        self._demands = demands
        self._steps = steps
        self._cells = _divide([devices for devices, _ in demands])
        self._free = [cell.bit_count() for cell in self._cells]
        self._reach = [
            [place for place, cell in enumerate(self._cells) if cell & devices]
            for devices, _ in demands
        ]
        self._flow = [[0] * len(self._cells) for _ in demands]
        steps.work((len(self._cells) * len(demands)) // 16)

    def serve_all(self) -> bool:
        return all(self._serve(demand) for demand in range(len(self._demands)))

    def _serve(self, demand: int) -> bool:
        """Find all that one demand wants; others may be moved, never robbed."""
        missing = self._demands[demand][1]
        while missing:
            moved = self._augment(demand, missing)
            if not moved:
                return False
            missing -= moved
        return True

    def _augment(self, start: int, wanted: int) -> int:
        """Move up to ``wanted`` devices along one shortest path; how many were moved."""
        came: dict[int, tuple[int, int]] = {}  # demand to the one before it and their cell
        queue, seen = [start], {start}
        entered: set[int] = set()
        for demand in queue:
            self._steps.work(1)
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
            taken = 0
            for cell, count in enumerate(flow):
                if count:
                    part = bitset.lowest(rest[cell], count)
                    rest[cell] ^= part
                    taken |= part
            found.append(taken)
        return found


def _divide(sets: Sequence[int]) -> list[int]:
    """The members of the sets by which sets they are in, lowest first."""
    cells = [bitset.union(sets)]
    for each in sets:
        cells = [part for cell in cells for part in (cell & each, cell & ~each) if part]
    return sorted(cells, key=lambda cell: cell & -cell)
