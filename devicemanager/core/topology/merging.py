"""Merging: from the hints of every resource to the one affinity they agree on.

The kubelet compares every combination of one hint per resource, which on eight nodes and
three resources is sixteen million. Its order of preference is total, so the winner can
be told from the set of reachable results alone, and that set comes from a transform over
the subsets of the machine's nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from devicemanager.core.topology.hints import MEMO_NODES, Hint, Hints
from devicemanager.core.topology.numa import NumaTopology, dense_index, subset_steps

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


def merge_hints(
    topology: NumaTopology, hints: tuple[Hints, ...], prefer_closest: bool = False
) -> Hint:
    """The best combination of one hint per resource; its mask is never ``None``.

    ``HintMerger.Merge`` (topologymanager/policy.go, v1.32). Nothing possible: all
    nodes, not preferred. Remembered for machines of up to eight nodes.
    """
    merge = _merged if len(topology.nodes) <= MEMO_NODES else _merge
    return merge(topology, hints, prefer_closest)


def _merge(topology: NumaTopology, hints: tuple[Hints, ...], prefer_closest: bool) -> Hint:
    preferred = preferred_masks(topology, hints)
    if preferred:
        return Hint(fittest(topology, preferred, prefer_closest), True)
    reachable = reachable_masks(topology, hints)
    if not reachable:
        return Hint(topology.all_mask, False)
    wanted = wanted_size(hints)
    size = min((mask.bit_count() for mask in reachable), key=lambda size: _misfit(wanted, size))
    fitting = [mask for mask in reachable if mask.bit_count() == size]
    return Hint(fittest(topology, fitting, prefer_closest), False)


def merge_narrowest(topology: NumaTopology, hints: Sequence[Hints]) -> Hint:
    """The same up to v1.23 (``mergeFilteredHints``, topologymanager/policy.go, v1.23).

    A combination is preferred if all of its hints are, whatever nodes each names. Among
    equals the fewest nodes count.
    """
    preferred = [tuple(hint for hint in one if hint.preferred) for one in hints]
    for each, is_preferred in ((preferred, True), (hints, False)):
        reachable = reachable_masks(topology, each)
        if reachable:
            return Hint(fittest(topology, reachable, False), is_preferred)
    return Hint(topology.all_mask, False)


def ranked_narrowest(topology: NumaTopology, hints: Sequence[Hints]) -> list[int]:
    """Every reachable set, in the order in which ``merge_narrowest`` chooses."""
    return sorted(reachable_masks(topology, hints), key=lambda mask: (mask.bit_count(), mask))


def ranked_unpreferred(
    topology: NumaTopology, hints: Sequence[Hints], prefer_closest: bool
) -> list[int]:
    """Every reachable set, in the order in which an unpreferred result is chosen."""
    wanted = wanted_size(hints)

    def rank(mask: int) -> tuple[bool, int, float, int]:
        distance = topology.average_distance(mask) if prefer_closest else 0.0
        return (*_misfit(wanted, mask.bit_count()), distance, mask)

    return sorted(reachable_masks(topology, hints), key=rank)


_merged = lru_cache(maxsize=1024)(_merge)


def fittest(topology: NumaTopology, masks: Collection[int], prefer_closest: bool) -> int:
    """Of sets of nodes: fewest nodes, then the closest ones if asked for, then the lowest.

    ``NUMAInfo.Narrowest`` and ``NUMAInfo.Closest`` (topologymanager/numa_info.go, v1.32).
    """
    size = min(mask.bit_count() for mask in masks)
    narrowest = [mask for mask in masks if mask.bit_count() == size]
    if prefer_closest:
        return min(narrowest, key=lambda mask: (topology.average_distance(mask), mask))
    return min(narrowest)


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


def _misfit(wanted: int, size: int) -> tuple[bool, int]:
    """Sorts sizes: the wanted one, then smaller ones downwards, then larger ones upwards.

    ``HintMerger.compare`` (topologymanager/policy.go, v1.32).
    """
    return size > wanted, abs(size - wanted)


def _add_supersets(table: list[int], sign: int) -> None:
    """Add to (or with -1 take from) each set what its proper supersets hold, in place."""
    for smaller, larger in subset_steps(len(table)):
        table[smaller] += sign * table[larger]
