"""The results in a page of the documentation: its table is written anew, the rest stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Final

from tools.bench.model import Row
from tools.bench.report import HEAD, ReportError, cells, machine_line

_BEGIN: Final = "<!-- results: written by `make bench` -->"
_END: Final = "<!-- end of results -->"
_BETWEEN: Final = re.compile(f"(?<={re.escape(_BEGIN)}\n).*(?={re.escape(_END)})", re.DOTALL)


def check(path: Path) -> None:
    """Raises ReportError for a page without a place for results."""
    try:
        found = _BETWEEN.search(path.read_text())
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    if found is None:
        raise ReportError(f"{path} has no place for results: a line {_BEGIN}, then {_END}")


def write(path: Path, rows: Sequence[Row], today: date) -> None:
    """Put the results in their place."""
    text = "\n".join(("", f"{today.isoformat()}: {machine_line()}.", "", *_table(rows), "", ""))
    path.write_text(_BETWEEN.sub(lambda _: text, path.read_text()))


def _table(rows: Iterable[Row]) -> Iterable[str]:
    yield _line(HEAD)
    yield _line(["---", "---", *["---:"] * 4, "---", *["---:"] * 3])
    yield from (_line(cells(row)) for row in rows)


def _line(of: Iterable[str]) -> str:
    return f"| {' | '.join(of)} |"
