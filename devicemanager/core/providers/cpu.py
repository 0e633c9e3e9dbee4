"""Exclusive CPUs, as the kubelet's CPU manager hands them out under its static policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from devicemanager.core import bitset
from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, effective_request
from devicemanager.core.providers.provider import CPU, CpusAndMemory, is_guaranteed, makes_reusable
from devicemanager.core.topology import (
    DeviceLayout,
    NumaTopology,
    ProviderHints,
    layout_hints,
)

NOT_ENOUGH_CPUS = (
    "not enough cpus available to satisfy request: requested={requested}, available={available}"
)
"""``takeByTopologyNUMAPacked`` (cpumanager/cpu_assignment.go, v1.32)."""


@attrs.frozen
class CpuProvider:
    """CPUs by NUMA node, and which container has which for itself.

    Whole CPUs of Guaranteed pods are exclusive. Within the affinity, and then beyond it,
    the lowest free ids are taken; cores and sockets are not looked at.
    """

    topology: NumaTopology
    per_node: Mapping[int, int]
    """NUMA node id → the set of its CPUs, as an integer."""
    reserved: int = 0
    """CPUs that are never handed out."""
    _assigned: Mapping[PodUid, Mapping[ContainerName, int]] = attrs.field(factory=dict)
    _reusable: Mapping[PodUid, int] = attrs.field(factory=dict)
    """What a pod's ordinary init containers had and no later container has taken."""
    _used: int = 0
    """The union of all that is assigned: pods never share CPUs."""

    @classmethod
    def of(
        cls, topology: NumaTopology, cpus: Mapping[int, Iterable[int]], reserved: Iterable[int] = ()
    ) -> CpuProvider:
        """A provider of these CPU ids by NUMA node id."""
        per_node = {node: bitset.of(ids) for node, ids in cpus.items()}
        return cls(topology, per_node, bitset.of(reserved))

    @property
    def allocatable_cpus(self) -> int:
        """The set of CPUs that can be handed out."""
        return bitset.union(self.per_node.values()) & ~self.reserved

    @property
    def free_cpus(self) -> int:
        """The set of CPUs that no container has exclusively."""
        return self.allocatable_cpus & ~self._used

    @property
    def shared_cpus(self) -> int:
        """The set of CPUs that no container has exclusively, the reserved ones among them
        (``GetDefaultCPUSet``, cpumanager/state, v1.22)."""
        return bitset.union(self.per_node.values()) & ~self._used

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """``staticPolicy.GetTopologyHints`` (cpumanager/policy_static.go, v1.32)."""
        request = exclusive_cpus(pod, container)
        if not request:
            return {}
        held = self._assigned.get(pod.uid, {}).get(container.name, 0)
        if held and held.bit_count() != request:
            return {CPU: ()}
        if held:
            return {CPU: layout_hints(self._layout(), held, 0, request)}
        reusable = self._reusable.get(pod.uid, 0)
        return {CPU: layout_hints(self._layout(), self.free_cpus, reusable, request)}

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """``staticPolicy.GetPodTopologyHints`` (cpumanager/policy_static.go, v1.32)."""
        request = effective_request(pod, lambda container: exclusive_cpus(pod, container))
        if not request:
            return {}
        held = bitset.union(self._assigned.get(pod.uid, {}).values())
        if held.bit_count() == request:
            return {CPU: layout_hints(self._layout(), held, 0, request)}
        reusable = held | self._reusable.get(pod.uid, 0)
        return {CPU: layout_hints(self._layout(), self.free_cpus, reusable, request)}

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """``staticPolicy.Allocate`` (cpumanager/policy_static.go, v1.32)."""
        request = exclusive_cpus(pod, container)
        held = self._assigned.get(pod.uid, {})
        if not request or container.name in held:
            return self
        reusable = self._reusable.get(pod.uid, 0)
        taken = self._choose(self.free_cpus | reusable, request, affinity)
        pool = reusable | taken if makes_reusable(pod, container) else reusable & ~taken
        return attrs.evolve(
            self,
            assigned={**self._assigned, pod.uid: {**held, container.name: taken}},
            reusable={**self._reusable, pod.uid: pool},
            used=self._used | taken,
        )

    def release(self, pod_uid: PodUid) -> Self:
        """Without what the pod had."""
        if pod_uid not in self._assigned:
            return self
        return attrs.evolve(
            self,
            assigned={uid: held for uid, held in self._assigned.items() if uid != pod_uid},
            reusable={uid: pool for uid, pool in self._reusable.items() if uid != pod_uid},
            used=self._used & ~bitset.union(self._assigned[pod_uid].values()),
        )

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """The container's exclusive CPUs."""
        return _as_held(self._assigned.get(pod_uid, {}).get(container, 0))

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """All exclusive CPUs of the pod."""
        return _as_held(bitset.union(self._assigned.get(pod_uid, {}).values()))

    def allocatable(self) -> CpusAndMemory:
        """Every CPU that can be handed out."""
        return _as_held(self.allocatable_cpus)

    def _layout(self) -> DeviceLayout:
        return DeviceLayout.of(self.topology, self.per_node)

    def _choose(self, allowed: int, request: int, affinity: int | None) -> int:
        """``staticPolicy.allocateCPUs``: what is aligned first, then the rest."""
        near = 0
        if affinity is not None:
            on_nodes = bitset.union(c for node, c in self.per_node.items() if affinity >> node & 1)
            near = bitset.lowest(allowed & on_nodes, request)
        rest, missing = allowed & ~near, request - near.bit_count()
        if rest.bit_count() < missing:
            raise AllocationError(
                NOT_ENOUGH_CPUS.format(requested=missing, available=rest.bit_count())
            )
        return near | bitset.lowest(rest, missing)


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """How many CPUs the container gets for itself: whole ones, in a Guaranteed pod only.

    ``staticPolicy.guaranteedCPUs`` (cpumanager/policy_static.go, v1.32).
    """
    milli = container.requests.get(CPU, container.limits.get(CPU, 0))
    if milli % 1000 or not is_guaranteed(pod):
        return 0
    return milli // 1000


def _as_held(cpus: int) -> CpusAndMemory:
    return CpusAndMemory(cpu_ids=tuple(bitset.numbers(cpus)))
