"""Admit a pod: compute topology affinity, allocate devices, and check that the node has room."""

# Theory of operation. ``admit_pod`` is a generator like ``allocate_container``: it yields
# requests for RPCs. At the end, ``PodAllocation`` has the draft, or ``Rejected`` is raised.
#
# When affinities are computed depends on the topology manager's scope. There are three cases
# (scope_none.go, scope_container.go, scope_pod.go in pkg/kubelet/cm/topologymanager, v1.32):
#
# * Policy ``none``: no hints are computed, and there is no affinity.
# * Scope ``container``: each container is aligned just before its devices are allocated. Its
#   hints therefore consider the devices that earlier containers use or have made reusable.
# * Scope ``pod``: all containers share one affinity, computed before the first allocation.
#   No device is reusable before the first allocation, so devices of init containers do not
#   count as available.
#
# The kubelet checks last whether the node has enough resources (lifecycle/predicate.go). This
# module checks it last, too, in the same uninterrupted step that places the pod on the node. If
# it checked before the allocation, two concurrent pods could pass although only one fits.
#
# A rejection carries an explanation, built from the ``Step`` records. The records hold only
# values that the admission needs anyway. The explanation of an admitted pod is built when it is
# requested.

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
    check_listed,
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
"""Topology hints of the device manager, by resource; None means no preference."""


