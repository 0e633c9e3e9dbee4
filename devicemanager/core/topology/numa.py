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
"""Defaults of the ACPI SLIT, for a machine that does not report distances."""

MAX_NODE_ID = 63
"""The kubelet's bitmask has 64 bits (``bitMask.Add``, v1.32)."""


class NumaTopologyError(RequestError):
    """The given NUMA nodes or distances are not valid."""


@attrs.frozen(cache_hash=True)
class NumaTopology:
    """The machine's NUMA node IDs, sorted but not always contiguous, and their distances.

    ``distances`` has one row and one column per node in the order of ``nodes``, as in
    ``/sys/devices/system/node/node*/distance``.
    """

    nodes: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    has_distances: bool = attrs.field(default=True, kw_only=True, eq=False)
    """True if the distances are known; otherwise they are the firmware's defaults."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[int],
        distances: Mapping[int, Sequence[int]] | Sequence[Sequence[int]] | None = None,
    ) -> NumaTopology:
        """Create a topology with these node IDs.

        ``distances`` has one row per node, by node ID or in the order of ``nodes``. The columns
        of a row follow the sorted IDs. Without distances, a node has distance 10 to itself
        and 20 to any other.
        """
        given = tuple(nodes)
        ordered = tuple(sorted(given))
        _check_nodes(ordered)
        if distances is None:
            return cls(ordered, _default_distances(ordered), has_distances=False)
        # Rows without node IDs follow the order in which the caller gave the nodes, so they
        # must be matched before the nodes are sorted.
        if not isinstance(distances, Mapping):
            if len(distances) != len(given):
                raise NumaTopologyError(
                    f"{len(distances)} rows of NUMA distances for {len(given)} nodes: "
                    f"use one row per node"
                )
            distances = dict(zip(given, distances, strict=True))
        return cls(ordered, _checked_rows(ordered, distances))

    @classmethod
    def up_to(cls, node: int) -> NumaTopology:
        """Create a topology of the nodes from 0 to ``node``, all at the same distance."""
        return cls.equidistant(range(node + 1))

    @classmethod
    def equidistant(cls, nodes: Iterable[int]) -> NumaTopology:
        """Create a topology with known distances: 10 to the same node, 20 to any other."""
        ordered = tuple(sorted(nodes))
        _check_nodes(ordered)
        return cls(ordered, _default_distances(ordered))

    all_mask: int = attrs.field(init=False, eq=False, repr=False)
    """The set of all nodes of the machine."""

    @all_mask.default
    def _all_mask(self) -> int:
        return bitset.of(self.nodes)

    def distance(self, one: int, other: int) -> int:
        """Return the distance between two nodes, given by ID."""
        return self.distances[self.nodes.index(one)][self.nodes.index(other)]

    def average_distance(self, mask: int) -> float:
        """Return the mean distance of all ordered pairs of a set's nodes, including each node
        with itself (``NUMADistances.CalculateAverageFor``, topologymanager/numa_info.go,
        v1.32)."""
        places = [place for place, node in enumerate(self.nodes) if mask >> node & 1]
        if not places:
            return 0.0
        total = sum(self.distances[row][column] for row in places for column in places)
        return total / len(places) ** 2


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the node IDs of a set in ascending order."""
    return tuple(bitset.numbers(mask))


@lru_cache(maxsize=64)
def masks_in_order(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return all non-empty sets of nodes, smallest first, then in index order
    (``bitmask.IterateBitMasks``, topologymanager/bitmask, v1.32)."""
    return tuple(
        bitset.of(chosen)
        for size in range(1, len(nodes) + 1)
        for chosen in combinations(nodes, size)
    )


@lru_cache(maxsize=64)
def dense_index(nodes: tuple[int, ...]) -> dict[int, int]:
    """Map each node mask to the mask of the nodes' positions in ``nodes``.

    Transforms over all subsets need tables without gaps, but node IDs can have gaps.
    """
    index = {0: 0}
    for place, node in enumerate(nodes):
        index |= {mask | 1 << node: dense | 1 << place for mask, dense in index.items()}
    return index


@lru_cache(maxsize=64)
def subset_steps(size: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of a set and the same set with one more place, over ``size`` dense sets.

    Adding along the pairs in this order sums a table over all subsets. Adding in the other
    direction sums over all supersets. Subtracting undoes either (fast zeta and Moebius
    transforms).
    """
    places = [1 << place for place in range(size.bit_length() - 1)]
    return tuple(
        (dense, dense | step) for step in places for dense in range(size) if not dense & step
    )


def _check_nodes(ordered: tuple[int, ...]) -> None:
    if not ordered:
        raise NumaTopologyError("no NUMA nodes: use at least one")
    if ordered[0] < 0 or ordered[-1] > MAX_NODE_ID:
        invalid = ordered[0] if ordered[0] < 0 else ordered[-1]
        raise NumaTopologyError(f"invalid NUMA node id {invalid}: use 0 to {MAX_NODE_ID}")
    for one, other in pairwise(ordered):
        if one == other:
            raise NumaTopologyError(f"duplicate NUMA node {one}")


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
            raise NumaTopologyError(f"NUMA node {node} has no distances: use one row per node")
        if len(row) != len(ordered):
            raise NumaTopologyError(
                f"NUMA node {node} has {len(row)} distances for {len(ordered)} nodes: "
                f"use one distance per node"
            )
        if any(distance < 0 for distance in row):
            raise NumaTopologyError(f"NUMA node {node} has a negative distance: use 0 or more")
        rows.append(tuple(row))
    return tuple(rows)
