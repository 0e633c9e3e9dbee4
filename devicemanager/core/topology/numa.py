"""The machine's NUMA nodes and the distances between them.

A set of nodes is an integer, as in ``core.bitset``: bit ``i`` stands for the node with ID ``i``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise

import attrs

from devicemanager.core import bitset
from devicemanager.core.errors import RequestError
from devicemanager.core.printable import counted

LOCAL_DISTANCE = 10
"""Distance of a NUMA node to itself, for a machine that does not report distances (the default of
the ACPI table SLIT)."""
REMOTE_DISTANCE = 20
"""Distance between two NUMA nodes, for a machine that does not report distances (the default of the
ACPI table SLIT)."""

MAX_NODE_ID = 63
"""Largest NUMA node ID: the kubelet's bitmask has 64 bits (``bitMask.Add``, v1.32)."""


class NumaTopologyError(RequestError):
    """Error for invalid NUMA nodes or distances."""


@attrs.frozen(cache_hash=True)
class NumaTopology:
    """NUMA nodes of a machine and the distances between them.

    ``nodes`` are the sorted node IDs, which can have gaps. ``distances`` has one row and one
    column per node in the order of ``nodes``, as in ``/sys/devices/system/node/node*/distance``.
    """

    nodes: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    has_distances: bool = attrs.field(default=True, kw_only=True, eq=False)
    """True if the distances are known; otherwise they are the defaults of the ACPI table SLIT."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[int],
        distances: Mapping[int, Sequence[int]] | Sequence[Sequence[int]] | None = None,
    ) -> NumaTopology:
        """Create a topology from NUMA node IDs and the distances between the nodes.

        ``distances`` has one row of distances per node: a dict of rows by node ID, or a list of
        rows in the order of ``nodes``. Each row has one distance per node, in ascending order of
        the node IDs. Without ``distances``, a node has distance 10 to itself and 20 to all other
        nodes. Raises NumaTopologyError for invalid nodes or distances.
        """
        given = tuple(nodes)
        ordered = tuple(sorted(given))
        _check_nodes(ordered)
        if distances is None:
            return cls(ordered, _default_distances(ordered), has_distances=False)
        # Rows without node IDs are in the order in which the caller passed the nodes, so rows and
        # nodes are matched before the nodes are sorted.
        if not isinstance(distances, Mapping):
            if len(distances) != len(given):
                raise NumaTopologyError(
                    f"invalid NUMA distances: {counted(len(distances), 'row')} for "
                    f"{counted(len(given), 'node')}: use one row per node"
                )
            distances = dict(zip(given, distances, strict=True))
        return cls(ordered, _checked_rows(ordered, distances))

    @classmethod
    def up_to(cls, node: int) -> NumaTopology:
        """Create a topology of the NUMA nodes with the IDs 0 to ``node``, both included. Each node
        has distance 10 to itself and 20 to all other nodes."""
        return cls.equidistant(range(node + 1))

    @classmethod
    def equidistant(cls, nodes: Iterable[int]) -> NumaTopology:
        """Create a topology of the given NUMA nodes. Each node has distance 10 to itself and 20 to
        all other nodes. The distances count as known (``has_distances``)."""
        ordered = tuple(sorted(nodes))
        _check_nodes(ordered)
        return cls(ordered, _default_distances(ordered))

    all_mask: int = attrs.field(init=False, eq=False, repr=False)
    """The set of all nodes of the machine."""

    @all_mask.default
    def _all_mask(self) -> int:
        return bitset.of(self.nodes)

    def distance(self, one: int, other: int) -> int:
        """Return the distance between two NUMA nodes, given by ID."""
        return self.distances[self.nodes.index(one)][self.nodes.index(other)]

    def average_distance(self, mask: int) -> float:
        """Return the mean distance between the nodes of a set, over all ordered pairs.

        Pairs of a node with itself count (``NUMADistances.CalculateAverageFor``,
        topologymanager/numa_info.go, v1.32). The mean of an empty set is 0.
        """
        places = [place for place, node in enumerate(self.nodes) if mask >> node & 1]
        if not places:
            return 0.0
        total = sum(self.distances[row][column] for row in places for column in places)
        return total / len(places) ** 2


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the node IDs of the set ``mask`` in ascending order."""
    return tuple(bitset.numbers(mask))


@lru_cache(maxsize=64)
def masks_in_order(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return all non-empty sets of nodes, smallest first.

    Sets of the same size are in the order of the kubelet (``bitmask.IterateBitMasks``,
    topologymanager/bitmask, v1.32).
    """
    return tuple(
        bitset.of(chosen)
        for size in range(1, len(nodes) + 1)
        for chosen in combinations(nodes, size)
    )


@lru_cache(maxsize=64)
def dense_index(nodes: tuple[int, ...]) -> dict[int, int]:
    """Return a dict from each set of nodes to its *dense set*: the positions of the set's
    nodes in ``nodes``.

    All sets are bit masks. If ``nodes`` is (0, 4), node 4 has position 1. The set {4}, mask 16,
    then has the dense set {1}, mask 2. Node IDs can have gaps, but the masks of the dense sets are
    0, 1, 2 and so on. Therefore they can be the indexes of a list with one value for each set.
    """
    index = {0: 0}
    for place, node in enumerate(nodes):
        index |= {mask | 1 << node: dense | 1 << place for mask, dense in index.items()}
    return index


@lru_cache(maxsize=64)
def subset_steps(size: int) -> tuple[tuple[int, int], ...]:
    """Return the steps of the fast zeta and Moebius transforms, in order.

    The transforms change a list of ``size`` values. Each value belongs to a set of NUMA nodes, and
    its index is the dense set (see ``dense_index``). A step is a pair of indexes, of two sets that
    differ in one node; the smaller set is first.

    To give each set the sum over its subsets, add in each step the smaller set's value to the
    larger set's value. To give each set the sum over its supersets, add the larger set's value to
    the smaller set's value. To undo these sums, subtract instead of adding.
    """
    places = [1 << place for place in range(size.bit_length() - 1)]
    return tuple(
        (dense, dense | step) for step in places for dense in range(size) if not dense & step
    )


def _check_nodes(ordered: tuple[int, ...]) -> None:
    if not ordered:
        raise NumaTopologyError("invalid NUMA topology: it has no nodes: use at least one")
    if ordered[0] < 0 or ordered[-1] > MAX_NODE_ID:
        invalid = ordered[0] if ordered[0] < 0 else ordered[-1]
        raise NumaTopologyError(f"invalid NUMA node ID {invalid}: use 0 to {MAX_NODE_ID}")
    for one, other in pairwise(ordered):
        if one == other:
            raise NumaTopologyError(f"duplicate NUMA node {one}: list each node once")


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
            raise NumaTopologyError(
                f"invalid NUMA distances: no row for node {node}: use one row per node"
            )
        if len(row) != len(ordered):
            raise NumaTopologyError(
                f"NUMA node {node} has {counted(len(row), 'distance')} for "
                f"{counted(len(ordered), 'node')}: use one distance per node"
            )
        if any(distance < 0 for distance in row):
            raise NumaTopologyError(f"NUMA node {node} has a negative distance: use 0 or more")
        rows.append(tuple(row))
    return tuple(rows)
