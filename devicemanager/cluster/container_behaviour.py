"""Simulated behavior of containers: when they start and exit. No container really runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import attrs

from devicemanager.client.rate_limited_warning import truncate
from devicemanager.cluster.durations import NO_TIME, ONE_SECOND, Range
from devicemanager.cluster.options import PREFIX
from devicemanager.core.podstatus.containers import STOPPED
from devicemanager.core.responses import NO_RESPONSES, Responses
from devicemanager.core.usage import IDLE, Amount, Usage

__all__ = ["ContainerBehaviour", "PodBehaviour", "own_annotations"]

RUN_FOR: Final = f"{PREFIX}/run-for"
EXIT_CODE: Final = f"{PREFIX}/exit-code"
INIT_EXIT_CODE: Final = f"{PREFIX}/init-exit-code"
START_DELAY: Final = f"{PREFIX}/start-delay"
NEVER_READY: Final = f"{PREFIX}/never-ready"
PULL_FAILS: Final = f"{PREFIX}/image-pull-fails"
CPU_USAGE: Final = f"{PREFIX}/cpu-usage"
MEMORY_USAGE: Final = f"{PREFIX}/memory-usage"
GPU_USAGE: Final = f"{PREFIX}/gpu-usage"
GPU_MEMORY_USAGE: Final = f"{PREFIX}/gpu-memory-usage"
LOG: Final = f"{PREFIX}/log"
EXEC: Final = f"{PREFIX}/exec"
EXEC_EXIT_CODE: Final = f"{PREFIX}/exec-exit-code"
PORT_FORWARD: Final = f"{PREFIX}/port-forward"
RESIZE_DELAY: Final = f"{PREFIX}/resize-delay"
"""Annotation of a pod: the time from an accepted resize until the containers have new resources.

The constants from ``RUN_FOR`` to this one name the annotations that override the default behavior
of a pod's containers (``ContainerBehaviour``).
"""

T = TypeVar("T")


def own_annotations(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the annotations of a pod that define the simulated behavior of its containers."""
    annotations = metadata.get("annotations") or {}
    return tuple((name, text) for name, text in annotations.items() if name.startswith(PREFIX))


@attrs.frozen
class PodBehaviour:
    """Simulated behavior of the containers of one pod."""

    start_delay: float = 0.0
    """Seconds from the admission of the pod until its containers start."""
    run_for: float | None = None
    """Seconds from each start of an app container until it exits; None if it never exits."""
    exit_code: int = 0
    """Exit code of app containers that exit by themselves."""
    never_ready: bool = False
    pull_fails: bool = False
    """True if the images of the containers cannot be pulled."""
    usage: Usage = IDLE
    """CPU, memory and GPU resources that each container uses."""
    responses: Responses = NO_RESPONSES
    """What the containers respond to ``kubectl logs``, ``exec`` and ``port-forward``."""
    resize_delay: float = 0.0
    """Seconds after the kubelet accepts a resize until the containers have the new resources."""
    init_exit_code: int = 0
    """Exit code of init containers that are not sidecars."""


