"""Exclusive CPUs, allocated as by the policy ``static`` of the kubelet's CPU manager."""

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
"""Message of ``takeByTopologyNUMAPacked`` (cpumanager/cpu_assignment.go, v1.32)."""


@attrs.frozen
class CpuProvider:
    """Hint provider for exclusive CPUs; it records the CPUs that are allocated to each container.

    Containers of Guaranteed pods get exclusive CPUs if they request whole CPUs. Free CPUs on the
    NUMA nodes that the Topology Manager has chosen are allocated first, then CPUs of other nodes.
    In both groups, the lowest CPU IDs come first.
    """

    # The kubelet also prefers whole sockets and cores (``takeByTopologyNUMAPacked``). Here, CPUs
    # are allocated only to test the alignment of devices with CPUs.

    topology: NumaTopology
    per_node: Mapping[int, int]
    """CPUs of each NUMA node as a bit set, by node ID."""
    reserved: int = 0
    """CPUs that are never allocated (``reservedSystemCPUs``)."""
    _assigned: Mapping[PodUid, Mapping[ContainerName, int]] = attrs.field(factory=dict)
    _reusable: Mapping[PodUid, int] = attrs.field(factory=dict)
    """CPUs of each pod's ordinary init containers, by UID, without CPUs that a later container of
    the pod uses."""
    _used: int = 0
    """The set of all CPUs that are allocated exclusively."""

    @classmethod
    def of(
        cls, topology: NumaTopology, cpus: Mapping[int, Iterable[int]], reserved: Iterable[int] = ()
    ) -> CpuProvider:
        """Create a provider. ``cpus`` maps NUMA node IDs to CPU IDs. CPUs in ``reserved`` are never
        allocated."""
        per_node = {node: bitset.of(ids) for node, ids in cpus.items()}
        return cls(topology, per_node, bitset.of(reserved))

    @property
    def allocatable_cpus(self) -> int:
        """The CPUs that can be allocated exclusively, as a bit set."""
        return bitset.union(self.per_node.values()) & ~self.reserved

    @property
    def free_cpus(self) -> int:
        """The CPUs that can still be allocated exclusively, as a bit set."""
        return self.allocatable_cpus & ~self._used

    @property
    def shared_cpus(self) -> int:
        """The CPUs that no container has exclusively, including reserved CPUs, as a bit set
        (``GetDefaultCPUSet``, cpumanager/state, v1.22)."""
        return bitset.union(self.per_node.values()) & ~self._used

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return the hints for one container's exclusive CPUs; empty if the container requests no
        exclusive CPUs (``staticPolicy.GetTopologyHints``, cpumanager/policy_static.go, v1.32)."""
        request = exclusive_cpus(pod, container)
        if not request:
            return {}
        assigned = self._assigned.get(pod.uid, {}).get(container.name, 0)
        # As in the kubelet, a container whose request has changed since its admission fits
        # nowhere.
        if assigned and assigned.bit_count() != request:
            return {CPU: ()}
        if assigned:
            return {CPU: layout_hints(self._layout(), assigned, 0, request)}
        reusable = self._reusable.get(pod.uid, 0)
        return {CPU: layout_hints(self._layout(), self.free_cpus, reusable, request)}

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return the hints for the exclusive CPUs of a whole pod; empty if the pod requests no
        exclusive CPUs (``staticPolicy.GetPodTopologyHints``, cpumanager/policy_static.go,
        v1.32)."""
        request = effective_request(pod, lambda container: exclusive_cpus(pod, container))
        if not request:
            return {}
        assigned = bitset.union(self._assigned.get(pod.uid, {}).values())
        if assigned.bit_count() == request:
            return {CPU: layout_hints(self._layout(), assigned, 0, request)}
        # For a whole pod, the kubelet counts all CPUs of the pod as reusable.
        reusable = assigned | self._reusable.get(pod.uid, 0)
        return {CPU: layout_hints(self._layout(), self.free_cpus, reusable, request)}

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """Return a provider in which the container's exclusive CPUs are allocated
        (``staticPolicy.Allocate``, cpumanager/policy_static.go, v1.32).

        Raises AllocationError if too few CPUs are free.
        """
        request = exclusive_cpus(pod, container)
        assigned = self._assigned.get(pod.uid, {})
        # A restarted container keeps its CPUs.
        if not request or container.name in assigned:
            return self
        reusable = self._reusable.get(pod.uid, 0)
        chosen = self._choose(self.free_cpus | reusable, request, affinity)
        # Only an ordinary init container has ended when later containers start. CPUs of sidecars
        # and app containers stay in use, so they leave the pool.
        pool = reusable | chosen if makes_reusable(pod, container) else reusable & ~chosen
        return attrs.evolve(
            self,
            assigned={**self._assigned, pod.uid: {**assigned, container.name: chosen}},
            reusable={**self._reusable, pod.uid: pool},
            used=self._used | chosen,
        )

    def release(self, pod_uid: PodUid) -> Self:
        """Return a provider in which the pod has no exclusive CPUs."""
        if pod_uid not in self._assigned:
            return self
        return attrs.evolve(
            self,
            assigned={uid: cpus for uid, cpus in self._assigned.items() if uid != pod_uid},
            reusable={uid: pool for uid, pool in self._reusable.items() if uid != pod_uid},
            used=self._used & ~bitset.union(self._assigned[pod_uid].values()),
        )

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return the IDs of the container's exclusive CPUs, in the field ``cpu_ids``."""
        return _as_ids(self._assigned.get(pod_uid, {}).get(container, 0))

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """Return the IDs of all exclusive CPUs of the pod, in the field ``cpu_ids``."""
        return _as_ids(bitset.union(self._assigned.get(pod_uid, {}).values()))

    def allocatable(self) -> CpusAndMemory:
        """Return the IDs of all CPUs that can be allocated exclusively, in the field
        ``cpu_ids``."""
        return _as_ids(self.allocatable_cpus)

    def _layout(self) -> DeviceLayout:
        return DeviceLayout.of(self.topology, self.per_node)

    def _choose(self, allowed: int, request: int, affinity: int | None) -> int:
        """Choose ``request`` CPUs of the set ``allowed``. CPUs on the nodes of ``affinity`` are
        chosen first (``staticPolicy.allocateCPUs``, v1.32)."""
        near = 0
        if affinity is not None:
            on_nodes = bitset.union(c for node, c in self.per_node.items() if affinity >> node & 1)
            near = bitset.lowest(allowed & on_nodes, request)
        others, missing = allowed & ~near, request - near.bit_count()
        if others.bit_count() < missing:
            # As in the kubelet, both numbers leave out the CPUs that were found on the preferred
            # nodes.
            raise AllocationError(
                NOT_ENOUGH_CPUS.format(requested=missing, available=others.bit_count())
            )
        return near | bitset.lowest(others, missing)


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """Return the number of exclusive CPUs that a container gets (``staticPolicy.guaranteedCPUs``,
    cpumanager/policy_static.go, v1.32).

    In a Guaranteed pod, this is the container's CPU request if the request is a whole number. In
    all other cases it is 0.
    """
    milli = container.requests.get(CPU, container.limits.get(CPU, 0))
    if milli % 1000 or not is_guaranteed(pod):
        return 0
    return milli // 1000


def _as_ids(cpus: int) -> CpusAndMemory:
    return CpusAndMemory(cpu_ids=tuple(bitset.numbers(cpus)))
