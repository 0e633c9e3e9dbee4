"""Hints: the sets of NUMA nodes on which a request for devices fits."""

# Theory of operation. The kubelet tests every set of NUMA nodes and, for each, every device
# (``generateDeviceTopologyHints``, devicemanager/topology_hints.go, v1.32). A set is a hint if
# enough usable devices touch it, that is, have at least one of their nodes in it. With eight
# nodes and 10,000 devices this is 2.5 million steps per admission.
#
# Three observations make it cheap:
#
# * Devices on the same nodes behave alike. ``DeviceLayout`` groups them once per device list;
#   afterwards a group is a count, obtained by one big-integer operation.
# * A device touches a set unless all of its nodes are outside of it. The number of devices that
#   touch S is therefore the total minus the number within the complement of S, and the latter
#   comes from a sum over subsets (``_counts_within``).
# * Only whether a count reaches the request matters. Counts above the request are lowered to
#   it, so the cached answer stays valid until a group really runs short.
#
# A resource has one of four kinds of hints (``resource_hints``):
#
# 1. No device has a NUMA node: None, no preference.
# 2. The container already has devices: hints for exactly these, or none if the request differs.
# 3. Too few devices: an empty tuple, the request fits nowhere.
# 4. Otherwise the sets that fit. A hint is preferred if it has the size of the smallest set that
#    would fit if no device were in use.

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
    """A set of NUMA nodes, or None for no preference, and whether it is preferred."""

    # A tuple and not an attrs class: a machine with eight nodes has 255 hints per resource,
    # and merge results are cached by their hash, which tuples compute at C speed.

    mask: int | None
    preferred: bool


MEMO_NODES = 8
"""Results are cached for machines with up to this number of nodes. They have at most 255
hints, so the caches stay small."""

Hints: TypeAlias = tuple[Hint, ...]
"""All hints of one resource, smallest sets first. Empty: the request fits nowhere."""


@attrs.frozen(eq=False, repr=False)
class DeviceLayout:
    """Devices of a resource, grouped by the set of NUMA nodes they are on.

    Created once per device list; ``layout_hints`` then needs only one count per group.
    """

    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    """The set of the machine's nodes of each group; none is empty."""
    members: tuple[int, ...]
    """The devices of each group."""
    elsewhere: int
    """Devices with topology that are on none of the machine's nodes."""
    totals: tuple[int, ...]
    """The number of devices in each group."""

    @classmethod
    def of(
        cls,
        topology: NumaTopology,
        per_node: Mapping[int, int],
        listed: int = -1,
        with_topology: int | None = None,
    ) -> DeviceLayout:
        """Group the ``listed`` devices (default: all) by ``per_node``, which maps a node ID to
        its devices.

        Node IDs that the machine lacks are allowed. ``with_topology`` are the devices that name
        a node, if ``per_node`` does not have all of them.
        """
        groups: dict[int, int] = {}
        named = bitset.union(per_node.values()) if with_topology is None else with_topology
        elsewhere = named & listed
        for node in topology.nodes:
            on_node = per_node.get(node, 0) & listed
            if not on_node:
                continue
            # Splitting node by node costs one pass over the groups per node. Grouping by each
            # device's own set would cost a step per device.
            _split(groups, on_node, 1 << node, new=on_node & elsewhere)
            elsewhere &= ~on_node
        masks = tuple(sorted(groups))
        members = tuple(groups[mask] for mask in masks)
        totals = tuple(bits.bit_count() for bits in members)
        return cls(topology.nodes, masks, members, elsewhere, totals)

    @property
    def has_topology(self) -> bool:
        """True if any device has a NUMA node (``deviceHasTopologyAlignment``, v1.32)."""
        return bool(self.members or self.elsewhere)


def _split(groups: dict[int, int], on_node: int, node_bit: int, *, new: int) -> None:
    """Split each group into devices on the node and others; add ``new`` as a group."""
    for mask, bits in list(groups.items()):
        both = bits & on_node
        if both:
            groups[mask | node_bit] = both
            if both == bits:
                del groups[mask]
            else:
                groups[mask] = bits & ~on_node
    if new:
        groups[node_bit] = new


