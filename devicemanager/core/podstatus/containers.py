"""Container states and their transitions, as in ``status.containerStatuses``."""

from __future__ import annotations

import attrs

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod

KILLED = 137
"""Exit code of a container that SIGKILL terminated: 128 plus the signal number."""
STOPPED = 143
"""Exit code of a container that SIGTERM terminated."""
RESTARTING_ALL = "RestartingAllContainers"
"""Reason in the status of a container that waits, or has ended, because all containers of its pod
restart."""
_REMOVED = "The container is removed because RestartAllContainers in place"


@attrs.frozen
class Waiting:
    """State of a container that is not running but will be started."""

    reason: str
    """Reason as in the pod's status, such as ``ContainerCreating``, ``PodInitializing``,
    ``CrashLoopBackOff``, ``ErrImagePull`` or ``CreateContainerConfigError``."""
    message: str = ""


@attrs.frozen
class Running:
    """State of a running container."""

    started_at: float | None = None
    """Seconds since the epoch; None if an earlier kubelet instance started the container."""


@attrs.frozen
class Terminated:
    """State of a container that has exited."""

    exit_code: int
    reason: str
    """``Completed`` for exit code 0, ``Error`` for any other exit code, or a reason such as
    ``OOMKilled`` from the caller of ``ContainerStatus.ended``."""
    started_at: float | None = None
    finished_at: float | None = None
    """Seconds since the epoch; None if unknown."""
    message: str = ""


State = Waiting | Running | Terminated


@attrs.frozen
class ContainerStatus:
    """Status of one container, as in ``status.containerStatuses``."""

    name: ContainerName
    state: State
    last_termination: Terminated | None = None
    """``lastState.terminated``: how the container exited before its last restart."""
    restart_count: int = 0

    @property
    def is_running(self) -> bool:
        """True if the container is running."""
        return isinstance(self.state, Running)

    @property
    def was_started(self) -> bool:
        """True if the container has ever run."""
        return not isinstance(self.state, Waiting) or self.last_termination is not None

    @property
    def has_succeeded(self) -> bool:
        """True if the container has exited with code 0."""
        return isinstance(self.state, Terminated) and self.state.exit_code == 0

    @property
    def end(self) -> Terminated | None:
        """The last exit of the container; None if the container is running or has never run."""
        match self.state:
            case Terminated():
                return self.state
            case Waiting():
                return self.last_termination
        return None

    def started(self, now: float | None) -> ContainerStatus:
        """Return the status after a start or restart at ``now``."""
        before = self.last_termination
        match self.state:
            case Terminated():
                before = self.state
            case Running(started_at):
                # A running container is killed before it is restarted.
                before = Terminated(KILLED, "Error", started_at, now)
        # ``restartCount`` is the number of terminations, so the first start does not count.
        restarts = self.restart_count + (before is not None)
        return ContainerStatus(self.name, Running(now), before, restarts)

    def ended(self, exit_code: int, reason: str, now: float | None) -> ContainerStatus:
        """Return the status after the container has exited at ``now``."""
        started_at = self.state.started_at if isinstance(self.state, Running) else None
        ended = Terminated(exit_code, reason, started_at, now)
        return attrs.evolve(self, state=ended)

    def removed(self) -> ContainerStatus:
        """Return the status of a container that was removed to restart all containers of its pod
        (``convertToAPIContainerStatuses``, pkg/kubelet/kubelet_pods.go, v1.37)."""
        ended = Terminated(KILLED, RESTARTING_ALL, message=_REMOVED)
        return attrs.evolve(self, state=Waiting(RESTARTING_ALL, _REMOVED), last_termination=ended)

    def waits(self, reason: str, message: str) -> ContainerStatus:
        """Return the status of a container that waits for its start or restart."""
        # While the container waits, its last exit is visible only in ``lastState``.
        ended = self.state if isinstance(self.state, Terminated) else self.last_termination
        return attrs.evolve(self, state=Waiting(reason, message), last_termination=ended)


def initial_status(pod: Pod, name: ContainerName) -> ContainerStatus:
    """Return the status of a container that was never started
    (``convertStatusToAPIStatus``, v1.32)."""
    waits_for_others = bool(pod.init_containers) and any(name == c.name for c in pod.containers)
    reason = "PodInitializing" if waits_for_others else "ContainerCreating"
    return ContainerStatus(name, Waiting(reason))
