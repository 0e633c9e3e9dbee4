"""The node check that follows allocation, and what the node's status says.

``predicateAdmitHandler`` (pkg/kubelet/lifecycle/predicate.go, v1.32): the pod's requests
must fit into what the node has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

import attrs

from devicemanager.core import messages
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.ids import PodUid, ResourceName
from devicemanager.core.pods import Pod, effective_request, pod_requests
from devicemanager.core.rejection import Rejected

PODS = ResourceName("pods")
_FIRST = tuple(map(ResourceName, ("cpu", "memory", "ephemeral-storage")))
"""``NodeResourcesFit`` looks at ``pods``, at these, then at the others; ours are sorted."""
_REQUESTS = attrgetter("requests")


class Node:
    """What the pods on the node request together, kept as they come and go.

    ``fixed`` is what the node has besides devices (``cpu`` in milli-CPUs, ``memory`` in
    bytes, ``pods``); what is not in it is not checked.
    """

    def __init__(
        self,
        fixed: Mapping[ResourceName, int] | None = None,
        *,
        unknown_init_requests: bool = False,
    ) -> None:
        """``unknown_init_requests`` rejects an init container that asks for a device resource
        which the node does not know, as kubelets up to v1.30 do."""
        self._fixed = dict(fixed or {})
        self._unknown_init_requests = unknown_init_requests
        self._pods: dict[PodUid, Mapping[ResourceName, int]] = {}
        # Pods that come one after another are often alike: what they request is kept once.
        self._latest: Mapping[ResourceName, int] = {}
        self._used: dict[ResourceName, int] = {}

    def place(self, pod: Pod, devices: Callable[[ResourceName], int | None]) -> None:
        """Put the pod on the node; one that is there already counts once.

        Raises Rejected (``OutOf<resource>``) for the first resource that does not fit.
        ``devices`` returns how many devices of a resource the node may hand out; None for a
        resource it does not know, which is left out (``removeMissingExtendedResources``).
        """
        requests = _requests(pod)
        mine = self._pods.get(pod.uid, {})
        self._check(pod, mine, requests, devices)
        if mine:
            self.remove(pod.uid)
        if requests != self._latest:
            self._latest = requests
        self._pods[pod.uid] = self._latest
        for resource, requested in requests.items():
            self._used[resource] = self._used.get(resource, 0) + requested

    def _check(
        self,
        pod: Pod,
        mine: Mapping[ResourceName, int],
        requests: Mapping[ResourceName, int],
        devices: Callable[[ResourceName], int | None],
    ) -> None:
        for resource, requested in requests.items():
            if not requested:
                continue
            capacity = self._fixed.get(resource)
            if capacity is None and is_extended_resource_name(resource):
                capacity = devices(resource)
                if capacity is None and self._unknown_init_requests and pod.init_containers:
                    # Only app containers' requests are left out (``removeMissing…``, v1.30).
                    capacity, requested = 0, _of_init_containers(pod, resource)
            used = self._used.get(resource, 0) - mine.get(resource, 0)
            if capacity is not None and 0 < requested > capacity - used:
                message = messages.NODE_TOO_SMALL.format(
                    resource=resource, requested=requested, used=used, capacity=capacity
                )
                raise Rejected(messages.OUT_OF.format(resource=resource), message)

    def remove(self, pod: PodUid) -> None:
        """The pod has left, or was never there."""
        for resource, requested in self._pods.pop(pod, {}).items():
            self._used[resource] -= requested

    def recount(self) -> None:
        """Add up anew what the pods request, after an admission was interrupted."""
        self._used = {}
        for requests in self._pods.values():
            for resource, requested in requests.items():
                self._used[resource] = self._used.get(resource, 0) + requested


@attrs.define
class NodeStatus:
    """``capacity`` and ``allocatable`` of device resources in the node's status.

    ``MachineInfo`` (pkg/kubelet/nodestatus/setters.go, v1.32): what the device manager
    removed stays, at 0.
    """

    capacity: dict[str, int] = attrs.field(factory=dict)
    allocatable: dict[str, int] = attrs.field(factory=dict)

    def update(
        self,
        capacity: Mapping[str, int],
        allocatable: Mapping[str, int],
        removed: Iterable[str] = (),
    ) -> None:
        """Take over what the device manager counts now; what it ``removed`` is 0. What it
        never knew stays, as of a kubelet before."""
        for numbers, now in ((self.capacity, capacity), (self.allocatable, allocatable)):
            numbers.update(dict.fromkeys(removed, 0))
            numbers.update(now)

    def reset(self) -> None:
        """Set everything to 0, as a kubelet does that starts without a checkpoint
        (``ShouldResetExtendedResourceCapacity``, v1.32)."""
        self.capacity = dict.fromkeys(self.capacity, 0)
        self.allocatable = dict.fromkeys(self.allocatable, 0)

    def copy(self) -> NodeStatus:
        return NodeStatus(dict(self.capacity), dict(self.allocatable))


def _requests(pod: Pod) -> Mapping[ResourceName, int]:
    """What the pod requests, in the order in which it is checked."""
    requests = pod_requests(pod, _REQUESTS)
    first = {name: requests[name] for name in _FIRST if name in requests}
    return {PODS: 1, **first, **requests}


def _of_init_containers(pod: Pod, resource: ResourceName) -> int:
    inits = attrs.evolve(pod, containers=())
    return effective_request(inits, lambda container: container.requests.get(resource, 0))
