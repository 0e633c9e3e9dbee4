"""Merging: from the hints of every resource to the one affinity they agree on.

The kubelet compares every combination of one hint per resource, which on eight nodes and
three resources is sixteen million. Its order of preference is total, so the winner can
be told from the set of reachable results alone, and that set comes from a transform over
the subsets of the machine's nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from devicemanager.core.topology.hints import Hint, Hints
from devicemanager.core.topology.numa import NumaTopology, dense_index

ProviderHints: TypeAlias = Mapping[str, Hints | None]
"""One provider's answer: resource → hints, ``None`` for no preference."""

NO_PREFERENCE: Hints = (Hint(None, True),)
NOWHERE: Hints = (Hint(None, False),)


def flatten_hints(providers: Sequence[ProviderHints]) -> tuple[Hints, ...]:
    """The hints to combine: one list per resource of every provider.

    A resource without preference changes no combination, so it is left out; one that
    fits nowhere counts as a single unpreferred hint. ``filterProvidersHints``
    (topologymanager/policy.go, v1.32).
    """
    return tuple(
        [
            hints or NOWHERE
            for provider in providers
            for hints in provider.values()
            if hints is not None and hints != NO_PREFERENCE
        ]
    )


def only_single_nodes(hints: Iterable[Hints]) -> tuple[Hints, ...]:
    """Each list's preferred hints that name one node or none.

    ``filterSingleNumaHints`` (topologymanager/policy_single_numa_node.go, v1.32).
    """
    return tuple(
        tuple(
            hint
            for hint in one
            if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
        )
        for one in hints
    )


@lru_cache(maxsize=1024)
def merge_hints(
    topology: NumaTopology, hints: tuple[Hints, ...], prefer_closest: bool = False
) -> Hint:
    """The best combination of one hint per resource; its mask is never ``None``.

    ``HintMerger.Merge`` (topologymanager/policy.go, v1.32). Nothing possible: all
    nodes, not preferred.
    """
    preferred = preferred_masks(topology, hints)
    if preferred:
        return Hint(min(preferred, key=lambda m: fitness(topology, m, prefer_closest)), True)
    reachable = reachable_masks(topology, hints)
    if not reachable:
        return Hint(topology.all_mask, False)
    wanted = wanted_size(hints)
    best = min(
        reachable,
        key=lambda m: (*_distance_to(wanted, m), *fitness(topology, m, prefer_closest)),
    )
    return Hint(best, False)


def fitness(topology: NumaTopology, mask: int, prefer_closest: bool) -> tuple[int, float, int]:
    """Sorts fitter sets first: fewer nodes, then closer ones if asked, then lower ones.

    ``NUMAInfo.Narrowest`` and ``NUMAInfo.Closest`` (topologymanager/numa_info.go, v1.32).
    """
    distance = topology.average_distance(mask) if prefer_closest else 0.0
    return mask.bit_count(), distance, mask


def preferred_masks(topology: NumaTopology, hints: Sequence[Hints]) -> set[int]:
    """Results of the combinations that are preferred: the same set for every resource."""
    agreed: set[int | None] = {None}
    for one in hints:
        masks = {hint.mask for hint in one if hint.preferred}
        if None in agreed:
            agreed = masks if None not in masks else agreed | masks
        else:
            agreed = agreed if None in masks else agreed & masks
    everything = topology.all_mask
    results = {everything if mask is None else mask & everything for mask in agreed}
    return results - {0}


def reachable_masks(topology: NumaTopology, hints: Sequence[Hints]) -> list[int]:
    """Every non-empty intersection of one hint per resource.

    For each set S, count the combinations whose every member contains S: that is a
    product over the resources. Taking out what larger sets contribute leaves the
    combinations that meet in exactly S.
    """
    index = dense_index(topology.nodes)
    everything = topology.all_mask
    ways = [1] * len(index)
    for one in hints:
        containing = [0] * len(index)
        for mask, _ in one:
            containing[index[everything if mask is None else mask & everything]] += 1
        _add_supersets(containing, 1)
        ways = [a * b for a, b in zip(ways, containing, strict=True)]
    _add_supersets(ways, -1)
    return [mask for mask, place in index.items() if mask and ways[place]]


def wanted_size(hints: Iterable[Hints]) -> int:
    """The size an unpreferred result should have: what the neediest resource needs.

    ``maxOfMinAffinityCounts`` (topologymanager/policy.go, v1.32).
    """
    sizes = [
        min((mask.bit_count() for mask, _ in one if mask is not None), default=0) for one in hints
    ]
    return max(sizes, default=0)


def _distance_to(wanted: int, mask: int) -> tuple[bool, int]:
    """Sorts sizes: the wanted one, then smaller ones downwards, then larger ones upwards."""
    size = mask.bit_count()
    return size > wanted, abs(size - wanted)


def _add_supersets(table: list[int], sign: int) -> None:
    """Add to (or with -1 take from) each set what its proper supersets hold, in place."""
    step = 1
    while step < len(table):
        for place in range(len(table)):
            if not place & step:
                table[place] += sign * table[place | step]
        step <<= 1
