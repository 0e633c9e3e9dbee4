"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from devicemanager.observe.terminal.progress import Work
from tools.bench import chart, page, report
from tools.bench.model import Case, Measurement, Row, rows
from tools.bench.registry import BenchmarkFailed, cases, measure
from tools.bench.scale import SCALES

_QUICK_DEVICES: Final = 110
"""The largest node beside the real device manager, unless all is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for. 0: done; 1: a case could not be
    measured; 2: wrong usage. No time, however long, is an error."""
    options = _parser().parse_args(arguments)
    if options.reference:
        return _beside(options)
    chosen = [case for case in cases(SCALES[options.scale]) if _is_chosen(case, options.only)]
    if options.list:
        print(*(case.name for case in chosen), sep="\n")
        return 0
    if not chosen:
        print(f"bench: no case is called {' or '.join(options.only)}: see --list", file=sys.stderr)
        return 2
    try:
        old = report.load(options.compare) if options.compare else None
        if options.page:
            page.check(options.page)
        measured = _measure(chosen, options.scale, SCALES[options.scale].repeats)
    except (BenchmarkFailed, report.ReportError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(report.table(measured))
    if options.json:
        report.save(options.json, measured)
    if options.svg:
        options.svg.write_text(chart.growth(measured))
    if options.page:
        page.write(options.page, measured, date.today())
    if old is not None:
        print(report.comparison(old, measured))
    return 0


def _beside(options: argparse.Namespace) -> int:
    # Needs Go and, the first time, minutes: loaded for those who ask for it.
    from tools.bench import reference
    from tools.differential.building import BuildError
    from tools.differential.versions import release

    try:
        version = release(options.reference)
        chosen = [
            case
            for case in reference.CASES
            if (options.scale == "full" or case.devices <= _QUICK_DEVICES)
            and (not options.only or any(name in case.name for name in options.only))
        ]
        with Work("bench", len(chosen)) as work:
            lines = list(reference.compare(version, chosen, lambda name: work.begin(name)))
    except (BuildError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(reference.table(lines, version))
    return 0


def _is_chosen(case: Case, only: Sequence[str]) -> bool:
    return not only or any(name in case.name for name in only)


def _measure(chosen: Sequence[Case], scale: str, repeats: int) -> list[Row]:
    """Every case in ``repeats`` fresh processes; a round of all cases, then the next."""
    runs: dict[str, list[Sequence[Measurement]]] = {case.name: [] for case in chosen}
    with Work("bench", repeats * len(chosen)) as work:
        for case in [*chosen] * repeats:
            work.begin(case.name)
            runs[case.name].append(measure(case.name, scale))
    return [row for case in chosen for row in rows(runs[case.name])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure the mock kubelet beside the baseline of the same run.",
    )
    parser.set_defaults(scale="full")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--scale", choices=SCALES, help="how much to measure (default: full)")
    sizes.add_argument(
        "--quick",
        dest="scale",
        action="store_const",
        const="quick",
        help="fewer and smaller sizes, one process each: about a minute",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only cases whose name contains this; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument(
        "--compare", type=Path, metavar="OLD.json", help="say what became slower since then"
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE.md", help="renew the results in a page of the docs"
    )
    parser.add_argument(
        "--reference",
        metavar="VERSION",
        help="measure the kubelet's own device manager of this version beside ours instead, "
        "such as 1.36.3; needs Go, and minutes for the first build",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the growth curves")
    return parser
