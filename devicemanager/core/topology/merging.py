"""Merge the topology hints of all resources to one affinity: a set of NUMA nodes."""

# Theory of operation. A combination has one hint of each resource. Its result is the intersection
# of their node sets. The kubelet compares all combinations (``HintMerger.Merge``,
# topologymanager/policy.go, v1.32): sixteen million for three resources on eight nodes.
#
# The kubelet's order of preference is total, and compares only results and whether they are
# preferred. Therefore the set of *reachable* results determines the best result. This set can be
# computed without enumerating combinations:
#
# * Preferred results (``preferred_masks``): since v1.24 all hints of the combination must be
#   preferred and name the same set. The results are the sets that all resources prefer.
# * All results (``reachable_masks``): count, for each set S, the combinations whose hints all
#   contain S. This is a product over the resources. Subtracting the counts of larger sets leaves
#   the combinations whose intersection is exactly S (a Moebius transform over subsets).
#
# There are three cases for the affinity (``_merge``):
#
# 1. Some results are preferred: the fittest of them.
# 2. No result is preferred. The wanted size is the number of nodes that the most demanding
#    resource needs (``wanted_size``). Of the results with this size, the fittest. If there are
#    none, the next smaller size counts, and if there is none, the next larger size.
# 3. There is no result: all nodes, not preferred.
#
# "Fittest" means fewest nodes, then smallest average distance with the policy option
# ``prefer-closest-numa-nodes``, then the lowest node IDs.

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from devicemanager.core.topology.hints import MEMO_NODES, Hint, Hints
from devicemanager.core.topology.numa import NumaTopology, dense_index, subset_steps

ProviderHints: TypeAlias = Mapping[str, Hints | None]
"""The hints of one provider, by resource; None means no preference."""

NO_PREFERENCE: Hints = (Hint(None, True),)
NOWHERE: Hints = (Hint(None, False),)


def flatten_hints(providers: Sequence[ProviderHints]) -> tuple[Hints, ...]:
    """Return the hints of all providers: one tuple of hints for each resource.

    Resources without a preference for NUMA nodes are left out. A resource whose request fits
    nowhere gets one hint that is not preferred (``filterProvidersHints``,
    topologymanager/policy.go, v1.32).
    """
    # Resources without preference are left out, because they change no combination.
    return tuple(
        [
            hints or NOWHERE
            for provider in providers
            for hints in provider.values()
            if hints is not None and hints != NO_PREFERENCE
        ]
    )


def only_single_nodes(hints: Iterable[Hints]) -> tuple[Hints, ...]:
    """Return, for each resource, the preferred hints whose mask is None or has one NUMA node
    (``filterSingleNumaHints``, topologymanager/policy_single_numa_node.go, v1.32)."""
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
    """Merge the hints of all resources, and return the best result as a hint. The hint's mask is
    never None.

    Follows ``HintMerger.Merge`` (topologymanager/policy.go, v1.32). Results are cached for machines
    with up to eight nodes.
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
    """Merge the hints of all resources by the rule of kubelets up to v1.23, and return the best
    result as a hint (``mergeFilteredHints``, topologymanager/policy.go, v1.23).

    A combination has one hint of each resource. It is preferred if all of its hints are preferred,
    even if the hints name different nodes. Preferred combinations come first. Then the combination
    with the fewest common nodes is the best.
    """
    preferred = [tuple(hint for hint in one if hint.preferred) for one in hints]
    for each, is_preferred in ((preferred, True), (hints, False)):
        reachable = reachable_masks(topology, each)
        if reachable:
            return Hint(fittest(topology, reachable, False), is_preferred)
    return Hint(topology.all_mask, False)


def ranked_narrowest(topology: NumaTopology, hints: Sequence[Hints]) -> list[int]:
    """Return the sets of NUMA nodes that result from all combinations of hints, best first.

    The order is that of ``merge_narrowest``: fewest nodes, then lowest node IDs.
    """
    return sorted(reachable_masks(topology, hints), key=lambda mask: (mask.bit_count(), mask))


def ranked_unpreferred(
    topology: NumaTopology, hints: Sequence[Hints], prefer_closest: bool
) -> list[int]:
    """Return the sets of NUMA nodes that result from all combinations of hints, best first.

    The order is that of the kubelet for results that are not preferred. Sets with the wanted number
    of nodes (``wanted_size``) come first, then smaller sets, then larger sets. With
    ``prefer_closest``, the smallest average distance decides between sets of the same size. Then
    the lowest node IDs decide.
    """
    wanted = wanted_size(hints)

    def rank(mask: int) -> tuple[bool, int, float, int]:
        distance = topology.average_distance(mask) if prefer_closest else 0.0
        return (*_misfit(wanted, mask.bit_count()), distance, mask)

    return sorted(reachable_masks(topology, hints), key=rank)


_merged = lru_cache(maxsize=1024)(_merge)


def fittest(topology: NumaTopology, masks: Collection[int], prefer_closest: bool) -> int:
    """Return the best of several sets of NUMA nodes.

    The best set has the fewest nodes. With ``prefer_closest``, the smallest average distance
    decides between sets of the same size. Then the lowest node IDs decide
    (``NUMAInfo.Narrowest`` and ``NUMAInfo.Closest``, topologymanager/numa_info.go, v1.32).
    """
    size = min(mask.bit_count() for mask in masks)
    narrowest = [mask for mask in masks if mask.bit_count() == size]
    if prefer_closest:
        return min(narrowest, key=lambda mask: (topology.average_distance(mask), mask))
    return min(narrowest)


def preferred_masks(topology: NumaTopology, hints: Sequence[Hints]) -> set[int]:
    """Return the sets of NUMA nodes for which every resource has a preferred hint."""
    agreed: set[int | None] = {None}
    for one in hints:
        masks = {hint.mask for hint in one if hint.preferred}
        # A hint without a mask agrees with any set.
        if None in agreed:
            agreed = masks if None not in masks else agreed | masks
        else:
            agreed = agreed if None in masks else agreed & masks
    everything = topology.all_mask
    results = {everything if mask is None else mask & everything for mask in agreed}
    return results - {0}


def reachable_masks(topology: NumaTopology, hints: Sequence[Hints]) -> list[int]:
    """Return all non-empty sets of NUMA nodes that are the intersection of one hint per
    resource."""
    # ``ways`` first counts, for each set, the combinations whose hints all contain the set. The
    # counts are exact, so after the subtraction a set has 0 if no combination results in it.
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
    """Return the best number of nodes for a merge result that is not preferred.

    Each resource needs at least as many nodes as its smallest hint has. The largest of these
    numbers is returned (``maxOfMinAffinityCounts``, topologymanager/policy.go, v1.32).
    """
    sizes = [
        min((mask.bit_count() for mask, _ in one if mask is not None), default=0) for one in hints
    ]
    return max(sizes, default=0)


def _misfit(wanted: int, size: int) -> tuple[bool, int]:
    """Return a sort key for the number of nodes of a result.

    The wanted number sorts first, then smaller numbers in descending order, then larger numbers
    in ascending order (``HintMerger.compare``, topologymanager/policy.go, v1.32).
    """
    return size > wanted, abs(size - wanted)


def _add_supersets(table: list[int], sign: int) -> None:
    """Add to each set's value the values of its proper supersets, in place.

    ``table`` has one value per dense set. With ``sign`` -1, undo the addition.
    """
    for smaller, larger in subset_steps(len(table)):
        table[smaller] += sign * table[larger]
