"""The whole of a pod's status: of one that the kubelet runs, and of one that it rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

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
from devicemanager.core.status import ResourceStatus

__all__ = [
    "ContainerEntry",
    "PodFacts",
    "PodStatus",
    "QosClass",
    "Resources",
    "pod_status",
    "qos_class",
    "rejected_status",
]

Resources = Mapping[ContainerName, tuple[ResourceStatus, ...]]
"""``allocatedResourcesStatus`` by container."""


_COUNTED = (ResourceName("cpu"), ResourceName("memory"))


class QosClass(StrEnum):
    """How well a pod is served when the node gets short of something."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@attrs.frozen
class ContainerEntry:
    """One of ``containerStatuses`` or ``initContainerStatuses``."""

    container: Container
    status: ContainerStatus
    is_ready: bool
    resources: tuple[ResourceStatus, ...] = ()

    @property
    def is_started(self) -> bool:
        """``started``: runs, since there are no startup probes here."""
        return self.status.is_running


@attrs.frozen
class PodStatus:
    """``status`` of a pod, as far as the kubelet owns it."""

    phase: Phase
    reason: str
    message: str
    start_time: float | None
    """Seconds since the epoch at which the kubelet saw the pod first; None if unknown."""
    qos_class: QosClass
    conditions: tuple[Condition, ...] = ()
    init_containers: tuple[ContainerEntry, ...] = ()
    """In the order of the spec."""
    containers: tuple[ContainerEntry, ...] = ()
    """Sorted by name."""


@attrs.frozen
class PodFacts:
    """What a pod's status is made of."""

    pod: Pod
    phase: Phase
    reason: str = ""
    message: str = ""
    start_time: float | None = None
    has_sandbox: bool = False
    unready: frozenset[str] = frozenset()
    """Containers that never get ready."""
    disrupted: str = ""
    """Why the kubelet ended it: the message of the condition ``DisruptionTarget``."""


def pod_status(
    facts: PodFacts,
    status_of: Callable[[ContainerName], ContainerStatus],
    resources: Resources | None = None,
    gates: Gates | None = None,
) -> PodStatus:
    """Of a pod that was admitted (``generateAPIPodStatus``, pkg/kubelet/kubelet_pods.go, v1.32)."""
    pod = facts.pod
    statuses = {each.name: status_of(each.name) for each, _ in pod.all_containers()}
    conditions = pod_conditions(
        pod,
        statuses,
        facts.phase,
        start_time=facts.start_time,
        has_sandbox=facts.has_sandbox,
        unready=facts.unready,
        gates=gates,
    )
    if facts.disrupted:
        conditions = (_disruption(facts), *conditions)

    def entry(container: Container, is_init: bool) -> ContainerEntry:
        status = statuses[container.name]
        ready = container.name not in facts.unready and is_ready(container, status, is_init)
        held = () if is_init else (resources or {}).get(container.name, ())
        return ContainerEntry(container, status, ready, held)

    return PodStatus(
        facts.phase,
        facts.reason,
        facts.message,
        facts.start_time,
        qos_class(pod),
        conditions,
        tuple([entry(each, True) for each in pod.init_containers]),
        tuple([entry(each, False) for each in sorted(pod.containers, key=lambda each: each.name)]),
    )


def rejected_status(facts: PodFacts) -> PodStatus:
    """Of a pod that was rejected: no conditions and no containers (``rejectPod``,
    pkg/kubelet/kubelet.go, v1.32)."""
    message = messages.REJECTED.format(message=facts.message)
    return PodStatus(Phase.FAILED, facts.reason, message, facts.start_time, qos_class(facts.pod))


def _disruption(facts: PodFacts) -> Condition:
    """``DisruptionTarget`` of a pod that the kubelet itself ended."""
    return Condition("DisruptionTarget", True, "TerminationByKubelet", facts.disrupted)


def qos_class(pod: Pod) -> QosClass:
    """By the containers' CPU and memory (``ComputePodQOS``, pkg/apis/core/v1/helper/qos, v1.32,
    without resources of the pod as a whole)."""
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
    guaranteed = all_limited and requests == limits
    return QosClass.GUARANTEED if guaranteed else QosClass.BURSTABLE
