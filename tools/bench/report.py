"""Format results as a table, a file, a comparison and a documentation page."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Final

import attrs

from tools.bench.model import Row

_SLOWER: Final = 1.15
"""Smallest factor that is reported as a change; smaller factors are noise."""


class ReportError(Exception):
    """Error for an earlier result or a page that cannot be used. The message is one line for the
    user."""


# -- the table -------------------------------------------------------------------------

HEAD: Final = ("", "unit", "p50", "p25-p75", "p99", "per s", "against", "p50", "ratio", "goal")
"""Titles of the columns that :func:`cells` returns."""


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table."""
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
    """Return the cells of a row. A cell without a value is empty."""
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
    """Return a line about the machine: the properties on which the results depend most."""
    return ", ".join(f"{name} {value}" for name, value in _machine().items())


def save(path: Path, rows: Sequence[Row]) -> None:
    """Write results to a JSON file that ``load`` can read."""
    document = {"machine": _machine(), "rows": [attrs.asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def load(path: Path) -> list[Row]:
    """Read results from a file. Raises ReportError."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())["rows"]]
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path} is not a result file of `make bench`: {error}") from error


# -- comparison with an earlier result -------------------------------------------------


def comparison(old: Iterable[Row], new: Iterable[Row]) -> str:
    """Return lines about the rows that became slower or faster than in an earlier result.

    Ratios are compared if both rows have one, because ratios depend least on the machine.
    """
    before = {row.name: row for row in old}
    pairs = [(before[row.name], row) for row in new if row.name in before]
    slower = [line for pair in pairs for line in _change(*pair, lambda by: by >= _SLOWER)]
    faster = [line for pair in pairs for line in _change(*pair, lambda by: by <= 1 / _SLOWER)]
    return "\n".join(
        (
            "",
            f"slower than before: {len(slower)} of {len(pairs)}",
            *slower,
            f"faster than before: {len(faster)} of {len(pairs)}",
            *faster,
        )
    )


def _change(old: Row, new: Row, is_listed: Callable[[float], bool]) -> Iterable[str]:
    """Yield a line if ``is_listed`` is true for the factor of change and the ranges do not
    overlap."""
    if old.ratio is not None and new.ratio is not None:
        # Compare the ranges of the processes' ratios.
        before, after, unit = old.ratio, new.ratio, "ratio"
        lows, highs = (old.lowest_ratio, new.lowest_ratio), (old.highest_ratio, new.highest_ratio)
        overlap = max(low or 0 for low in lows) <= min(high or 0 for high in highs)
    else:
        before, after, unit = old.p50, new.p50, new.unit
        overlap = old.p25 <= new.p75 and new.p25 <= old.p75 and min(old.count, new.count) > 1
    if before > 0 and is_listed(after / before) and not overlap:
        yield f"  {new.name}: {unit} {_number(before)} -> {_number(after)}"


# -- the documentation page ------------------------------------------------------------

_BEGIN: Final = "<!-- results: written by `make bench` -->"
_END: Final = "<!-- end of results -->"
_BETWEEN: Final = re.compile(f"(?<={re.escape(_BEGIN)}\n).*(?={re.escape(_END)})", re.DOTALL)


def check_page(path: Path) -> None:
    """Raise ReportError if the page does not have the two comment lines between which results are
    written."""
    try:
        found = _BETWEEN.search(path.read_text())
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}") from error
    if found is None:
        raise ReportError(f"{path} has no place for results: add the lines {_BEGIN} and {_END}")


def write_page(path: Path, rows: Sequence[Row], today: date) -> None:
    """Replace the results in the page. The rest of the page does not change."""
    alignment = ("---", "---", *["---:"] * 4, "---", *["---:"] * 3)
    lines = [f"| {' | '.join(line)} |" for line in (HEAD, alignment, *map(cells, rows))]
    text = "\n".join(("", f"{today.isoformat()}: {machine_line()}.", "", *lines, "", ""))
    path.write_text(_BETWEEN.sub(lambda _: text, path.read_text()))