@attrs.define(eq=False, repr=False)
class DeviceHintProvider:
    """Provider of topology hints for device resources.

    It caches the devices of each resource, grouped by NUMA node.
    """

    policy: TopologyPolicy
    grows: bool = False
    """True if the machine's NUMA nodes are unknown. Then the NUMA nodes of devices are added to the
    topology."""
    over_device_nodes: bool = False
    """True if hints name only nodes that have devices of the resource (since v1.36)."""
    empty_topology_aligns: bool = False
    """True if a resource has hints as soon as one device has an empty topology, which is a topology
    without NUMA nodes (up to v1.25). Since v1.26, a device must have a NUMA node."""
    panics: bool = False
    """True if the kubelet panics when it computes hints for a device that is missing in the
    plugin's latest ListAndWatch response (quirk Q33)."""
    _layouts: dict[ResourceName, tuple[DeviceIndex, DeviceLayout]] = attrs.field(factory=dict)

    def ensure_nodes(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return the NUMA node IDs in ``nodes`` that the machine does not have.

        If the field ``grows`` is True, these nodes are first added to the machine's topology. The
        result then has only the nodes that cannot be added.
        """
        missing = self.policy.missing_nodes(nodes)
        if missing and self.grows:
            extended = self.policy.extended_to(missing)
            if extended is not self.policy:
                self.policy = extended
                self._layouts.clear()
                missing = extended.missing_nodes(missing)
        return missing

    def layout(self, resource: ResourceName, device_index: DeviceIndex) -> DeviceLayout:
        """Return the devices of a resource, grouped by NUMA node. The result is cached until the
        device list changes."""
        cached = self._layouts.get(resource)
        if cached is None or cached[0] is not device_index:
            topology = self._topology_for(device_index)
            cached = (
                device_index,
                DeviceLayout.of(
                    topology, device_index.per_node, with_topology=device_index.with_topology
                ),
            )
            self._layouts[resource] = cached
        return cached[1]

    def _topology_for(self, device_index: DeviceIndex) -> NumaTopology:
        """Return the NUMA nodes that hints for the devices of ``device_index`` may name.

        With ``over_device_nodes``, these are the machine's nodes that have such devices, or all
        nodes if no node has such devices (``generateDeviceTopologyHints``, v1.36).
        """
        whole = self.policy.topology
        if not self.over_device_nodes:
            return whole
        nodes = [node for node in whole.nodes if node in device_index.per_node]
        return NumaTopology.of(nodes) if nodes else whole

    def container_hints(self, allocation: PodAllocation, container: Container) -> DeviceHints:
        """Return the hints for one container's device requests (``GetTopologyHints``,
        devicemanager/topology_hints.go, v1.32)."""
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
        """Return the hints for the device requests of a whole pod (``GetPodTopologyHints``).
        Unlike in ``container_hints``, devices of init containers cannot be reused."""
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
        allocated: frozenset[DeviceId] | None,
        reusable: frozenset[DeviceId] = frozenset(),
    ) -> Hints | None:
        # The kubelet keeps the last device list after the grace period, with no healthy device.
        devices = allocation.endpoints.last_list(resource)
        if devices is None:
            return None
        device_index = devices.device_index
        reusable_bits = device_index.bits(reusable)
        aligns = self.empty_topology_aligns and device_index.without_nodes != 0
        if reusable_bits & device_index.without_nodes and (devices.has_topology or aligns):
            # A hint must contain a node of every reusable device that has a topology. No hint
            # contains a node of a device whose topology has none
            # (generateDeviceTopologyHints, v1.32).
            return ()
        available = devices.healthy & ~allocation.ledger.in_use(resource, device_index)
        if self.panics and devices.has_topology:
            # The kubelet reads the topology of devices only if there are as many as the request
            # needs.
            unlisted = len(reusable - device_index.index.keys())
            if allocated and len(allocated) == request:
                check_listed(devices, allocated)
            elif not allocated and (available | reusable_bits).bit_count() + unlisted >= request:
                check_listed(devices, reusable)
        return resource_hints(
            self.layout(resource, device_index),
            available=available,
            reusable=reusable_bits,
            request=request,
            allocated=device_index.bits(allocated or ()),
            allocated_count=len(allocated or ()),
            aligns=aligns,
        )


def _limits(container: Container) -> Mapping[ResourceName, int]:
    return container.limits


def admit_pod(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    """Allocate devices to all containers of a pod, and store them in ``allocation.draft``. Then add
    the pod's requests to the sum of all requests on the node.

    Raises ``Rejected`` if the pod is rejected; ``Rejected.explanation`` says why. A rejected pod
    leaves no devices in use, except with the quirks (kubelet bugs) Q4 and Q31.
    """
    allocation.policy = hints.policy
    try:
        yield from all_or_nothing(allocation, _scoped(allocation, hints))
    except Rejected as rejected:
        # Imported at the first rejection, to keep start-up fast.
        from devicemanager.core.allocation.explain import explain

        rejected.explanation = explain(allocation, rejected)
        raise


def _scoped(allocation: PodAllocation, hints: DeviceHintProvider) -> AllocationSteps:
    policy = hints.policy
    scope = policy.scope if policy.asks_for_hints else None
    if scope is ScopeName.POD:
        _align_pod(allocation, hints)
    is_pod_level = allocation.rules.pod_level_rejection and allocation.pod.has_resources
    for container, is_init in allocation.pod.all_containers():
        # The topology manager calls AllocatePod for such a pod, and the device manager ignores it:
        # devices are allocated when the container starts (``admitUsingPodResources``, v1.36).
        is_deferred = is_pod_level and scope is ScopeName.POD
        requests = {} if is_deferred else allocation.requests(container)
        # The snapshot is taken before hints and devices are chosen, because the explanation
        # shows what was available.
        step = Step(container.name, allocation.snapshot(requests, container.name))
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
    if (sidecar := allocation.pod.forbidden_sidecar) is not None:
        raise Rejected(messages.SIDECAR_FORBIDDEN, messages.SIDECAR.format(container=sidecar))
    # ``place`` checks and places without an RPC in between: of two concurrent pods, the check of
    # the second must include the first.
    place(allocation)
    allocation.placed = True


def place(allocation: PodAllocation) -> None:
    """Add the pod's requests to the sum of all requests on the node. Raises Rejected if they do not
    fit."""
    allocation.node.place(allocation.pod, partial(_allocatable, allocation))


def _align_pod(allocation: PodAllocation, hints: DeviceHintProvider) -> None:
    """Compute the topology affinity that all containers of the pod share in pod scope."""
    pod = allocation.pod
    requests = {
        resource: request
        for resource, request in pod_requests(pod, _limits).items()
        if allocation.is_device_resource(resource)
    }
    step = Step(None, allocation.snapshot(requests))
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
        # The rejection names the merge rule if a kubelet with the other rule would admit the pod.
        other = attrs.evolve(policy, narrowest=not policy.narrowest)
        behaviour = "merge_rule" if other.merge(hints)[1] else ""
        if allocation.rules.pod_level_rejection and allocation.pod.has_resources:
            raise rejected_by_topology(_POD_LEVEL[policy.scope], behaviour)
        raise rejected_by_topology(behaviour=behaviour)
    return best


def _allocatable(allocation: PodAllocation, resource: ResourceName) -> int | None:
    """Return the allocatable amount of a device resource for the node check; None for an unknown
    resource."""
    devices = allocation.endpoints.devices(resource)
    if devices is None:
        return None
    if not allocation.draft.allocated and allocation.pod.uid not in allocation.ledger:
        # The kubelet raises the amount only for pods with devices (``UpdatePluginResources``,
        # v1.36).
        return devices.allocatable
    # The amount is at least the number of devices in use, so that a pod with devices passes
    # the check while its plugin is disconnected (``sanitizeNodeAllocatable``, v1.32).
    return max(devices.allocatable, allocation.ledger.count(resource))
