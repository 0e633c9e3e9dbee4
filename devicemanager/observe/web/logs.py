"""``/containerLogs``: what a container would have written, had it run."""

from __future__ import annotations

from collections.abc import Iterator

from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated, Waiting
from devicemanager.objects.status.times import timestamp

__all__ = ["log_lines", "previous_lines"]


def log_lines(status: ContainerStatus) -> list[str]:
    """Made-up lines of the container as it is now; none of one that never ran."""
    match status.state:
        case Running(started_at):
            return [*_started(status, started_at, status.restart_count)]
        case Terminated():
            return [*_ended(status, status.state, status.restart_count)]
        case Waiting():
            return previous_lines(status)


def previous_lines(status: ContainerStatus) -> list[str]:
    """Of the time before that ended; none if there was none."""
    if status.last_termination is None:
        return []
    return [*_ended(status, status.last_termination, max(0, status.restart_count - 1))]


def _started(status: ContainerStatus, at: float | None, run: int) -> Iterator[str]:
    again = f", restart {run}" if run else ""
    yield f"{_time(at)} container {status.name} started{again}"


def _ended(status: ContainerStatus, end: Terminated, run: int) -> Iterator[str]:
    yield from _started(status, end.started_at, run)
    code, reason = end.exit_code, end.reason
    yield f"{_time(end.finished_at)} container {status.name} ended: exit code {code}, {reason}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else timestamp(seconds)
