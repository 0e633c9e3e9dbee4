"""What a benchmark hands out, and the statistics over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import attrs


@attrs.frozen
class Measurement:
    """One line of the table, as one process measured it."""

    name: str
    samples: Sequence[float]
    """In ``unit``."""
    unit: str = "ms"
    against: str = ""
    """What ``baseline`` is, for people."""
    baseline: Sequence[float] = ()
    """Samples of what this is compared with, taken in turns with ``samples``."""
    at_most: float | None = None
    """The goal for the median, in ``unit``."""
    at_most_ratio: float | None = None
    """The goal for the ratio of the medians."""
    rate: str = ""
    """What happens once per sample ("pods"), if that many a second is of interest. Only
    for samples in ms."""
    devices: int | None = None
    pods: int | None = None
    """Set for a point of the growth curves."""


@attrs.frozen
class Case:
    """Something that is measured in a process of its own."""

    name: str
    run: Callable[[], list[Measurement]]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the samples lie, between neighbours."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@attrs.frozen
class Row:
    """A line of the table: the samples of all processes together."""

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
    """The median of what this is compared with."""
    ratio: float | None = None
    """Of the medians within one process; the median over the processes."""
    lowest_ratio: float | None = None
    highest_ratio: float | None = None
    """The range over the processes."""
    at_most: float | None = None
    at_most_ratio: float | None = None
    devices: int | None = None
    pods: int | None = None

    @property
    def missed(self) -> bool:
        """Whether a goal was missed."""
        over = self.at_most is not None and self.p50 > self.at_most
        if self.at_most_ratio is None or self.ratio is None:
            return over
        return over or self.ratio > self.at_most_ratio


def rows(runs: Iterable[Sequence[Measurement]]) -> list[Row]:
    """One row per name, over the measurements of several runs of one case."""
    by_name: dict[str, list[Measurement]] = {}
    for run in runs:
        for measurement in run:
            by_name.setdefault(measurement.name, []).append(measurement)
    return [_row(measurements) for measurements in by_name.values()]


def _row(runs: Sequence[Measurement]) -> Row:
    first = runs[0]
    ordered = sorted(sample for run in runs for sample in run.samples)
    row = Row(
        name=first.name,
        unit=first.unit,
        count=len(ordered),
        p25=quantile(ordered, 0.25),
        p50=quantile(ordered, 0.5),
        p75=quantile(ordered, 0.75),
        p99=quantile(ordered, 0.99),
        per_second=1000 / fmean(ordered) if first.rate else None,
        rate=first.rate,
        against=first.against,
        at_most=first.at_most,
        at_most_ratio=first.at_most_ratio,
        devices=first.devices,
        pods=first.pods,
    )
    return _compared(row, runs) if first.baseline else row


def _compared(row: Row, runs: Sequence[Measurement]) -> Row:
    baseline = _median(sample for run in runs for sample in run.baseline)
    ratios = [_median(run.samples) / _median(run.baseline) for run in runs]
    return attrs.evolve(
        row,
        baseline=baseline,
        # Not of the medians over all processes: the machine may have been slower in one.
        ratio=_median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
    )


def _median(samples: Iterable[float]) -> float:
    return quantile(sorted(samples), 0.5)
