"""Admission of a pod: topology affinity, then devices, container by container.

The scopes of pkg/kubelet/cm/topologymanager (scope_none.go, scope_container.go,
scope_pod.go, v1.32) over the allocator. In container scope each container's hints see
what the containers before it took; in pod scope one affinity counts for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import attrs

from devicemanager.core import messages
from devicemanager.core.allocation.container import (
    AllocationSteps,
    PodAllocation,
    Step,
    all_or_nothing,
    allocate_container,
)
from devicemanager.core.errors import (
    EndpointError,
    RequestError,
)
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.inventory import DeviceIndex
from devicemanager.core.pods import Container, pod_requests
from devicemanager.core.rejection import Rejected, rejected_by_topology
from devicemanager.core.topology import (
    DeviceLayout,
    Hint,
    Hints,
    NumaTopology,
    ProviderHints,
    ScopeName,
    TopologyPolicy,
    resource_hints,
)

DeviceHints = Mapping[str, Hints | None]
"""Resource to its hints; None for no preference."""


@attrs.define(eq=False, repr=False)
class DeviceHintProvider:
    """Hints of device resources, with each list's grouping by NUMA node remembered."""

    policy: TopologyPolicy
    grows: bool = False
    """Whether the NUMA nodes are unknown: then there are as many as the devices need."""
    over_device_nodes: bool = False
    """Whether hints name only nodes that have devices of the resource (since v1.36)."""
    empty_topology_aligns: bool = False
    """Whether a resource is aligned if a device has a topology, though without nodes (up to
    v1.25)."""
    _layouts: dict[ResourceName, tuple[DeviceIndex, DeviceLayout]] = attrs.field(factory=dict)

    def ensure_nodes(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Devices are listed on these nodes. Returns those that the machine lacks."""
        lacking = self.policy.lacks(nodes)
        if lacking and self.grows:
            grown = self.policy.with_room_for(lacking)
            if grown is not self.policy:
                self.policy = grown
                self._layouts.clear()
                lacking = grown.lacks(lacking)
        return lacking

    def layout(self, resource: ResourceName, device_index: DeviceIndex) -> DeviceLayout:
        known = self._layouts.get(resource)
        if known is None or known[0] is not device_index:
            topology = self._topology_for(device_index)
            known = device_index, DeviceLayout.of(topology, device_index.per_node)
            self._layouts[resource] = known
        return known[1]

    def _topology_for(self, device_index: DeviceIndex) -> NumaTopology:
        """The nodes that hints of these devices may name. Those the machine lacks are none;
        with none left it is all (``generateDeviceTopologyHints``, v1.36)."""
        whole = self.policy.topology
        if not self.over_device_nodes:
            return whole
        nodes = [node for node in whole.nodes if node in device_index.per_node]
        return NumaTopology.of(nodes) if nodes else whole

    def container_hints(self, allocation: PodAllocation, container: Container) -> DeviceHints:
        """``GetTopologyHints`` (devicemanager/topology_hints.go, v1.32)."""
        return {
            resource: self._hints(
                allocation,
                resource,
                request,
                allocation.ledger.allocated(allocation.pod.uid, container.name, resource),
                allocation.reusable.get(resource, frozenset()),
            )
            for resource, request in allocation.requests(container).items()
        }

    def pod_hints(self, allocation: PodAllocation) -> DeviceHints:
        """``GetPodTopologyHints``; nothing is reusable in pod scope."""
        uid = allocation.pod.uid
        return {
            resource: self._hints(
                allocation, resource, request, allocation.ledger.allocated_to_pod(uid, resource)
            )
            for resource, request in pod_requests(allocation.pod, _limits).items()
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
        device_index = devices.device_index
        handed_on = device_index.bits(reusable)
        aligns = self.empty_topology_aligns and device_index.without_nodes != 0
        if handed_on & device_index.without_nodes and (devices.has_topology or aligns):
            # A set of nodes must touch every reusable device that has a topology, and
            # none touches one without nodes (generateDeviceTopologyHints, v1.32).
            return ()
        return resource_hints(
            self.layout(resource, device_index),
            available=devices.healthy & ~allocation.ledger.in_use(resource, device_index),
            reusable=handed_on,
            request=request,
            held=device_index.bits(held or ()),
            held_count=len(held or ()),
            aligns=aligns,
        )


def _limits(container: Container) -> Mapping[ResourceName, int]:
    return container.limits


def admit_pod(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    """Allocate a whole pod into its draft and put it on the node, all or nothing.

    Raises ``Rejected``, with the explanation.
    """
    allocation.policy = hints.policy
    try:
        yield from all_or_nothing(allocation, _scoped(allocation, hints))
    except Rejected as rejected:
        # Not before the first rejection: a start need not wait for it.
        from devicemanager.core.allocation.explain import explain

        rejected.explanation = explain(allocation, rejected)
        raise


def _scoped(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    policy = hints.policy
    scope = policy.scope if policy.asks_for_hints else None
    if scope is ScopeName.POD:
        _align_pod(allocation, hints)
    for container, is_init in allocation.pod.all_containers():
        requests = allocation.requests(container)
        seen = allocation.see(requests, container.name)
        step = Step(container.name, seen)
        allocation.steps.append(step)
        if scope is ScopeName.CONTAINER:
            step.hints = [
                hints.container_hints(allocation, container),
                *allocation.hint_providers.hints(allocation.pod, container),
            ]
            allocation.affinities[container.name] = _merged(allocation, step.hints)
        try:
            yield from allocate_container(allocation, container, is_init, requests)
        except (EndpointError, RequestError) as error:
            step.error = str(error)
            raise
    # Checked and put on the node in one go: of two pods that come together, the second
    # must see the first.
    allocation.node.place(allocation.pod, partial(_may_hand_out, allocation))
    allocation.placed = True


def _align_pod(allocation: PodAllocation, hints: DeviceHintProvider) -> None:
    """Pod scope: one affinity for all containers."""
    pod = allocation.pod
    requests = {
        resource: request
        for resource, request in pod_requests(pod, _limits).items()
        if allocation.is_device_resource(resource)
    }
    step = Step(None, allocation.see(requests))
    allocation.steps.append(step)
    step.hints = [hints.pod_hints(allocation), *allocation.hint_providers.pod_hints(pod)]
    affinity = _merged(allocation, step.hints)
    allocation.affinities = {container.name: affinity for container, _ in pod.all_containers()}


_POD_LEVEL = {
    ScopeName.CONTAINER: messages.POD_LEVEL_LOCALITY.format(scope="with a container-level"),
    ScopeName.POD: messages.POD_LEVEL_LOCALITY.format(scope="under pod-scope"),
}


def _merged(allocation: PodAllocation, hints: Sequence[ProviderHints]) -> Hint:
    policy = allocation.policy
    best, admitted = policy.merge(hints)
    if not admitted:
        other = attrs.evolve(policy, narrowest=not policy.narrowest)
        behaviour = "merge_rule" if other.merge(hints)[1] else ""
        if allocation.rules.pod_level_rejection and allocation.pod.has_resources:
            raise rejected_by_topology(_POD_LEVEL[policy.scope], behaviour)
        raise rejected_by_topology(behaviour=behaviour)
    return best


def _may_hand_out(allocation: PodAllocation, resource: ResourceName) -> int | None:
    """The node's allocatable, raised to what is allocated already, so that a known pod
    passes while its plugin is away (``sanitizeNodeAllocatable``, v1.32)."""
    devices = allocation.endpoints.devices(resource)
    if devices is None:
        return None
    return max(devices.allocatable, allocation.ledger.count(resource))
