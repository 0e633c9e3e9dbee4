"""CPUs and memory of a node on paper, and who has them, from a kubelet's state files."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.cli.options import CommandError
from devicemanager.core import bitset
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider, PodMemory
from devicemanager.core.providers.provider import MemoryBlock
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.host.numa import NumaError, id_list
from devicemanager.snapshot.kubeletconfig import Alignment
from devicemanager.snapshot.statefiles import CpuState, MemoryState

__all__ = ["cpu_provider", "memory_provider"]


def cpu_provider(
    topology: NumaTopology,
    cpus: Mapping[int, tuple[int, ...]],
    aligned: Alignment,
    state: CpuState | None,
    dropped: frozenset[str],
) -> CpuProvider:
    try:
        reserved = id_list("reservedSystemCPUs", aligned.reserved_cpus)
    except NumaError as error:
        raise CommandError(str(error)) from None
    assigned = {
        PodUid(uid): {ContainerName(name): bitset.of(ids) for name, ids in held.items()}
        for uid, held in (state.assigned if state else {}).items()
        if uid not in dropped
    }
    used = bitset.union(ids for held in assigned.values() for ids in held.values())
    provider = CpuProvider.of(topology, cpus, reserved)
    return attrs.evolve(provider, assigned=assigned, used=used)


def memory_provider(
    topology: NumaTopology, state: MemoryState, dropped: frozenset[str]
) -> MemoryProvider:
    provider = MemoryProvider.of(topology, state.allocatable)
    free = provider.free()
    pods = {}
    for uid, held in state.assigned.items():
        if uid in dropped:
            continue
        charged: dict[tuple[str, int], int] = {}
        for block in (block for blocks in held.values() for block in blocks):
            missing = block.size
            # As the kubelet fills one node after another (``updateExpectedMachineState``).
            for place in ((block.type, number) for number in block.nodes):
                taken = min(missing, free.get(place, 0))
                if taken:
                    free[place] -= taken
                    charged[place] = charged.get(place, 0) + taken
                    missing -= taken
        blocks = {
            ContainerName(name): tuple(MemoryBlock(b.type, b.size, b.nodes) for b in blocks)
            for name, blocks in held.items()
        }
        pods[PodUid(uid)] = PodMemory(blocks, charged)
    return attrs.evolve(provider, pods=pods, free=free)
