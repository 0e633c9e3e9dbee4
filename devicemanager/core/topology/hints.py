"""Topology hints: the sets of NUMA nodes on which a request for devices fits."""

# Theory of operation. The kubelet tests every device for every set of NUMA nodes
# (``generateDeviceTopologyHints``, devicemanager/topology_hints.go, v1.32). A device *touches* a
# set if at least one of its nodes is in the set. A set is a hint if enough usable devices touch
# it. With eight nodes and 10,000 devices this takes 2.5 million steps per admission.
#
# Three observations reduce the cost:
#
# * Devices on the same nodes touch the same sets. ``DeviceLayout`` groups them once per device
#   list. After that, one big-integer operation counts the devices of a group.
# * A device touches a set unless all of its nodes are outside of the set. Therefore the number of
#   devices that touch S is the total minus the number of devices with all nodes in the complement
#   of S. A sum over subsets gives the second number (``_counts_within``).
# * It matters only whether a count reaches the request. Counts above the request are lowered to
#   the request, so a cached result stays valid until a group has too few devices.
#
# A resource has one of four kinds of hints (``resource_hints``):
#
# 1. No device has a NUMA node: None, which means no preference.
# 2. The container already has devices: hints for exactly these devices, or an empty tuple if the
#    request differs from their number.
# 3. Too few devices: an empty tuple, which means that the request fits nowhere.
# 4. All other cases: a hint for each set on which the request fits. A hint is preferred if it has
#    the size of the smallest set on which the request would fit if no device were in use.

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
    """A topology hint: a set of NUMA nodes on which a request fits.

    ``mask`` is None if the request has no preference. ``preferred`` is True if the request could
    not fit on fewer nodes, even if no device were in use.
    """

    # This is a tuple, because tuples compute their hash at C speed. A machine with eight nodes
    # has 255 hints per resource, and merge results are cached by the hash of the hints.

    mask: int | None
    preferred: bool


MEMO_NODES = 8
"""Largest number of NUMA nodes for which results are cached. A machine with this number has at
most 255 hints per resource, so the caches stay small."""

Hints: TypeAlias = tuple[Hint, ...]
"""All hints of one resource, those with the fewest NUMA nodes first. Empty if the request fits
nowhere."""


@attrs.frozen(eq=False, repr=False)
class DeviceLayout:
    """Devices of a resource, grouped by the set of NUMA nodes that they are on.

    A layout is created once per device list. ``layout_hints`` then needs only one count per group.
    """

    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    """The set of NUMA nodes of each group; no set is empty."""
    members: tuple[int, ...]
    """The set of devices of each group, in the order of ``masks``."""
    elsewhere: int
    """The set of devices that are only on NUMA nodes that the machine does not have."""
    totals: tuple[int, ...]
    """The number of devices in each group, in the order of ``masks``."""

    @classmethod
    def of(
        cls,
        topology: NumaTopology,
        per_node: Mapping[int, int],
        listed: int = -1,
        with_topology: int | None = None,
    ) -> DeviceLayout:
        """Group devices by the set of NUMA nodes that they are on.

        ``per_node`` maps a NUMA node ID to the set of devices on this node. Nodes that the machine
        does not have are allowed. Only devices in the set ``listed`` are grouped (default: all).
        ``with_topology`` is the set of all devices that name a NUMA node, even a node that
        ``per_node`` does not have. Default: all devices in ``per_node``.
        """
        groups: dict[int, int] = {}
        named = bitset.union(per_node.values()) if with_topology is None else with_topology
        elsewhere = named & listed
        for node in topology.nodes:
            on_node = per_node.get(node, 0) & listed
            if not on_node:
                continue
            # This costs one pass over the groups per node. Grouping the devices one by one would
            # cost a step per device.
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
    """Split each group into the devices on one node and all other devices.

    ``groups`` maps a set of nodes to devices and is changed in place. ``on_node`` are the devices
    on the node, and ``node_bit`` is the bit of the node. The devices ``new`` are on the node but in
    no group yet; they become the group of this node alone.
    """
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
    """Return the hints for a request of devices (``generateDeviceTopologyHints``,
    devicemanager/topology_hints.go, v1.32).

    ``available`` is the set of devices that the request can use, except for reusable devices.
    ``reusable`` is the set of devices that earlier containers of the pod have and that the request
    can also use. Each hint has at least one NUMA node of every reusable device.
    """
    # All reusable devices must touch every hint, but devices in ``elsewhere`` touch no hint.
    if reusable & layout.elsewhere:
        return ()
    # Counts above the request are lowered to the request, so that more calls hit the cache.
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
    """Return the hints of a device resource; None means that the request has no preference.

    Follows ``GetTopologyHints`` and ``GetPodTopologyHints`` (devicemanager/topology_hints.go,
    v1.32). The result is None if no device has a NUMA node, unless ``aligns`` is True.
    ``layout_hints`` explains ``available`` and ``reusable``.

    ``allocated`` is the set of devices that the container or pod already has. ``allocated_count``
    is their number, including devices that the plugin no longer lists (default: the size of
    ``allocated``). If it is not 0, the hints use only the devices in ``allocated``, and the
    result is empty if ``allocated_count`` differs from ``request``.
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
    """Return the hints for a request, from the number of devices of each group.

    ``masks`` has the node set of each group, ``totals`` its number of devices, and ``usable`` its
    number of usable devices. Every hint has a node of each set in ``reusable_on``.
    """
    index = dense_index(nodes)
    listed_within = _counts_within(index, masks, totals)
    usable_within = _counts_within(index, masks, usable)
    # A device touches a set unless all of its nodes are outside of the set.
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
    """Return all non-empty sets of nodes, smallest first.

    Each item has the set's size, its complement as a dense set (``numa.dense_index``), and two
    hints for the set: a preferred hint, and a hint that is not preferred.
    """
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
    """Return, for each dense set of nodes, the number of devices whose nodes are all in the set.

    ``index`` maps a set to its dense set. ``counts`` has the number of devices of each mask.
    """
    within = [0] * len(index)
    for mask, count in zip(masks, counts, strict=True):
        within[index[mask]] += count
    for smaller, larger in subset_steps(len(within)):
        within[larger] += within[smaller]
    return within
