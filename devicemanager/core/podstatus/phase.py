"""``status.phase`` of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod, RestartPolicy
from devicemanager.core.podstatus.containers import ContainerStatus

__all__ = ["Phase", "phase_of"]


class Phase(StrEnum):
    """``status.phase``."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """The source does not report the phase. The kubelet itself never sets it."""

    @property
    def is_terminal(self) -> bool:
        """Whether it is for good."""
        return self is Phase.SUCCEEDED or self is Phase.FAILED


def phase_of(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    *,
    is_ending: bool = False,
    before: Phase | None = None,
) -> Phase:
    """The phase of a pod (``getPhase``, pkg/kubelet/kubelet_pods.go, v1.32).

    ``statuses`` are those of containers that were started at least once. ``is_ending``: no
    container is started any more, whatever the restartPolicy. A pod that was Succeeded or
    Failed ``before`` stays so.
    """
    if before is not None and before.is_terminal:
        return before
    failed_init = pending_init = False
    waiting = running = stopped = succeeded = 0
    for container in pod.init_containers:
        status = statuses.get(container.name)
        if container.restartable:
            running += status is not None and status.is_running
            waiting += status is None or not status.was_started
            continue
        ended = None if status is None else status.end
        pending_init |= ended is None
        failed_init |= ended is not None and ended.exit_code != 0
    for container in pod.containers:
        status = statuses.get(container.name)
        if status is not None and status.is_running:
            running += 1
        elif status is None or status.end is None:
            waiting += 1
        else:
            stopped += 1
            succeeded += status.has_succeeded
    if failed_init and pod.restart_policy is RestartPolicy.NEVER:
        return Phase.FAILED
    if pending_init or waiting:
        return Phase.PENDING
    if running:
        return Phase.RUNNING
    return _after_all(pod.restart_policy, succeeded == stopped, is_ending)


def _after_all(policy: RestartPolicy, succeeded: bool, is_ending: bool) -> Phase:
    """The phase once no container runs."""
    if succeeded and (is_ending or policy is not RestartPolicy.ALWAYS):
        return Phase.SUCCEEDED
    if is_ending or policy is RestartPolicy.NEVER:
        return Phase.FAILED
    return Phase.RUNNING
