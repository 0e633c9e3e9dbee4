"""Results for people and for the next run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import attrs

from tools.bench.model import Row

_SLOWER: Final = 1.15
"""From this factor on a change is worth a line; less is the machine's noise."""


class ReportError(Exception):
    """An earlier result cannot be read; the text says why."""


# -- the table -------------------------------------------------------------------------

HEAD: Final = ("", "unit", "p50", "p25-p75", "p99", "per s", "against", "p50", "ratio", "goal")
"""What is in the columns of :func:`cells`."""


def table(rows: Sequence[Row]) -> str:
    """The results, aligned: medians with their spread, ratios and goals."""
    lines = [HEAD, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    left = (0, 1, 6)
    text = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join((machine_line(), "", *text))


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts; empty where there is nothing to say."""
    return (
        row.name,
        row.unit,
        _number(row.p50),
        f"{_number(row.p25)}-{_number(row.p75)}" if row.count > 1 else "",
        _number(row.p99) if row.count >= 20 else "",
        "" if row.per_second is None else f"{row.per_second:.0f} {row.rate}",
        row.against,
        "" if row.baseline is None else _number(row.baseline),
        _ratio(row),
        _goal(row),
    )


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    if row.lowest_ratio == row.highest_ratio:
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} ({row.lowest_ratio:.2f}-{row.highest_ratio:.2f})"


def _goal(row: Row) -> str:
    goals = [
        *([] if row.at_most is None else [f"{row.at_most:g} {row.unit}"]),
        *([] if row.at_most_ratio is None else [f"x {row.at_most_ratio:g}"]),
    ]
    return f"{', '.join(goals)} {'missed' if row.missed else 'met'}" if goals else ""


# -- the file --------------------------------------------------------------------------


def _machine() -> dict[str, str | int]:
    return {
        "cpus": os.cpu_count() or 0,
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "protobuf": version("protobuf"),
    }


def machine_line() -> str:
    """What the figures depend on most."""
    return ", ".join(f"{name} {value}" for name, value in _machine().items())


def save(path: Path, rows: Sequence[Row]) -> None:
    """Write results for ``load``."""
    document = {"machine": _machine(), "rows": [attrs.asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def load(path: Path) -> list[Row]:
    """Read what ``save`` wrote. Raises ReportError."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())["rows"]]
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path} is not a result of this program: {error}") from error


# -- since last time -------------------------------------------------------------------


def comparison(old: Iterable[Row], new: Iterable[Row]) -> str:
    """What became slower, and what faster, than in an earlier result.

    Ratios are compared where there are some, since they say nothing about the machine.
    """
    before = {row.name: row for row in old}
    pairs = [(before[row.name], row) for row in new if row.name in before]
    slower = _changed(pairs, lambda factor: factor >= _SLOWER)
    faster = _changed(pairs, lambda factor: factor <= 1 / _SLOWER)
    return "\n".join(
        (
            "",
            f"slower than before: {len(slower)} of {len(pairs)}",
            *slower,
            f"faster than before: {len(faster)} of {len(pairs)}",
            *faster,
        )
    )


def _changed(pairs: Iterable[tuple[Row, Row]], is_meant: Callable[[float], bool]) -> list[str]:
    lines = []
    for old, new in pairs:
        was, is_, what = _compared(old, new)
        if was > 0 and is_meant(is_ / was) and not _overlap(old, new, what):
            lines.append(f"  {new.name}: {what} {_number(was)} -> {_number(is_)}")
    return lines


def _compared(old: Row, new: Row) -> tuple[float, float, str]:
    if old.ratio is not None and new.ratio is not None:
        return old.ratio, new.ratio, "ratio"
    return old.p50, new.p50, new.unit


def _overlap(old: Row, new: Row, what: str) -> bool:
    """Whether the ranges of single processes, or the quartiles, have a part in common."""
    if what != "ratio":
        return old.p25 <= new.p75 and new.p25 <= old.p75 and min(old.count, new.count) > 1
    low = max(old.lowest_ratio or 0, new.lowest_ratio or 0)
    high = min(old.highest_ratio or 0, new.highest_ratio or 0)
    return low <= high