def layout_hints(layout: DeviceLayout, available: int, reusable: int, request: int) -> Hints:
    """Return the hints for ``request`` devices out of ``available`` and ``reusable`` ones
    (``generateDeviceTopologyHints``, devicemanager/topology_hints.go, v1.32)."""
    # Every hint must touch all reusable devices, and no hint touches these.
    if reusable & layout.elsewhere:
        return ()
    # A count above the request has the same effect as the request. Lowering it makes more
    # calls hit the cache.
    cap = max(request, 0)
    usable = [(bits & available).bit_count() for bits in layout.members]
    reusable_on: tuple[int, ...] = ()
    if reusable:
        reused = [(bits & reusable).bit_count() for bits in layout.members]
        reusable_on = tuple(m for m, count in zip(layout.masks, reused, strict=True) if count)
        usable = [a + b for a, b in zip(usable, reused, strict=True)]
    hints_of = _cached_hints if len(layout.nodes) <= MEMO_NODES else _hints_of_counts
    return hints_of(
        layout.nodes,
        layout.masks,
        tuple([min(count, cap) for count in layout.totals]),
        tuple([min(count, cap) for count in usable]),
        reusable_on,
        request,
    )


def resource_hints(
    layout: DeviceLayout,
    available: int,
    reusable: int,
    request: int,
    allocated: int = 0,
    allocated_count: int | None = None,
    *,
    aligns: bool = False,
) -> Hints | None:
    """Return a resource's hints; None stands for no preference.

    ``allocated`` devices belong to the container or pod already. Hints then name their nodes
    only, and there are none if their number differs from the request. Pass
    ``allocated_count`` if some are no longer listed and therefore have no bit. With
    ``aligns``, the resource has hints, possibly none, although no device has a node.
    Follows ``GetTopologyHints`` and ``GetPodTopologyHints`` (devicemanager/topology_hints.go,
    v1.32).
    """
    if not (layout.has_topology or aligns):
        return None
    count = allocated.bit_count() if allocated_count is None else allocated_count
    if count:
        return layout_hints(layout, allocated, 0, request) if count == request else ()
    if (available | reusable).bit_count() < request:
        return ()
    return layout_hints(layout, available, reusable, request)


def _hints_of_counts(
    nodes: tuple[int, ...],
    masks: tuple[int, ...],
    totals: tuple[int, ...],
    usable: tuple[int, ...],
    reusable_on: tuple[int, ...],
    request: int,
) -> Hints:
    """Return the hints that include a NUMA node of every group in ``reusable_on``."""
    index = dense_index(nodes)
    listed_within = _counts_within(index, masks, totals)
    usable_within = _counts_within(index, masks, usable)
    # A device touches a set unless all of its nodes are outside: subtract those.
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
            if _touches_all(hint.mask, reusable_on)
        ]
    )


_cached_hints = lru_cache(maxsize=1024)(_hints_of_counts)


@lru_cache(maxsize=8)
def _candidates(nodes: tuple[int, ...]) -> tuple[tuple[int, int, Hint, Hint], ...]:
    """Return each set in order: its size, its complement, its preferred and other hint."""
    index = dense_index(nodes)
    full = len(index) - 1
    return tuple(
        (mask.bit_count(), full ^ index[mask], Hint(mask, True), Hint(mask, False))
        for mask in masks_in_order(nodes)
    )


def _touches_all(mask: int | None, reusable_on: tuple[int, ...]) -> bool:
    return mask is None or all(mask & group for group in reusable_on)


def _counts_within(
    index: Mapping[int, int], masks: Sequence[int], counts: Sequence[int]
) -> list[int]:
    """Return, for each dense set of nodes, the number of devices with all nodes in it."""
    within = [0] * len(index)
    for mask, count in zip(masks, counts, strict=True):
        within[index[mask]] += count
    for smaller, larger in subset_steps(len(within)):
        within[larger] += within[smaller]
    return within
