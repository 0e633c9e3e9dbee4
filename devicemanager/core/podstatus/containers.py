"""The states of a pod's containers, as the API has them."""

from __future__ import annotations

import attrs

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod

__all__ = [
    "KILLED", "STOPPED", "ContainerStatus", "Running", "State", "Terminated", "Waiting",
    "initial_status",
]  # fmt: skip

KILLED = 137
"""The exit code of a container that SIGKILL ended: 128 and the signal's number."""
STOPPED = 143
"""The exit code of a container that SIGTERM ended."""


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

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return isinstance(self.state, Running)

    @property
    def was_started(self) -> bool:
        """Whether it has ever run."""
        return not isinstance(self.state, Waiting) or self.last_termination is not None

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended, with exit code 0."""
        return isinstance(self.state, Terminated) and self.state.exit_code == 0

    @property
    def end(self) -> Terminated | None:
        """How it has ended; None for one that runs or never did."""
        match self.state:
            case Terminated():
                return self.state
            case Waiting():
                return self.last_termination
        return None

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
