"""Memory by NUMA node, allocated as by the policy ``Static`` of the kubelet's memory manager.

One rule of the kubelet is not implemented: a NUMA node that is part of an allocation on several
nodes cannot serve an allocation on a single node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeAlias

import attrs

from devicemanager.core import bitset
from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, effective_request
from devicemanager.core.providers.provider import (
    HUGEPAGES_PREFIX,
    MEMORY,
    CpusAndMemory,
    MemoryBlock,
    combined,
    is_guaranteed,
    makes_reusable,
)
from devicemanager.core.topology import Hint, Hints, NumaTopology, ProviderHints
from devicemanager.core.topology.numa import masks_in_order, nodes_of

NO_NODES_WITH_ENOUGH = (
    "[memorymanager] failed to get the default NUMA affinity, "
    "no NUMA nodes with enough memory is available"
)
"""Message of ``staticPolicy.getDefaultHint`` (memorymanager/policy_static.go, v1.32)."""
NO_NODES_TO_EXTEND = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
"""Message of ``staticPolicy.extendTopologyManagerHint`` (memorymanager/policy_static.go, v1.32)."""

Amounts: TypeAlias = Mapping[tuple[str, int], int]
"""Mapping from pairs of memory type (such as ``memory``) and NUMA node ID to bytes."""

Wanted: TypeAlias = Mapping[str, int]
"""Requested bytes by memory type, such as ``memory``."""


@attrs.frozen
class PodMemory:
    """Memory of one pod: the blocks that PodResources reports, and the bytes charged to each NUMA
    node."""

    # Blocks and charges differ: a block on two nodes is reported with both, but its bytes are
    # charged to the first node until that is full.

    blocks: Mapping[ContainerName, tuple[MemoryBlock, ...]] = attrs.field(factory=dict)
    charged: Amounts = attrs.field(factory=dict)
    reusable: Amounts = attrs.field(factory=dict)
    """The bytes, included in ``charged``, that later containers of the pod can reuse."""


NOTHING = PodMemory()


@attrs.frozen
class MemoryProvider:
    """Hint provider for memory and hugepages; it records the amounts allocated to each container.

    ``capacity`` maps pairs of memory type and NUMA node ID to bytes. Memory types are ``memory``
    and ``hugepages-<size>``. Memory is allocated only to Guaranteed pods.
    """

    topology: NumaTopology
    capacity: Amounts
    _pods: Mapping[PodUid, PodMemory] = attrs.field(factory=dict)
    _free: Amounts = attrs.field()
    """Free bytes: ``capacity`` minus the charges of all pods."""

    @_free.default
    def _all_of_it(self) -> Amounts:
        return self.capacity

    @classmethod
    def of(
        cls, topology: NumaTopology, capacity: Mapping[str, Mapping[int, int]]
    ) -> MemoryProvider:
        """Create a provider. ``capacity`` maps each memory type to a mapping from NUMA node ID to
        bytes."""
        amounts = {
            (type_, node): size for type_, nodes in capacity.items() for node, size in nodes.items()
        }
        return cls(topology, amounts)

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return the hints for one container's memory (``staticPolicy.GetTopologyHints``,
        memorymanager/policy_static.go, v1.32)."""
        wanted = self._wanted(pod, container)
        blocks = self._pods.get(pod.uid, NOTHING).blocks.get(container.name)
        if blocks is not None:
            return _hints_of_blocks(blocks, wanted)
        return self._hints_where_free(pod.uid, wanted)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return the hints for the memory of a whole pod (``staticPolicy.GetPodTopologyHints``,
        memorymanager/policy_static.go, v1.32)."""
        wanted = self._pod_wanted(pod)
        if pod.uid in self._pods:
            return self._hints_where_allocated(pod.uid, wanted)
        return self._hints_where_free(pod.uid, wanted)

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """Return a provider in which the container's memory is allocated
        (``staticPolicy.Allocate``, memorymanager/policy_static.go, v1.32).

        Raises AllocationError if no set of NUMA nodes has enough free memory.
        """
        wanted = self._wanted(pod, container)
        before = self._pods.get(pod.uid, NOTHING)
        if not wanted or container.name in before.blocks:
            return self
        mask = self._nodes_for(pod.uid, wanted, affinity)
        after = self._charge(before, wanted, mask, keep=makes_reusable(pod, container))
        # ``after.charged`` includes the earlier charges of the pod, so these are given back first.
        free = _without(_with(self._free, before.charged), after.charged)
        blocks = tuple(MemoryBlock(t, size, nodes_of(mask)) for t, size in sorted(wanted.items()))
        after = attrs.evolve(after, blocks={**before.blocks, container.name: blocks})
        return attrs.evolve(self, pods={**self._pods, pod.uid: after}, free=free)

    def release(self, pod_uid: PodUid) -> Self:
        """Return a provider in which no memory is allocated to the pod."""
        if pod_uid not in self._pods:
            return self
        return attrs.evolve(
            self,
            pods={uid: memory for uid, memory in self._pods.items() if uid != pod_uid},
            free=_with(self._free, self._pods[pod_uid].charged),
        )

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return the memory blocks allocated to a container, one per memory type."""
        return CpusAndMemory(memory=self._pods.get(pod_uid, NOTHING).blocks.get(container, ()))

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """Return the memory of a whole pod, as one block per memory type.

        The size of a block is the sum over all containers. Its nodes are all NUMA nodes of the
        containers' blocks. Memory that a later container reuses counts once.
        """
        pod = self._pods.get(pod_uid, NOTHING)
        nodes: dict[str, set[int]] = {}
        for block in (block for blocks in pod.blocks.values() for block in blocks):
            nodes.setdefault(block.type, set()).update(block.nodes)
        # The sizes come from the charges: two blocks can have the same reused memory.
        sizes = {t: sum(n for (type_, _), n in pod.charged.items() if type_ == t) for t in nodes}
        return CpusAndMemory(
            memory=tuple(MemoryBlock(t, sizes[t], tuple(sorted(nodes[t]))) for t in sorted(nodes))
        )

    def allocatable(self) -> CpusAndMemory:
        """Return the allocatable memory, as one block per memory type and NUMA node."""
        return combined(
            CpusAndMemory(memory=(MemoryBlock(type_, size, (node,)),))
            for (type_, node), size in self.capacity.items()
        )

    def free(self) -> dict[tuple[str, int], int]:
        """Return a mapping from pairs of memory type and NUMA node ID to free bytes."""
        return dict(self._free)

    def _wanted(self, pod: Pod, container: Container) -> dict[str, int]:
        """Return the container's memory requests in bytes by memory type; empty if the pod is not
        Guaranteed."""
        if not is_guaranteed(pod):
            return {}
        requests = {**container.limits, **container.requests}
        # Memory and hugepages count even if no NUMA node has them. The request then fits nowhere;
        # if it were left out, the pod would be admitted.
        types = {type_ for type_, _ in self.capacity}
        return {
            name: size
            for name, size in sorted(requests.items())
            if size and (name in types or name == MEMORY or name.startswith(HUGEPAGES_PREFIX))
        }

    def _pod_wanted(self, pod: Pod) -> dict[str, int]:
        each = {c.name: self._wanted(pod, c) for c, _ in pod.all_containers()}
        types = sorted({type_ for wanted in each.values() for type_ in wanted})

        def total(type_: str) -> int:
            return effective_request(pod, lambda container: each[container.name].get(type_, 0))

        return {type_: total(type_) for type_ in types}

    def _hints_where_free(self, pod_uid: PodUid, wanted: Wanted) -> dict[str, Hints]:
        """Return hints for the free memory; an empty dict if the request fits nowhere."""
        # Without hints the topology manager admits the pod. ``Allocate`` then rejects it with
        # the memory manager's message (``calculateHints``, v1.32).
        fitting = self._fitting(pod_uid, wanted)
        return dict.fromkeys(wanted, fitting) if fitting else {}

    def _hints_where_allocated(self, pod_uid: PodUid, wanted: Wanted) -> dict[str, Hints]:
        """Return hints for a pod that already has memory: the NUMA nodes of its memory, or no hint
        if the pod wants more memory."""
        blocks = self.pod_allocated(pod_uid).memory
        mask = bitset.of(node for block in blocks for node in block.nodes)
        sizes = {t: sum(block.size for block in blocks if block.type == t) for t in wanted}
        enough = all(sizes[type_] >= size for type_, size in wanted.items())
        return {type_: (Hint(mask, True),) if enough else () for type_ in wanted}

    def _available(self, pod_uid: PodUid) -> Amounts:
        return _with(self._free, self._pods.get(pod_uid, NOTHING).reusable)

    def _fitting(self, pod_uid: PodUid, wanted: Wanted) -> Hints:
        """Return hints for all sets of NUMA nodes with enough available memory of all wanted types
        (``calculateHints``, v1.32).

        The preferred hints have the smallest size that would be enough if no memory were in use.
        """
        masks = masks_in_order(self.topology.nodes)
        could = [mask for mask in masks if _fits(self.capacity, wanted, mask)]
        smallest = could[0].bit_count() if could else len(self.topology.nodes)
        available = self._available(pod_uid)
        return tuple(
            Hint(mask, mask.bit_count() == smallest)
            for mask in masks
            if _fits(available, wanted, mask)
        )

    def _nodes_for(self, pod_uid: PodUid, wanted: Wanted, affinity: int | None) -> int:
        """Return the set of NUMA nodes from which to allocate the wanted memory.

        It is the affinity, with as few additional nodes as needed. Without an affinity, it is the
        smallest set that fits. Raises AllocationError if no set fits.
        """
        available = self._available(pod_uid)
        if affinity is not None and _fits(available, wanted, affinity):
            return affinity
        # The smallest sets come first, so the first superset adds the fewest nodes.
        for hint in self._fitting(pod_uid, wanted):
            mask = hint.mask or 0
            if affinity is None or mask & affinity == affinity:
                return mask
        raise AllocationError(NO_NODES_WITH_ENOUGH if affinity is None else NO_NODES_TO_EXTEND)

    def _charge(self, pod: PodMemory, wanted: Wanted, mask: int, *, keep: bool) -> PodMemory:
        """Return the pod's memory after charging the wanted bytes to the NUMA nodes in ``mask``.

        Reusable memory of the pod is charged first, then free memory. With ``keep``, later
        containers can reuse the charged memory.
        """
        # ``free`` is not updated below, because the loop visits each pair of type and node once.
        free, charged, reusable = self.free(), dict(pod.charged), dict(pod.reusable)
        for type_, missing in wanted.items():
            for place in ((type_, node) for node in nodes_of(mask)):
                if place not in free:
                    continue  # the node has no memory of this type
                reused = min(missing, reusable.get(place, 0))
                added = min(missing - reused, free[place])
                missing -= reused + added
                charged[place] = charged.get(place, 0) + added
                reusable[place] = reusable.get(place, 0) + (added if keep else -reused)
        return attrs.evolve(pod, charged=charged, reusable=reusable)


def _with(amounts: Amounts, more: Amounts) -> dict[tuple[str, int], int]:
    return {**amounts, **{place: amounts[place] + size for place, size in more.items()}}


def _without(amounts: Amounts, less: Amounts) -> dict[tuple[str, int], int]:
    return {**amounts, **{place: amounts[place] - size for place, size in less.items()}}


def _fits(amounts: Amounts, wanted: Wanted, mask: int) -> bool:
    nodes = nodes_of(mask)
    return all(
        sum(amounts.get((type_, node), 0) for node in nodes) >= size
        for type_, size in wanted.items()
    )


def _hints_of_blocks(blocks: tuple[MemoryBlock, ...], wanted: Wanted) -> dict[str, Hints]:
    """Return one hint per allocated memory block, by memory type, with the block's NUMA nodes; no
    hints if the request has changed (``regenerateHints``, memorymanager/policy_static.go,
    v1.32)."""
    if {block.type: block.size for block in blocks} != dict(wanted):
        return dict.fromkeys(wanted, ())
    return {block.type: (Hint(bitset.of(block.nodes), True),) for block in blocks}
