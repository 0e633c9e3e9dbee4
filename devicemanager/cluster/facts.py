"""What containers do, since none runs: facts that the user states."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from devicemanager.cluster.client.rate_limited_warning import cut
from devicemanager.cluster.options import PREFIX
from devicemanager.core.podstatus.containers import STOPPED

__all__ = ["ANNOTATIONS", "Facts", "Play", "Range", "seconds"]

_TIMES: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h)")
_PLAIN: Final = re.compile(r"\d+(?:\.\d+)?")
_LONGEST_TIME: Final = 60
"""Characters."""
_LONGEST: Final = 10 * 365 * 24 * 3600.0

RUN_FOR: Final = f"{PREFIX}/run-for"
EXIT_CODE: Final = f"{PREFIX}/exit-code"
START_DELAY: Final = f"{PREFIX}/start-delay"
NEVER_READY: Final = f"{PREFIX}/never-ready"
ANNOTATIONS: Final = (RUN_FOR, EXIT_CODE, START_DELAY, NEVER_READY)
"""What a pod may say of itself."""


def seconds(text: str) -> float:
    """``30s``, ``1m30s``, ``500ms`` or ``2`` in seconds. Raises ValueError."""
    if _PLAIN.fullmatch(text):
        found = float(text)
    else:
        # A longer one is none; and the search takes the square of its length.
        parts = _PART.findall(text) if len(text) <= _LONGEST_TIME else []
        if not parts or "".join(map("".join, parts)) != text:
            raise ValueError(f"{cut(text)!r} is not a time such as 30s, 1m30s or 500ms")
        found = sum(float(number) * _TIMES[unit] for number, unit in parts)
    if found > _LONGEST:
        raise ValueError(f"{cut(text)!r} is more than ten years")
    return found


@attrs.frozen
class Range:
    """A time that is different for each pod, by at most ``spread``."""

    seconds: float = 0.0
    spread: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Range:
        """``1s`` or ``1s±0.5``; also ``1s+-0.5s``. Raises ValueError."""
        middle, _, spread = text.replace("+-", "±").partition("±")
        return cls(seconds(middle.strip()), seconds(spread.strip()) if spread else 0.0)

    def of(self, uid: str) -> float:
        """That of one pod: the same whenever it is asked for, and never below 0."""
        if not self.spread:
            return self.seconds
        part = zlib.crc32(uid.encode()) / 0xFFFFFFFF
        return max(0.0, self.seconds + (2 * part - 1) * self.spread)


@attrs.frozen
class Play:
    """What the containers of one pod do."""

    start_delay: float = 0.0
    """Seconds from the admission until they run."""
    run_for: float | None = None
    """Seconds that an app container runs, each time it is started; None for ever."""
    exit_code: int = 0
    """That it ends with then."""
    never_ready: bool = False


@attrs.frozen
class Facts:
    """Of all pods, as far as they do not say otherwise in their annotations."""

    start_delay: Range = Range()
    run_for: Range | None = None
    """None: for ever."""
    job_duration: Range | None = Range(1.0)
    """As ``run_for``, of pods that a Job owns."""
    exit_code: int = 0
    exit_code_on_delete: int = STOPPED
    """That containers end with which are told to: as if SIGTERM had ended them. With 0 a Job
    counts a deleted pod as completed."""

    def of(self, metadata: Mapping[str, Any]) -> tuple[Play, list[str]]:
        """What a pod does, and what is wrong with its annotations: that counts as not said."""
        uid = str(metadata.get("uid"))
        faults: list[str] = []
        said = metadata.get("annotations") or {}

        def span(name: str, otherwise: Range | None) -> float | None:
            if name in said:
                try:
                    return Range.parse(str(said[name])).of(uid)
                except ValueError as error:
                    faults.append(f"annotation {name}: {error}")
            return None if otherwise is None else otherwise.of(uid)

        runs = self.job_duration if _is_jobs(metadata) else self.run_for
        play = _play(
            span(START_DELAY, self.start_delay) or 0.0,
            span(RUN_FOR, runs),
            _code(said, self.exit_code, faults),
            str(said.get(NEVER_READY, "")).lower() in ("true", "1", "yes"),
        )
        return play, faults


@lru_cache(maxsize=256)
def _play(start_delay: float, run_for: float | None, exit_code: int, never_ready: bool) -> Play:
    """One for all pods that do the same, which most do."""
    return Play(start_delay, run_for, exit_code, never_ready)


def _is_jobs(metadata: Mapping[str, Any]) -> bool:
    owners = metadata.get("ownerReferences") or ()
    return any(each.get("kind") == "Job" and each.get("controller") for each in owners)


def _code(said: Mapping[str, Any], otherwise: int, faults: list[str]) -> int:
    if EXIT_CODE not in said:
        return otherwise
    text = str(said[EXIT_CODE])
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    faults.append(f"annotation {EXIT_CODE}: {cut(text)!r} is not a number from 0 to 255")
    return otherwise
