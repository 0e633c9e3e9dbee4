"""The check whether a pod fits on the node, and the device counts of the node's status.

The kubelet makes this check after it has allocated the pod's devices. The pod's requests must not
exceed the resources that the other pods on the node leave free (``predicateAdmitHandler``,
pkg/kubelet/lifecycle/predicate.go, v1.32).
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
"""Resources that ``NodeResourcesFit`` checks after ``pods``, in this order. It checks all other
resources in random order; here they are sorted."""
_REQUESTS = attrgetter("requests")


class Node:
    """Resources of the node, and the requests of all pods that are placed on it.

    ``fixed`` has the node's resources other than devices (``cpu`` in milli-CPUs, ``memory``
    in bytes, ``pods``). A request for a device resource is compared with the number of allocatable
    devices. A request for a resource that the node does not have is ignored.
    """

    def __init__(
        self,
        fixed: Mapping[ResourceName, int] | None = None,
        *,
        unknown_init_requests: bool = False,
        pod_level_requests: bool = False,
    ) -> None:
        """Create a node without pods.

        With ``unknown_init_requests``, a pod is rejected if an init container requests a device
        resource that the node does not have, as in kubelets up to v1.30. With
        ``pod_level_requests``, the requests of ``spec.resources`` replace those of the containers.
        """
        self._fixed = dict(fixed or {})
        self._unknown_init_requests = unknown_init_requests
        self._pod_level_requests = pod_level_requests
        self._pods: dict[PodUid, Mapping[ResourceName, int]] = {}
        # Successive pods often have equal requests. One shared mapping saves memory if
        # thousands of pods are simulated.
        self._latest: Mapping[ResourceName, int] = {}
        self._used: dict[ResourceName, int] = {}

    def place(self, pod: Pod, devices: Callable[[ResourceName], int | None]) -> None:
        """Place a pod on the node if its requests fit. A pod that is already placed is not counted
        twice.

        ``devices`` is called with the name of a resource. It returns the number of allocatable
        devices, or None if the node does not have the resource. Requests for a resource that the
        node does not have are ignored (``removeMissingExtendedResources``, v1.32).

        Raises Rejected (``OutOf<resource>``) for the first resource that does not fit.
        """
        requests = self._requests(pod)
        mine = self._pods.get(pod.uid, {})
        # The check comes first: if it fails, the earlier requests of a placed pod stay counted.
        self._check(pod, mine, requests, devices)
        if mine:
            self.remove(pod.uid)
        if requests != self._latest:
            self._latest = requests
        self._pods[pod.uid] = self._latest
        for resource, requested in requests.items():
            self._used[resource] = self._used.get(resource, 0) + requested

    def _requests(self, pod: Pod) -> Mapping[ResourceName, int]:
        """Return the pod's requests in the order in which the node check reads them."""
        requests = pod_requests(pod, _REQUESTS)
        if self._pod_level_requests and pod.pod_level_requests:
            requests = {**requests, **pod.pod_level_requests}
        # A dict keeps the place at which a key was first inserted, so the last part of the result
        # appends only the resources that are not in ``_FIRST``.
        first = {name: requests[name] for name in _FIRST if name in requests}
        return {PODS: 1, **first, **requests}

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
                    # Kubelets up to v1.30 remove the unknown resource from app containers
                    # only, so init containers' requests are compared with 0.
                    capacity, requested = 0, _of_init_containers(pod, resource)
            used = self._used.get(resource, 0) - mine.get(resource, 0)
            # The rule for old kubelets above may have replaced ``requested`` with 0.
            if capacity is not None and 0 < requested > capacity - used:
                message = messages.NODE_TOO_SMALL.format(
                    resource=resource, requested=requested, used=used, capacity=capacity
                )
                raise Rejected(messages.OUT_OF.format(resource=resource), message)

    def exceeds(self, pod: Pod) -> str:
        """Return the kubelet's text if a pod requests more CPU or memory than the whole node has;
        otherwise an empty text (``canResizePod``, pkg/kubelet/allocation, v1.35)."""
        requests = self._requests(pod)
        for resource in (ResourceName("memory"), ResourceName("cpu")):
            requested, capacity = requests.get(resource, 0), self._fixed.get(resource)
            if capacity is not None and requested > capacity:
                return messages.NODE_TOO_SMALL_FOR_RESIZE.format(
                    resource=resource, requested=requested, capacity=capacity
                )
        return ""

    def remove(self, pod: PodUid) -> None:
        """Remove a pod from the node; ignore a pod that is not on it."""
        for resource, requested in self._pods.pop(pod, {}).items():
            self._used[resource] -= requested

    def recount(self) -> None:
        """Add up the requests of all pods again, after an interrupt stopped an admission."""
        # The interrupt may have come between the updates of ``_pods`` and ``_used``, so the sums
        # cannot be corrected step by step.
        self._used = {}
        for requests in self._pods.values():
            for resource, requested in requests.items():
                self._used[resource] = self._used.get(resource, 0) + requested


@attrs.define
class NodeStatus:
    """Device counts in the node's status: ``capacity`` and ``allocatable`` by resource.

    Resources that the device manager has removed remain, with a count of 0
    (``MachineInfo``, pkg/kubelet/nodestatus/setters.go, v1.32).
    """

    capacity: dict[str, int] = attrs.field(factory=dict)
    allocatable: dict[str, int] = attrs.field(factory=dict)

    def update(
        self,
        capacity: Mapping[str, int],
        allocatable: Mapping[str, int],
        removed: Iterable[str] = (),
    ) -> None:
        """Update the counts of the resources in the arguments ``capacity`` and ``allocatable``. Set
        the counts of ``removed`` resources to 0.

        All other resources keep their counts, even counts that an earlier kubelet instance set.
        """
        for numbers, now in ((self.capacity, capacity), (self.allocatable, allocatable)):
            numbers.update(dict.fromkeys(removed, 0))
            numbers.update(now)

    def reset(self) -> None:
        """Set all counts to 0, as a kubelet without a checkpoint does at start
        (``ShouldResetExtendedResourceCapacity``, v1.32)."""
        self.capacity = dict.fromkeys(self.capacity, 0)
        self.allocatable = dict.fromkeys(self.allocatable, 0)

    def copy(self) -> NodeStatus:
        """Return an independent copy."""
        return NodeStatus(dict(self.capacity), dict(self.allocatable))


def _of_init_containers(pod: Pod, resource: ResourceName) -> int:
    inits = attrs.evolve(pod, containers=())
    return effective_request(inits, lambda container: container.requests.get(resource, 0))
