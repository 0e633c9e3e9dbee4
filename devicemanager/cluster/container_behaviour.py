"""Simulated behaviour of containers: when they start and exit, because they do not really run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from devicemanager.client.rate_limited_warning import truncate
from devicemanager.cluster.durations import NO_TIME, ONE_SECOND, Range
from devicemanager.cluster.options import PREFIX
from devicemanager.core.podstatus.containers import STOPPED

__all__ = ["ANNOTATIONS", "ContainerBehaviour", "PodBehaviour"]

RUN_FOR: Final = f"{PREFIX}/run-for"
EXIT_CODE: Final = f"{PREFIX}/exit-code"
START_DELAY: Final = f"{PREFIX}/start-delay"
NEVER_READY: Final = f"{PREFIX}/never-ready"
ANNOTATIONS: Final = (RUN_FOR, EXIT_CODE, START_DELAY, NEVER_READY)
"""Annotations of a pod that override the default behaviour of its containers."""


@attrs.frozen
class PodBehaviour:
    """Simulated behaviour of the containers of one pod."""

    start_delay: float = 0.0
    """Seconds from the admission of the pod until its containers start."""
    run_for: float | None = None
    """Seconds from each start of an app container until it exits; None if it never exits."""
    exit_code: int = 0
    """Exit code of containers that exit by themselves."""
    never_ready: bool = False


@attrs.frozen
class ContainerBehaviour:
    """Default behaviour of the containers of all pods; annotations of a pod override it."""

    start_delay: Range = NO_TIME
    """Time from the admission of a pod until its containers start."""
    run_for: Range | None = None
    """Time from each start of an app container until it exits; None if it never exits."""
    job_duration: Range | None = ONE_SECOND
    """Value of ``run_for`` for pods of Jobs."""
    exit_code: int = 0
    """Exit code of containers that exit by themselves."""
    exit_code_on_delete: int = STOPPED
    """Exit code of containers that are stopped, by default 143 (SIGTERM). With 0, a Job counts a
    deleted pod as completed."""

    def of(self, metadata: Mapping[str, Any]) -> tuple[PodBehaviour, list[str]]:
        """Return the behaviour of the pod with this metadata, and errors in its annotations.

        An invalid annotation is ignored and reported as one line.
        """
        uid = str(metadata.get("uid"))
        errors: list[str] = []
        annotations = metadata.get("annotations") or {}

        def duration(name: str, default: Range | None) -> float | None:
            if name in annotations:
                try:
                    return Range.parse(str(annotations[name])).of(uid)
                except ValueError as error:
                    errors.append(f"annotation {name}: {error}")
            return None if default is None else default.of(uid)

        behaviour = _shared(
            duration(START_DELAY, self.start_delay) or 0.0,
            duration(RUN_FOR, self.job_duration if _is_of_job(metadata) else self.run_for),
            _exit_code(annotations, self.exit_code, errors),
            str(annotations.get(NEVER_READY, "")).lower() in ("true", "1", "yes"),
        )
        return behaviour, errors


@lru_cache(maxsize=256)
def _shared(
    start_delay: float, run_for: float | None, exit_code: int, never_ready: bool
) -> PodBehaviour:
    """Return a ``PodBehaviour`` that all pods with the same values share, to save memory."""
    return PodBehaviour(start_delay, run_for, exit_code, never_ready)


def _is_of_job(metadata: Mapping[str, Any]) -> bool:
    # Only the controller counts, because other owners do not define what the pod is for.
    owners = metadata.get("ownerReferences") or ()
    return any(each.get("kind") == "Job" and each.get("controller") for each in owners)


def _exit_code(annotations: Mapping[str, Any], default: int, errors: list[str]) -> int:
    if EXIT_CODE not in annotations:
        return default
    text = str(annotations[EXIT_CODE])
    # ``isdigit`` also accepts digits such as ², which ``int`` does not.
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    errors.append(
        f"annotation {EXIT_CODE}: invalid exit code {truncate(text)!r}: use a number from 0 to 255"
    )
    return default
