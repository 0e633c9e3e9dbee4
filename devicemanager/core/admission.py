"""Admission of a pod: topology affinity, then devices, container by container.

The scopes of pkg/kubelet/cm/topologymanager (scope_none.go, scope_container.go,
scope_pod.go, v1.32) over the allocator. In container scope each container's hints see
what the containers before it took; in pod scope one affinity counts for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from devicemanager.core.allocator import (
    AllocationSteps,
    PodAllocation,
    all_or_nothing,
    allocate_container,
)
from devicemanager.core.errors import refused_by_topology
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.inventory import Numbering
from devicemanager.core.pods import Container, Pod
from devicemanager.core.topology import (
    DeviceLayout,
    Hint,
    Hints,
    ScopeName,
    TopologyPolicy,
    resource_hints,
)

DeviceHints = Mapping[str, Hints | None]
"""Resource to its hints; None for no preference."""


@attrs.define(eq=False)
class DeviceHintProvider:
    """Hints of device resources, with each list's grouping by NUMA node remembered."""

    policy: TopologyPolicy
    _layouts: dict[ResourceName, tuple[Numbering, DeviceLayout]] = attrs.field(factory=dict)

    def layout(self, resource: ResourceName, numbering: Numbering) -> DeviceLayout:
        known = self._layouts.get(resource)
        if known is None or known[0] is not numbering:
            known = numbering, DeviceLayout.of(self.policy.topology, numbering.per_node)
            self._layouts[resource] = known
        return known[1]

    def container_hints(self, allocation: PodAllocation, container: Container) -> DeviceHints:
        """``GetTopologyHints`` (devicemanager/topology_hints.go, v1.32)."""
        return {
            resource: self._hints(
                allocation,
                resource,
                request,
                allocation.ledger.held(allocation.pod.uid, container.name, resource),
                allocation.reusable.get(resource, frozenset()),
            )
            for resource, request in allocation.requests(container).items()
        }

    def pod_hints(self, allocation: PodAllocation) -> DeviceHints:
        """``GetPodTopologyHints``; nothing is reusable in pod scope."""
        uid = allocation.pod.uid
        return {
            resource: self._hints(
                allocation, resource, request, allocation.ledger.held_by_pod(uid, resource)
            )
            for resource, request in pod_requests(allocation.pod).items()
            if allocation.is_device_resource(resource)
        }

    def _hints(
        self,
        allocation: PodAllocation,
        resource: ResourceName,
        request: int,
        held: frozenset[DeviceId] | None,
        reusable: frozenset[DeviceId] = frozenset(),
    ) -> Hints | None:
        devices = allocation.endpoints.devices(resource)
        if devices is None:
            return None
        numbering = devices.numbering
        handed_on = numbering.bits(reusable)
        if handed_on & numbering.without_nodes and devices.has_topology:
            # A set of nodes must touch every reusable device that has a topology, and
            # none touches one without nodes (generateDeviceTopologyHints, v1.32).
            return ()
        return resource_hints(
            self.layout(resource, numbering),
            available=devices.healthy & ~allocation.ledger.in_use(resource, numbering),
            reusable=handed_on,
            request=request,
            held=numbering.bits(held or ()),
            held_count=len(held or ()),
        )


def pod_requests(pod: Pod) -> Mapping[ResourceName, int]:
    """What the pod needs at its largest moment, sorted by resource.

    ``PodLimits`` of k8s.io/component-helpers/resource (v1.32): the sum over app and
    restartable init containers, or the largest step of the init sequence, in which the
    restartable ones before it still run.
    """
    total = _sum(container.limits for container in pod.containers)
    started: dict[ResourceName, int] = {}
    largest: dict[ResourceName, int] = {}
    for container in pod.init_containers:
        step = _sum([started, container.limits])
        if container.restartable:
            started = step
            total = _sum([total, container.limits])
        largest = {name: max(step.get(name, 0), largest.get(name, 0)) for name in step | largest}
    return {name: max(total.get(name, 0), largest.get(name, 0)) for name in sorted(total | largest)}


def _sum(limits: Iterable[Mapping[ResourceName, int]]) -> dict[ResourceName, int]:
    result: dict[ResourceName, int] = {}
    for one in limits:
        for name, amount in one.items():
            result[name] = result.get(name, 0) + amount
    return result


def admit_pod(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    """Allocate a whole pod into its draft, all or nothing; raises ``Refused``."""
    return all_or_nothing(allocation, _scoped(allocation, hints))


def _scoped(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    policy = hints.policy
    per_container = policy.asks_for_hints and policy.scope is ScopeName.CONTAINER
    if policy.asks_for_hints and policy.scope is ScopeName.POD:
        affinity = _merged(policy, hints.pod_hints(allocation))
        allocation.affinities = {c.name: affinity for c, _ in allocation.pod.all_containers()}
    for container, is_init in allocation.pod.all_containers():
        if per_container:
            merged = _merged(policy, hints.container_hints(allocation, container))
            allocation.affinities[container.name] = merged
        yield from allocate_container(allocation, container, is_init)


def _merged(policy: TopologyPolicy, hints: DeviceHints) -> Hint:
    best, admitted = policy.merge([hints])
    if not admitted:
        raise refused_by_topology()
    return best
