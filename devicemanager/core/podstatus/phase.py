"""The phase of a pod (``status.phase``)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod, RestartPolicy
from devicemanager.core.podstatus.containers import RESTARTING_ALL, ContainerStatus, Terminated


class Phase(StrEnum):
    """Phase of a pod (``status.phase``)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """The phase is not known. The kubelet itself never sets this phase."""

    @property
    def is_terminal(self) -> bool:
        """True if the phase is Succeeded or Failed. Such a phase cannot change any more."""
        return self is Phase.SUCCEEDED or self is Phase.FAILED


def phase_of(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    *,
    is_ending: bool = False,
    before: Phase | None = None,
) -> Phase:
    """Return the phase of a pod (``getPhase``, pkg/kubelet/kubelet_pods.go, v1.32).

    A container that is missing in ``statuses`` was never started. With ``is_ending``, no container
    is restarted, even if the pod's restartPolicy is Always. ``before`` is the phase that was
    reported last; a terminal phase does not change.
    """
    # A terminal phase is final. If container statuses are lost with the containers, the reported
    # phase must not change.
    if before is not None and before.is_terminal:
        return before
    failed_init = pending_init = False
    waiting = running = stopped = succeeded = restarting = 0
    for container in pod.init_containers:
        status = statuses.get(container.name)
        # Sidecars count like app containers, except that their exit never ends the pod.
        if container.restartable:
            running += status is not None and status.is_running
            waiting += status is None or not status.was_started
            continue
        ended = None if status is None else status.end
        pending_init |= ended is None
        failed_init |= ended is not None and ended.exit_code != 0 and not _is_removed(ended)
    for container in pod.containers:
        status = statuses.get(container.name)
        if status is not None and status.is_running:
            running += 1
        elif status is None or status.end is None:
            waiting += 1
        else:
            stopped += 1
            succeeded += status.has_succeeded
            restarting += _is_removed(status.end) or pod.restarts(container, status.end.exit_code)
    # The order of these tests is the kubelet's. If an init container has failed and is not
    # restarted, the pod is Failed although its app containers still wait.
    if failed_init and pod.restart_policy is RestartPolicy.NEVER:
        return Phase.FAILED
    if pending_init or waiting:
        return Phase.PENDING
    if running:
        return Phase.RUNNING
    if restarting and not is_ending:
        return Phase.RUNNING
    return Phase.SUCCEEDED if succeeded == stopped else Phase.FAILED


def _is_removed(ended: Terminated) -> bool:
    """True if a container was removed because all containers of its pod are started again."""
    return ended.reason == RESTARTING_ALL
