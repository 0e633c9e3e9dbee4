"""``status.phase`` of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod, RestartPolicy
from devicemanager.core.podstatus.containers import ContainerStatus


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
        """True if the phase cannot change any more."""
        return self is Phase.SUCCEEDED or self is Phase.FAILED


def phase_of(
    pod: Pod,
    statuses: Mapping[ContainerName, ContainerStatus],
    *,
    is_ending: bool = False,
    before: Phase | None = None,
) -> Phase:
    """Return the phase of a pod (``getPhase``, pkg/kubelet/kubelet_pods.go, v1.32).

    ``statuses`` has the containers that were started at least once. With ``is_ending`` no
    container is restarted, regardless of the restartPolicy. A terminal phase in ``before``
    does not change.
    """
    # A terminal phase is final: container statuses can be lost with the containers, and the
    # phase that was reported must not change by that.
    if before is not None and before.is_terminal:
        return before
    failed_init = pending_init = False
    waiting = running = stopped = succeeded = 0
    for container in pod.init_containers:
        status = statuses.get(container.name)
        # Sidecars count like app containers, except that their exit never ends the pod.
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
    # The order of these tests is the kubelet's: a pod whose init container has failed for good
    # is Failed although its app containers still wait.
    if failed_init and pod.restart_policy is RestartPolicy.NEVER:
        return Phase.FAILED
    if pending_init or waiting:
        return Phase.PENDING
    if running:
        return Phase.RUNNING
    return _after_all(pod.restart_policy, succeeded == stopped, is_ending)


def _after_all(policy: RestartPolicy, succeeded: bool, is_ending: bool) -> Phase:
    """Return the phase of a pod without running containers."""
    if succeeded and (is_ending or policy is not RestartPolicy.ALWAYS):
        return Phase.SUCCEEDED
    if is_ending or policy is RestartPolicy.NEVER:
        return Phase.FAILED
    return Phase.RUNNING
