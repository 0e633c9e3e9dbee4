"""The whole status of a pod that the kubelet has admitted or rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from operator import attrgetter

import attrs

from devicemanager.core import messages
from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.podstatus.conditions import (
    Condition,
    Gates,
    is_ready,
    pod_conditions,
)
from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.resize import Resize
from devicemanager.core.status import ResourceStatus

Resources = Mapping[ContainerName, tuple[ResourceStatus, ...]]
"""The entries of ``allocatedResourcesStatus``, by container."""


# The QoS class depends only on these resources. A pod that requests only devices is BestEffort.
_COUNTED = (ResourceName("cpu"), ResourceName("memory"))
_NAME = attrgetter("name")


class QosClass(StrEnum):
    """Quality of Service class of a pod (``status.qosClass``).

    If the node is under pressure, Guaranteed pods are evicted last.
    """

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@attrs.frozen
class ContainerEntry:
    """One entry of ``containerStatuses``, ``initContainerStatuses`` or
    ``ephemeralContainerStatuses``, with its container."""

    container: Container
    status: ContainerStatus
    is_ready: bool
    resources: tuple[ResourceStatus, ...] = ()
    actual: Container | None = None
    """During a resize: the container with its actual CPU and memory. Otherwise None."""

    @property
    def is_started(self) -> bool:
        """True if the container is running; the mock has no startup probes."""
        return self.status.is_running


@attrs.frozen
class PodStatus:
    """The fields of a pod's ``status`` that the kubelet owns."""

    phase: Phase
    reason: str
    message: str
    start_time: float | None
    """Time at which the kubelet first saw the pod, in seconds since the epoch; None if
    unknown."""
    qos_class: QosClass
    conditions: tuple[Condition, ...] = ()
    init_containers: tuple[ContainerEntry, ...] = ()
    """The entries of the init containers, in the order of the spec."""
    containers: tuple[ContainerEntry, ...] = ()
    """The entries of the app containers, sorted by name."""
    ephemeral_containers: tuple[ContainerEntry, ...] = ()
    """The entries of the ephemeral containers, sorted by name."""

    def all_containers(self) -> Iterator[ContainerEntry]:
        """Iterate over ``init_containers``, ``containers`` and ``ephemeral_containers``, in this
        order."""
        return chain(self.init_containers, self.containers, self.ephemeral_containers)


@attrs.frozen
class PodFacts:
    """Facts about a pod from which its status is computed."""

    pod: Pod
    phase: Phase
    reason: str = ""
    message: str = ""
    start_time: float | None = None
    has_sandbox: bool = False
    unready: frozenset[str] = frozenset()
    """Names of the containers that never become ready."""
    disrupted: str = ""
    """Why the kubelet terminated the pod: the message of the condition ``DisruptionTarget``.
    Empty if the kubelet did not terminate the pod."""
    resize: Resize | None = None
    sandbox_time: float | None = None
    """Time at which the sandbox was created, in seconds since the epoch; None if unknown."""


def pod_status(
    facts: PodFacts,
    status_of: Callable[[ContainerName], ContainerStatus],
    resources: Resources | None = None,
    gates: Gates | None = None,
) -> PodStatus:
    """Return the status of an admitted pod (``generateAPIPodStatus``,
    pkg/kubelet/kubelet_pods.go, v1.32).

    ``resources`` is ``allocatedResourcesStatus`` by container. ``gates`` has the conditions of the
    pod's readiness gates.
    """
    pod = facts.pod
    statuses = {each.name: status_of(each.name) for each, _ in pod.all_containers()}
    conditions = pod_conditions(
        pod,
        statuses,
        facts.phase,
        start_time=facts.start_time,
        has_sandbox=facts.has_sandbox,
        sandbox_time=facts.sandbox_time,
        unready=facts.unready,
        gates=gates,
    )
    if facts.disrupted:
        conditions = (_disruption(facts), *conditions)
    actual: Mapping[ContainerName, Container] = {}
    if facts.resize is not None and not facts.phase.is_terminal:
        conditions = (*facts.resize.conditions(), *conditions)
        if (progress := facts.resize.in_progress) is not None:
            actual = {each.name: each for each, _ in progress.before.all_containers()}

    def entry(container: Container, is_init: bool) -> ContainerEntry:
        status = statuses[container.name]
        ready = container.name not in facts.unready and is_ready(container, status, is_init)
        # The kubelet reports device health for app containers only.
        devices = () if is_init else (resources or {}).get(container.name, ())
        return ContainerEntry(container, status, ready, devices, actual.get(container.name))

    def ephemeral(container: Container) -> ContainerEntry:
        # The kubelet does not probe them, so they are never ready.
        return ContainerEntry(container, status_of(container.name), is_ready=False)

    return PodStatus(
        facts.phase,
        facts.reason,
        facts.message,
        facts.start_time,
        qos_class(pod),
        conditions,
        # The kubelet sorts app containers by name, but leaves init containers in spec order.
        tuple([entry(each, True) for each in pod.init_containers]),
        tuple([entry(each, False) for each in sorted(pod.containers, key=_NAME)]),
        tuple([ephemeral(each) for each in sorted(pod.ephemeral_containers, key=_NAME)]),
    )


def rejected_status(facts: PodFacts) -> PodStatus:
    """Return the status of a rejected pod, without conditions and containers (``rejectPod``,
    pkg/kubelet/kubelet.go, v1.32)."""
    message = messages.REJECTED.format(message=facts.message)
    return PodStatus(Phase.FAILED, facts.reason, message, facts.start_time, qos_class(facts.pod))


def _disruption(facts: PodFacts) -> Condition:
    """Return the condition ``DisruptionTarget`` of a pod that the kubelet has terminated."""
    return Condition("DisruptionTarget", True, "TerminationByKubelet", facts.disrupted)


def qos_class(pod: Pod) -> QosClass:
    """Return the pod's QoS class, computed from the CPU and memory of its containers.

    Follows ``ComputePodQOS`` (pkg/apis/core/v1/helper/qos, v1.32), without pod-level resources.
    """
    requests = dict.fromkeys(_COUNTED, 0)
    limits = dict.fromkeys(_COUNTED, 0)
    all_limited = True
    for container, _ in pod.all_containers():
        for name in _COUNTED:
            requests[name] += container.requests.get(name, 0)
            limits[name] += container.limits.get(name, 0)
            all_limited &= container.limits.get(name, 0) > 0
    if not any(requests.values()) and not any(limits.values()):
        return QosClass.BEST_EFFORT
    # As in the kubelet, the sums over all containers are compared.
    guaranteed = all_limited and requests == limits
    return QosClass.GUARANTEED if guaranteed else QosClass.BURSTABLE
