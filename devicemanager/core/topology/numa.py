"""The machine's NUMA nodes and the distances between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise

import attrs

from devicemanager.core import bitset
from devicemanager.core.errors import RequestError

LOCAL_DISTANCE = 10
REMOTE_DISTANCE = 20
"""The firmware's defaults (ACPI SLIT) for a machine that reports no distances."""

MAX_NODE_ID = 63
"""The kubelet's bitmask is 64 bits wide (``bitMask.Add``, v1.32)."""


class NumaTopologyError(RequestError):
    """The given NUMA nodes or distances describe no machine."""


@attrs.frozen(cache_hash=True)
class NumaTopology:
    """NUMA node ids, sorted but not always contiguous, and their distances.

    ``distances`` has a row and a column per node, both in the order of ``nodes``, as
    the kernel prints them in ``/sys/devices/system/node/node*/distance``.
    """

    nodes: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    has_distances: bool = attrs.field(default=True, kw_only=True, eq=False)
    """Whether the distances are known; else they are the firmware's defaults."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[int],
        distances: Mapping[int, Sequence[int]] | Sequence[Sequence[int]] | None = None,
    ) -> NumaTopology:
        """A topology of these node ids.

        ``distances`` is a row per node: by node id, or in the order ``nodes`` are given.
        The columns of a row follow the sorted ids. Without distances a node is 10 from
        itself and 20 from any other.
        """
        given = tuple(nodes)
        ordered = tuple(sorted(given))
        _check_nodes(ordered)
        if distances is None:
            return cls(ordered, _default_distances(ordered), has_distances=False)
        if not isinstance(distances, Mapping):
            if len(distances) != len(given):
                raise NumaTopologyError(
                    f"{len(distances)} rows of NUMA distances for {len(given)} nodes: "
                    f"give one row per node"
                )
            distances = dict(zip(given, distances, strict=True))
        return cls(ordered, _checked_rows(ordered, distances))

    @classmethod
    def up_to(cls, node: int) -> NumaTopology:
        """A topology of the nodes from 0 to ``node``, all equally far from each other."""
        return cls.equidistant(range(node + 1))

    @classmethod
    def equidistant(cls, nodes: Iterable[int]) -> NumaTopology:
        """A topology whose distances are known: 10 from a node to itself, 20 to any other."""
        ordered = tuple(sorted(nodes))
        _check_nodes(ordered)
        return cls(ordered, _default_distances(ordered))

    all_mask: int = attrs.field(init=False, eq=False, repr=False)
    """Every node of the machine."""

    @all_mask.default
    def _all_mask(self) -> int:
        return bitset.of(self.nodes)

    def distance(self, one: int, other: int) -> int:
        """The distance between two nodes of this machine, by id."""
        return self.distances[self.nodes.index(one)][self.nodes.index(other)]

    def average_distance(self, mask: int) -> float:
        """Mean over all ordered pairs of the mask's nodes, a node with itself included.

        ``NUMADistances.CalculateAverageFor`` (topologymanager/numa_info.go, v1.32).
        """
        places = [place for place, node in enumerate(self.nodes) if mask >> node & 1]
        if not places:
            return 0.0
        total = sum(self.distances[row][column] for row in places for column in places)
        return total / len(places) ** 2


def nodes_of(mask: int) -> tuple[int, ...]:
    """The node ids in a set, ascending."""
    return tuple(bitset.numbers(mask))


@lru_cache(maxsize=64)
def masks_in_order(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Every non-empty set of nodes: smallest first, then in index order.

    ``bitmask.IterateBitMasks`` (topologymanager/bitmask, v1.32).
    """
    return tuple(
        bitset.of(chosen)
        for size in range(1, len(nodes) + 1)
        for chosen in combinations(nodes, size)
    )


@lru_cache(maxsize=64)
def dense_index(nodes: tuple[int, ...]) -> dict[int, int]:
    """Each set of nodes, the empty one too → the same set over places 0, 1, 2, ...

    Transforms over all subsets need tables without holes; node ids may have some.
    """
    index = {0: 0}
    for place, node in enumerate(nodes):
        index |= {mask | 1 << node: dense | 1 << place for mask, dense in index.items()}
    return index


@lru_cache(maxsize=64)
def subset_steps(size: int) -> tuple[tuple[int, int], ...]:
    """Pairs (set, same set with one place more) over tables of ``size`` dense sets.

    Adding along the pairs, in this order, sums a table over all subsets; adding against
    them, over all supersets; subtracting undoes either (fast zeta and Moebius transforms).
    """
    places = [1 << place for place in range(size.bit_length() - 1)]
    return tuple(
        (dense, dense | step) for step in places for dense in range(size) if not dense & step
    )


def _check_nodes(ordered: tuple[int, ...]) -> None:
    if not ordered:
        raise NumaTopologyError("no NUMA nodes: a machine has at least one")
    if ordered[0] < 0 or ordered[-1] > MAX_NODE_ID:
        odd = ordered[0] if ordered[0] < 0 else ordered[-1]
        raise NumaTopologyError(f"NUMA node id {odd} is outside 0 to {MAX_NODE_ID}")
    for one, other in pairwise(ordered):
        if one == other:
            raise NumaTopologyError(f"NUMA node {one} is listed twice")


def _default_distances(ordered: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(LOCAL_DISTANCE if row == column else REMOTE_DISTANCE for column in ordered)
        for row in ordered
    )


def _checked_rows(
    ordered: tuple[int, ...], distances: Mapping[int, Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    rows = []
    for node in ordered:
        row = distances.get(node)
        if row is None:
            raise NumaTopologyError(f"NUMA node {node} has no row of distances")
        if len(row) != len(ordered):
            raise NumaTopologyError(
                f"NUMA node {node} has {len(row)} distances for {len(ordered)} nodes"
            )
        if any(distance < 0 for distance in row):
            raise NumaTopologyError(f"NUMA node {node} has a negative distance")
        rows.append(tuple(row))
    return tuple(rows)
