"""What may not grow, and the verdict over it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, Protocol

import attrs

_MB: Final = 1_000_000
_STATUS: Final = Path("/proc/self/status")
_DESCRIPTORS: Final = Path("/proc/self/fd")

SLACK: Final = {"memory": 4.0, "objects": 400, "descriptors": 4, "threads": 4}
"""How much more there may be at the end than at the start, in MB and in numbers: gRPC's
pools of threads breathe, and the allocator's arenas do."""


@attrs.frozen
class Reading:
    """The process at one quiet moment, when all pods are gone."""

    memory: float
    """The resident set, in MB."""
    objects: int
    """All that the garbage collector knows: a leak of ours shows here first, and exactly."""
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Reading:
        gc.collect()
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return cls(
            memory=int(fields["VmRSS"].split()[0]) * 1024 / _MB,
            objects=len(gc.get_objects()),
            descriptors=sum(1 for _ in _DESCRIPTORS.iterdir()),
            threads=int(fields["Threads"]),
        )


@attrs.frozen
class Lap:
    """A share of the whole churn, and what was left after it."""

    number: int
    admissions: int
    restarts: int
    rejected: int
    """Admissions while the plugin was away; each was tried again with another pod."""
    seconds: float
    p50: float
    """Of single admissions in the quiet after the lap, in ms."""
    baseline: float
    """p50 of an Allocate and a durable write, in turns with those."""
    reading: Reading

    @property
    def ratio(self) -> float:
        return self.p50 / self.baseline


_FLAT: Final = "memory, objects, descriptors and threads flat, self_check agrees"
HEAD: Final = (
    "lap  admitted  rejected  restarts      s    p50  x baseline   RSS MB  objects  descriptors  "
    "threads"
)


def line(lap: Lap) -> str:
    """One row of the table under ``HEAD``."""
    reading = lap.reading
    return (
        f"{lap.number:3}  {lap.admissions:8}  {lap.rejected:7}  {lap.restarts:8}  "
        f"{lap.seconds:5.0f}  {lap.p50:5.2f}  {lap.ratio:7.2f}  {reading.memory:7.1f}  "
        f"{reading.objects:7}  {reading.descriptors:11}  {reading.threads:7}"
    )


class Read(Protocol):
    """A lap, as far as growth is judged by it."""

    @property
    def reading(self) -> Reading:
        """The process in the quiet after it."""


def grown(laps: Sequence[Read]) -> list[str]:
    """What was more at the end than at the start, beyond the slack: a sentence each.

    The first lap fills pools and caches, so it is left out where there are enough others;
    medians of the first and of the last third are compared, as one lap may be odd.
    """
    counted = laps[1:] if len(laps) > 2 else laps
    third = -(-len(counted) // 3)
    first, last = counted[:third], counted[-third:]
    if not laps:
        return []
    return [
        f"{what} grew from {before:g} to {after:g}"
        for what, slack in SLACK.items()
        for before, after in [(_middle(first, what), _middle(last, what))]
        if after > before + slack
    ]


def _middle(laps: Iterable[Read], what: str) -> float:
    return round(median(float(getattr(lap.reading, what)) for lap in laps), 1)


def verdict(laps: Sequence[Lap], problems: Sequence[str]) -> str:
    """One line: what went wrong, or that nothing did; times are told and not judged."""
    done = sum(lap.admissions for lap in laps), sum(lap.restarts for lap in laps)
    churn = f"{done[0]} admissions and releases, {done[1]} plugin restarts"
    times = (
        f"p50 at the end {laps[-1].p50 / laps[0].p50:.2f} x that at the start "
        f"(over the baseline {laps[-1].ratio / laps[0].ratio:.2f} x)"
        if laps
        else "nothing was measured"
    )
    result = "; ".join(problems) or _FLAT
    return f"soak: {'FAILED' if problems else 'ok'}: {churn}: {result}; {times}"
