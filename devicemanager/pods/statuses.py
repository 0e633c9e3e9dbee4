"""The states of a pod's containers, and the pod's phase, as the API has them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod, RestartPolicy

__all__ = [
    "KILLED", "ContainerStatus", "Phase", "Running", "State", "Terminated", "Waiting",
    "initial_status", "phase_of",
]  # fmt: skip

KILLED = 137
"""The exit code of a container that SIGKILL ended: 128 and the signal's number."""


class Phase(StrEnum):
    """``status.phase``."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@attrs.frozen
class Waiting:
    """A container that does not run yet, or not again yet."""

    reason: str
    """``ContainerCreating``, ``PodInitializing``, ``CrashLoopBackOff`` or
    ``CreateContainerConfigError``."""
    message: str = ""


@attrs.frozen
class Running:
    """A container that runs."""

    started_at: float | None = None
    """Seconds since the epoch; None if an earlier kubelet started it."""


@attrs.frozen
class Terminated:
    """A container that has ended."""

    exit_code: int
    reason: str
    """``Completed`` for exit code 0, else ``Error``, unless another one was given."""
    started_at: float | None = None
    finished_at: float | None = None
    """Seconds since the epoch."""


State = Waiting | Running | Terminated


@attrs.frozen
class ContainerStatus:
    """One container of a pod's ``status.containerStatuses``."""

    name: ContainerName
    state: State
    last_termination: Terminated | None = None
    """How it ended the time before; ``lastState.terminated``."""
    restart_count: int = 0

    def started(self, now: float | None) -> ContainerStatus:
        """It runs, again if it did before."""
        before = self.last_termination
        match self.state:
            case Terminated():
                before = self.state
            case Running(started_at):
                # What runs is started again only after it was killed.
                before = Terminated(KILLED, "Error", started_at, now)
        restarts = self.restart_count + (before is not None)
        return ContainerStatus(self.name, Running(now), before, restarts)

    def ended(self, exit_code: int, reason: str, now: float | None) -> ContainerStatus:
        """It has ended."""
        started_at = self.state.started_at if isinstance(self.state, Running) else None
        ended = Terminated(exit_code, reason, started_at, now)
        return attrs.evolve(self, state=ended)

    def waits(self, reason: str, message: str) -> ContainerStatus:
        """It is to be started later."""
        ended = self.state if isinstance(self.state, Terminated) else self.last_termination
        return attrs.evolve(self, state=Waiting(reason, message), last_termination=ended)


def initial_status(pod: Pod, name: ContainerName) -> ContainerStatus:
    """Of a container that was never started (``convertStatusToAPIStatus``, v1.32)."""
    waits_for_others = bool(pod.init_containers) and any(name == c.name for c in pod.containers)
    reason = "PodInitializing" if waits_for_others else "ContainerCreating"
    return ContainerStatus(name, Waiting(reason))


def phase_of(pod: Pod, statuses: Mapping[ContainerName, ContainerStatus]) -> Phase:
    """The phase of a pod that is not terminal yet (``getPhase``, pkg/kubelet/kubelet_pods.go,
    v1.32). ``statuses`` are those of containers that were started at least once."""
    failed_init = pending_init = False
    waiting = running = stopped = succeeded = 0
    for container in pod.init_containers:
        status = statuses.get(container.name)
        if container.restartable:
            running += status is not None and isinstance(status.state, Running)
            waiting += status is None or _never_started(status)
            continue
        ended = None if status is None else _end_of(status)
        pending_init |= ended is None
        failed_init |= ended is not None and ended.exit_code != 0
    for container in pod.containers:
        status = statuses.get(container.name)
        ended = None if status is None else _end_of(status)
        if status is not None and isinstance(status.state, Running):
            running += 1
        elif ended is None:
            waiting += 1
        else:
            stopped += 1
            is_success = status is not None and status.state == ended and ended.exit_code == 0
            succeeded += is_success
    if failed_init and pod.restart_policy is RestartPolicy.NEVER:
        return Phase.FAILED
    if pending_init or waiting:
        return Phase.PENDING
    if running or pod.restart_policy is RestartPolicy.ALWAYS:
        return Phase.RUNNING
    if stopped == succeeded:
        return Phase.SUCCEEDED
    return Phase.FAILED if pod.restart_policy is RestartPolicy.NEVER else Phase.RUNNING


def _never_started(status: ContainerStatus) -> bool:
    return isinstance(status.state, Waiting) and status.last_termination is None


def _end_of(status: ContainerStatus) -> Terminated | None:
    """How a container that does not run has ended; None for one that runs or never did."""
    match status.state:
        case Terminated():
            return status.state
        case Waiting():
            return status.last_termination
    return None