@attrs.frozen
class ContainerBehaviour:
    """Default behavior of the containers of all pods; annotations of a pod override it."""

    start_delay: Range = NO_TIME
    """Time from the admission of a pod until its containers start."""
    run_for: Range | None = None
    """Time from each start of an app container until it exits; None if it never exits."""
    # Without a duration, a Job would never complete.
    job_duration: Range | None = ONE_SECOND
    """Time from each start of an app container of a Job until it exits; None if it never exits."""
    exit_code: int = 0
    """Exit code of app containers that exit by themselves."""
    exit_code_on_delete: int = STOPPED
    """Exit code of containers that are stopped, by default 143 (SIGTERM). With 0, a Job counts a
    deleted pod as completed."""
    usage: Usage = IDLE
    """CPU, memory and GPU resources that each container uses."""

    def of(self, metadata: Mapping[str, Any]) -> tuple[PodBehaviour, list[str]]:
        """Return the behavior of the pod with this metadata, and the errors in its annotations.

        Each error is one line. An invalid annotation is ignored.
        """
        given = _Annotations(metadata)
        run_for = self.job_duration if _is_of_job(metadata) else self.run_for
        behaviour = _shared(
            given.read(START_DELAY, Range.parse, self.start_delay).of(given.uid),
            _time(given.read(RUN_FOR, Range.parse, run_for), given.uid),
            given.read(EXIT_CODE, _exit_code, self.exit_code),
            given.read(NEVER_READY, _bool, False),
            given.read(PULL_FAILS, _bool, False),
            Usage(
                given.read(CPU_USAGE, Amount.parse, self.usage.cpu),
                given.read(MEMORY_USAGE, Amount.parse, self.usage.memory),
                given.read(GPU_USAGE, Amount.parse_share, self.usage.gpu),
                given.read(GPU_MEMORY_USAGE, Amount.parse, self.usage.gpu_memory),
            ),
            Responses(
                given.text(LOG) or "",
                given.text(EXEC),
                given.read(EXEC_EXIT_CODE, _exit_code, 0),
                given.text(PORT_FORWARD),
            ),
            given.read(RESIZE_DELAY, Range.parse, NO_TIME).of(given.uid),
            given.read(INIT_EXIT_CODE, _exit_code, 0),
        )
        return behaviour, given.errors


@lru_cache(maxsize=256)
def _shared(*values: Any) -> PodBehaviour:
    """Return a ``PodBehaviour`` that all pods with the same values share, to save memory."""
    return PodBehaviour(*values)


class _Annotations:
    """Reader of the annotations of one pod."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.uid = str(metadata.get("uid"))
        self.errors: list[str] = []
        """One line for each invalid annotation."""
        self._given = metadata.get("annotations") or {}

    def text(self, name: str) -> str | None:
        """Return an annotation; None if it is missing."""
        return str(self._given[name]) if name in self._given else None

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Parse an annotation. Return the default if it is missing or invalid."""
        text = self.text(name)
        if text is None:
            return default
        try:
            # The name is part of the key, so that two annotations of a pod choose independently.
            return parse(_choice(text, f"{name} {self.uid}"))
        except ValueError as error:
            self.errors.append(f"annotation {name}: {error}")
            return default


def _choice(text: str, key: str) -> str:
    """Choose one of several values with weights, such as ``0:9 | 1:1``.

    The same key always has the same value: a process that takes over a pod chooses the same. Raises
    ValueError for an invalid weight.
    """
    if "|" not in text:
        return text
    values = [_weighted(each) for each in text.split("|")]
    total = sum(weight for _, weight in values)
    # Not ``hash``, which is different in each process. If all weights are 0, ``max`` prevents a
    # division by 0, and no value is chosen.
    position = zlib.crc32(key.encode()) % max(1, total)
    for value, weight in values:
        position -= weight
        if position < 0:
            return value
    raise ValueError(f"invalid weights {truncate(text)!r}: at least one must be above 0")


def _weighted(text: str) -> tuple[str, int]:
    value, _, weight = text.partition(":")
    weight = weight.strip() or "1"
    if not (weight.isascii() and weight.isdigit() and len(weight) <= 6):
        raise ValueError(
            f"invalid weight {truncate(weight)!r}: use a whole number, as in 0:9 | 1:1"
        )
    return value.strip(), int(weight)


def _time(found: Range | None, uid: str) -> float | None:
    return None if found is None else found.of(uid)


def _is_of_job(metadata: Mapping[str, Any]) -> bool:
    # Only the controller counts, because other owners do not define what the pod is for.
    owners = metadata.get("ownerReferences") or ()
    return any(each.get("kind") == "Job" and each.get("controller") for each in owners)


def _exit_code(text: str) -> int:
    # ``isdigit`` also accepts digits such as ², which ``int`` does not.
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    raise ValueError(f"invalid exit code {truncate(text)!r}: use a number from 0 to 255")


def _bool(text: str) -> bool:
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no", ""):
        return False
    raise ValueError(f"invalid value {truncate(text)!r}: use true or false")
