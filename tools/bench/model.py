"""Measurements of benchmarks, statistics over them, and the scales of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Final

import attrs


@attrs.frozen
class Measurement:
    """Samples that one process has measured for one row of the table."""

    name: str
    samples: Sequence[float]
    """Measured values in ``unit``."""
    unit: str = "ms"
    against: str = ""
    """Name of the baseline; empty without one."""
    baseline: Sequence[float] = ()
    """Measured values of the baseline, taken alternately with ``samples``."""
    at_most: float | None = None
    """Goal: the median is at most this value, in ``unit``. None without a goal."""
    at_most_ratio: float | None = None
    """Goal: the median is at most this multiple of the baseline's median. None without a goal."""
    rate: str = ""
    """Noun for the column "per s", such as "pods", if each sample processes one of them. Only for
    samples in ms."""
    devices: int | None = None
    """Number of devices for a point of the growth curves; None for other measurements."""
    pods: int | None = None
    """Number of pods for a point of the growth curves; None for other measurements."""


@attrs.frozen
class Case:
    """Benchmark case, which runs in a separate process."""

    name: str
    run: Callable[[], list[Measurement]]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile ``share`` (0 to 1) of sorted values, interpolated between neighbours."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@attrs.frozen
class Row:
    """Row of the table: statistics over the samples of all processes."""

    name: str
    unit: str
    count: int
    p25: float
    p50: float
    p75: float
    p99: float
    per_second: float | None = None
    rate: str = ""
    against: str = ""
    baseline: float | None = None
    """Median of the baseline."""
    ratio: float | None = None
    """Median of the processes' ratios. The ratio of a process is its median divided by that of its
    baseline."""
    lowest_ratio: float | None = None
    """Lowest of the processes' ratios."""
    highest_ratio: float | None = None
    """Highest of the processes' ratios."""
    at_most: float | None = None
    at_most_ratio: float | None = None
    devices: int | None = None
    pods: int | None = None

    @property
    def missed(self) -> bool:
        """True if the row has a goal and missed it."""
        goals = ((self.p50, self.at_most), (self.ratio, self.at_most_ratio))
        return any(
            value > at_most for value, at_most in goals if value is not None and at_most is not None
        )


def rows(runs: Iterable[Sequence[Measurement]]) -> list[Row]:
    """Return one row per name of a measurement, over several runs of one case."""
    by_name: dict[str, list[Measurement]] = {}
    for run in runs:
        for measurement in run:
            by_name.setdefault(measurement.name, []).append(measurement)
    return [_row(measurements) for measurements in by_name.values()]


def _row(runs: Sequence[Measurement]) -> Row:
    first = runs[0]
    ordered = sorted(sample for run in runs for sample in run.samples)
    copied = ("name", "unit", "rate", "against", "at_most", "at_most_ratio", "devices", "pods")
    row = Row(
        count=len(ordered),
        p25=quantile(ordered, 0.25),
        p50=quantile(ordered, 0.5),
        p75=quantile(ordered, 0.75),
        p99=quantile(ordered, 0.99),
        per_second=1000 / fmean(ordered) if first.rate else None,
        **{name: getattr(first, name) for name in copied},
    )
    return _compared(row, runs) if first.baseline else row


def _compared(row: Row, runs: Sequence[Measurement]) -> Row:
    baseline = _median(sample for run in runs for sample in run.baseline)
    ratios = [_median(run.samples) / _median(run.baseline) for run in runs]
    return attrs.evolve(
        row,
        baseline=baseline,
        # Do not use the medians over all processes: one process may have run while the machine was
        # slower.
        ratio=_median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
    )


def _median(samples: Iterable[float]) -> float:
    return quantile(sorted(samples), 0.5)


@attrs.frozen
class Scale:
    """Sizes and numbers of repetitions of a run."""

    sizes: tuple[tuple[int, int], ...]
    """Pairs of the numbers of devices and pods, for the admission and List cases."""
    repeats: int
    """Number of processes per case."""
    samples: int
    """Number of repetitions of actions that take about a millisecond."""
    starts: int
    """Number of process starts."""
    devices: int
    """Number of devices in cases about device lists and hints."""
    many_devices: int
    """Number of devices in the largest device list."""
    pods: int
    """Number of devices, and of pods, in cases about topology, release and memory."""
    entries: int
    """Number of checkpoint entries that a restarted kubelet reads."""
    plugins: int
    """Number of plugins that register concurrently."""
    worst_lists: int
    """Number of hostile device lists."""
    fleet_nodes: int
    """Number of nodes in a fleet."""


FULL: Final = Scale(
    sizes=((8, 8), (110, 110), (1000, 1000), (10_000, 1000), (5000, 5000)),
    repeats=3,
    samples=300,
    starts=7,
    devices=10_000,
    many_devices=100_000,
    pods=1000,
    entries=5000,
    plugins=50,
    worst_lists=20,
    fleet_nodes=1000,
)

SCALES: Final = {
    "full": FULL,
    "quick": attrs.evolve(
        FULL,
        sizes=((8, 8), (110, 110), (1000, 1000)),
        repeats=1,
        samples=100,
        starts=3,
        pods=300,
    ),
    "tiny": Scale(
        sizes=((2, 2),),
        repeats=1,
        samples=2,
        starts=1,
        devices=20,
        many_devices=30,
        pods=8,
        entries=3,
        plugins=2,
        worst_lists=1,
        fleet_nodes=20,
    ),
}
"""Scales by name, for ``--scale``. ``tiny`` only shows that every case runs."""
