"""Hints: the sets of NUMA nodes on which a request for devices fits.

Sets of devices are integers, one bit per device of the resource, so everything here
costs a few big-integer operations per group of devices, whatever their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import attrs

from devicemanager.core import bitset
from devicemanager.core.topology.numa import (
    NumaTopology,
    dense_index,
    masks_in_order,
    subset_steps,
)


class Hint(NamedTuple):
    """A set of NUMA nodes (``None``: no preference) and whether it is preferred.

    A tuple, not an attrs class: a machine of eight nodes has 255 hints per resource, and
    merging is remembered by their hash, which tuples compute at C speed.
    """

    mask: int | None
    preferred: bool


MEMO_NODES = 8
"""Answers are remembered for machines of up to this many nodes: 255 hints at most, so
that the memory they take stays small."""

Hints: TypeAlias = tuple[Hint, ...]
"""All hints of one resource, smallest sets first. Empty: the request fits nowhere."""


@attrs.frozen(eq=False, repr=False)
class DeviceLayout:
    """A resource's devices, grouped by the set of NUMA nodes they are on.

    Made once per device list; ``layout_hints`` then needs only a count per group.
    """

    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    """The machine's nodes each group is on; none is empty."""
    members: tuple[int, ...]
    """The devices of each group."""
    elsewhere: int
    """Devices with topology, but on none of the machine's nodes."""
    totals: tuple[int, ...]
    """How many devices each group has."""

    @classmethod
    def of(
        cls, topology: NumaTopology, per_node: Mapping[int, int], listed: int = -1
    ) -> DeviceLayout:
        """Group the ``listed`` devices (all); ``per_node`` maps node id → devices on it.

        Node ids the machine does not have are allowed; negative ones are no topology.
        """
        groups: dict[int, int] = {}
        with_topology = bitset.union(bits for node, bits in per_node.items() if node >= 0) & listed
        elsewhere = with_topology
        for node in topology.nodes:
            on_node = per_node.get(node, 0) & listed
            if not on_node:
                continue
            _split(groups, on_node, 1 << node, fresh=on_node & elsewhere)
            elsewhere &= ~on_node
        masks = tuple(sorted(groups))
        members = tuple(groups[mask] for mask in masks)
        totals = tuple(bits.bit_count() for bits in members)
        return cls(topology.nodes, masks, members, elsewhere, totals)

    @property
    def has_topology(self) -> bool:
        """Whether any device has a NUMA node (``deviceHasTopologyAlignment``, v1.32)."""
        return bool(self.members or self.elsewhere)


def _split(groups: dict[int, int], on_node: int, node_bit: int, *, fresh: int) -> None:
    """Divide every group into those on the node and the others."""
    for mask, bits in list(groups.items()):
        both = bits & on_node
        if both:
            groups[mask | node_bit] = both
            if both == bits:
                del groups[mask]
            else:
                groups[mask] = bits & ~on_node
    if fresh:
        groups[node_bit] = fresh


def generate_hints(
    topology: NumaTopology,
    per_node: Mapping[int, int],
    listed: int,
    available: int,
    reusable: int,
    request: int,
) -> Hints:
    """Hints of ``request`` devices out of ``available`` and ``reusable`` ones.

    ``generateDeviceTopologyHints`` (devicemanager/topology_hints.go, v1.32), from
    device sets as integers. Prefer ``layout_hints`` where the device list is kept.
    """
    layout = DeviceLayout.of(topology, per_node, listed)
    return layout_hints(layout, available, reusable, request)


def layout_hints(layout: DeviceLayout, available: int, reusable: int, request: int) -> Hints:
    """Like ``generate_hints``, for a device list that is already grouped.

    A hint asks only whether enough devices are there, so counts above the request mean
    the same as the request itself. Capping them keeps the remembered answers valid
    until a group really runs short.
    """
    if reusable & layout.elsewhere:
        return ()
    cap = max(request, 0)
    free = [(bits & available).bit_count() for bits in layout.members]
    kept_on: tuple[int, ...] = ()
    if reusable:
        reused = [(bits & reusable).bit_count() for bits in layout.members]
        kept_on = tuple(m for m, count in zip(layout.masks, reused, strict=True) if count)
        free = [a + b for a, b in zip(free, reused, strict=True)]
    hints_of = _hints_of_counts if len(layout.nodes) <= MEMO_NODES else _fresh_hints
    return hints_of(
        layout.nodes,
        layout.masks,
        tuple([min(count, cap) for count in layout.totals]),
        tuple([min(count, cap) for count in free]),
        kept_on,
        request,
    )


def resource_hints(
    layout: DeviceLayout,
    available: int,
    reusable: int,
    request: int,
    held: int = 0,
    held_count: int | None = None,
    *,
    aligns: bool = False,
) -> Hints | None:
    """A resource's hints with the rules around them; ``None`` is no preference.

    ``held`` are the devices the asker already has: hints then name exactly where they
    are, and there are none if their count is not the request. Give ``held_count`` if
    some are no longer listed and so have no bit. ``aligns``: there are hints, if only an
    empty list, though no device has a node. ``GetTopologyHints`` and
    ``GetPodTopologyHints`` (devicemanager/topology_hints.go, v1.32).
    """
    if not (layout.has_topology or aligns):
        return None
    count = held.bit_count() if held_count is None else held_count
    if count:
        return layout_hints(layout, held, 0, request) if count == request else ()
    if (available | reusable).bit_count() < request:
        return ()
    return layout_hints(layout, available, reusable, request)


def _fresh_hints(
    nodes: tuple[int, ...],
    masks: tuple[int, ...],
    totals: tuple[int, ...],
    usable: tuple[int, ...],
    kept_on: tuple[int, ...],
    request: int,
) -> Hints:
    """Hints from the counts of each group; ``kept_on`` are groups a hint must touch."""
    index = dense_index(nodes)
    listed_within = _counts_within(index, masks, totals)
    usable_within = _counts_within(index, masks, usable)
    # A device touches a set unless all its nodes lie outside: count those and subtract.
    all_listed, all_usable = listed_within[-1], usable_within[-1]
    smallest = len(nodes)
    fitting = []
    for candidate in _candidates(nodes):
        size, outside = candidate[:2]
        if size < smallest and all_listed - listed_within[outside] >= request:
            smallest = size
        if all_usable - usable_within[outside] >= request:
            fitting.append(candidate)
    return tuple(
        [
            hint if size == smallest else unpreferred
            for size, _, hint, unpreferred in fitting
            if _touches_all(hint.mask, kept_on)
        ]
    )


_hints_of_counts = lru_cache(maxsize=1024)(_fresh_hints)


@lru_cache(maxsize=8)
def _candidates(nodes: tuple[int, ...]) -> tuple[tuple[int, int, Hint, Hint], ...]:
    """Every set in order: its size, what is outside it, its hint preferred and not."""
    index = dense_index(nodes)
    full = len(index) - 1
    return tuple(
        (mask.bit_count(), full ^ index[mask], Hint(mask, True), Hint(mask, False))
        for mask in masks_in_order(nodes)
    )


def _touches_all(mask: int | None, kept_on: tuple[int, ...]) -> bool:
    return mask is None or all(mask & kept for kept in kept_on)


def _counts_within(
    index: Mapping[int, int], masks: Sequence[int], counts: Sequence[int]
) -> list[int]:
    """For each dense set of nodes, how many devices have all their nodes in it."""
    within = [0] * len(index)
    for mask, count in zip(masks, counts, strict=True):
        within[index[mask]] += count
    for smaller, larger in subset_steps(len(within)):
        within[larger] += within[smaller]
    return within
