"""The pod conditions that the kubelet owns (pkg/kubelet/status/generate.go, v1.32)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import attrs

from devicemanager.core.ids import ContainerName
from devicemanager.core.messages import go_printed
from devicemanager.core.pods import Container, Pod
from devicemanager.core.podstatus.containers import ContainerStatus, Running
from devicemanager.core.podstatus.phase import Phase


class ConditionType(StrEnum):
    """Types of the pod conditions that the kubelet owns, in the kubelet's order.

    Other controllers own all other types.
    """

    READY_TO_START_CONTAINERS = "PodReadyToStartContainers"
    INITIALIZED = "Initialized"
    READY = "Ready"
    CONTAINERS_READY = "ContainersReady"
    SCHEDULED = "PodScheduled"


_ALL_RESTARTING: Final = "AllContainersRestarting"
"""Type of the condition of a pod with a rule that restarts all containers."""


class ResizeCondition(StrEnum):
    """Types of the conditions of a pod whose resize is not complete."""

    PENDING = "PodResizePending"
    IN_PROGRESS = "PodResizeInProgress"


@attrs.frozen
class Condition:
    """One condition of a pod's status."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    since: float | None = None
    """``lastTransitionTime`` in seconds since the epoch. None stands for the time of the first
    report."""
    generation: int | None = None
    """``observedGeneration`` of the condition. None stands for the ``observedGeneration`` of the
    pod's status."""


Gates = Mapping[str, str | None]
"""Status of each readiness gate's condition, by condition type (``spec.readinessGates``). A status
is a text such as ``"True"``, or None if the pod does not have the condition."""


def is_ready(container: Container, status: ContainerStatus, is_init: bool) -> bool:
    """True if a container without a readiness probe is ready (``UpdatePodStatus``,
    pkg/kubelet/prober, v1.32)."""
    if is_init and not container.restartable:
        return status.has_succeeded
    return status.is_running


def pod_conditions(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    phase: Phase,
    *,
    start_time: float | None,
    has_sandbox: bool,
    sandbox_time: float | None = None,
    unready: frozenset[str] = frozenset(),
    gates: Gates | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions that the kubelet sets for an admitted pod.

    ``statuses`` has the statuses of all containers of the pod. Containers in ``unready`` never
    become ready. ``sandbox_time`` is the time at which the sandbox was created; if it is
    None, ``start_time`` is used.
    """
    containers_ready = _containers_ready(pod, statuses, phase, unready, start_time)
    last = _latest(statuses.values()) or start_time
    # The kubelet removes the sandbox of a pod that has ended.
    sandbox = has_sandbox and not phase.is_terminal
    conditions = (
        Condition(
            ConditionType.READY_TO_START_CONTAINERS,
            sandbox,
            since=(sandbox_time or start_time) if sandbox else last,
        ),
        _initialized(pod, statuses, phase, start_time),
        _ready(containers_ready, gates or {}),
        containers_ready,
        # Always True, because the kubelet only gets pods that are bound to its node.
        Condition(ConditionType.SCHEDULED, True, since=start_time),
    )
    return (*conditions, _restarting(phase, start_time)) if pod.can_restart_all else conditions


def _restarting(phase: Phase, start_time: float | None) -> Condition:
    """Return the condition AllContainersRestarting (``GenerateAllContainersRestartingCondition``,
    v1.37). It is never True, because containers restart at once."""
    reasons = {Phase.SUCCEEDED: "PodCompleted", Phase.FAILED: "PodFailed"}
    return Condition(_ALL_RESTARTING, False, reasons.get(phase, ""), since=start_time)


def _initialized(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    phase: Phase,
    start_time: float | None,
) -> Condition:
    """Return the condition Initialized (``GeneratePodInitializedCondition``)."""
    kind = ConditionType.INITIALIZED
    since = _latest(statuses[each.name] for each in pod.init_containers) or start_time
    if phase is Phase.SUCCEEDED:
        return Condition(kind, True, "PodCompleted", since=since)
    # App containers start only after the init containers are complete. If an app container has
    # run, the init containers were complete, even if their statuses are lost.
    has_run = any(statuses[each.name].was_started for each in pod.containers)
    incomplete = [
        each.name for each in pod.init_containers if not is_ready(each, statuses[each.name], True)
    ]
    if has_run or not incomplete:
        return Condition(kind, True, since=since)
    message = f"containers with incomplete status: {go_printed(incomplete)}"
    return Condition(kind, False, "ContainersNotInitialized", message, start_time)


def _containers_ready(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    phase: Phase,
    unready: frozenset[str],
    start_time: float | None,
) -> Condition:
    """Return the condition ContainersReady (``GenerateContainersReadyCondition``)."""
    kind = ConditionType.CONTAINERS_READY
    # Ordinary init containers have ended when the pod is ready, so they cannot count.
    counted = [each for each in pod.init_containers if each.restartable] + list(pod.containers)
    if phase.is_terminal:
        reason = "PodCompleted" if phase is Phase.SUCCEEDED else "PodFailed"
        since = _latest(statuses[each.name] for each in counted) or start_time
        return Condition(kind, False, reason, since=since)
    missing = [
        each.name
        for each in counted
        if each.name in unready or not is_ready(each, statuses[each.name], False)
    ]
    if not missing:
        since = _latest(statuses[each.name] for each in counted) or start_time
        return Condition(kind, True, since=since)
    message = f"containers with unready status: {go_printed(missing)}"
    ends = [each for name in missing if (each := _last_change(statuses[name])) is not None]
    # One container is enough to make the condition False, so the earliest change counts.
    since = min(ends, default=start_time)
    return Condition(kind, False, "ContainersNotReady", message, since)


def _ready(containers_ready: Condition, gates: Gates) -> Condition:
    """Return the condition Ready (``GeneratePodReadyCondition``)."""
    # As in the kubelet, messages about readiness gates are left out if a container is not ready.
    ready = attrs.evolve(containers_ready, type=ConditionType.READY)
    if not ready.status:
        return ready
    messages = [_gate_message(gate, status) for gate, status in gates.items() if status != "True"]
    if not messages:
        return ready
    return Condition(
        ConditionType.READY, False, "ReadinessGatesNotReady", ", ".join(messages), ready.since
    )


def _gate_message(gate: str, status: str | None) -> str:
    if status is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    return f'the status of pod readiness gate "{gate}" is not "True", but {status}'


def _last_change(status: ContainerStatus) -> float | None:
    """Return the time of a container's last state change; None if the container never ran or the
    time is unknown."""
    if isinstance(status.state, Running):
        return status.state.started_at
    return None if status.end is None else status.end.finished_at


def _latest(statuses: Iterable[ContainerStatus]) -> float | None:
    times = [each for status in statuses if (each := _last_change(status)) is not None]
    return max(times, default=None)
