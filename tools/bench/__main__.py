"""``python -m tools.bench``: run benchmarks and print a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from devicemanager.observe.terminal.progress import Work
from tools.bench import chart, report
from tools.bench.model import SCALES, Case, Measurement, Row, rows
from tools.bench.registry import BenchmarkFailed, cases, measure

_QUICK_DEVICES: Final = 110
"""Number of devices on the largest node for ``--reference`` with ``--quick``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, print the table and write the requested files.

    Return 0 on success, 1 if a case failed, or 2 for wrong usage. Missed goals are not errors.
    """
    options = _parser().parse_args(arguments)
    if options.reference:
        return _compare_with_reference(options)
    chosen = [case for case in cases(SCALES[options.scale]) if _is_chosen(case, options.only)]
    if options.list:
        print(*(case.name for case in chosen), sep="\n")
        return 0
    if not chosen:
        print(f"bench: unknown case {' or '.join(options.only)}: use --list", file=sys.stderr)
        return 2
    try:
        old = report.load(options.compare) if options.compare else None
        if options.page:
            report.check_page(options.page)
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
        report.write_page(options.page, measured, date.today())
    if old is not None:
        print(report.comparison(old, measured))
    return 0


def _compare_with_reference(options: argparse.Namespace) -> int:
    # Imported here, because the other benchmarks do not need Go.
    from tools.bench import dra, reference
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
            lines = list(reference.compare(version, chosen, work.begin))
        is_chosen = not options.only or any(name in "dra-claim" for name in options.only)
        allocation = dra.against(version) if is_chosen and version in dra.RELEASES else ""
    except (BuildError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if lines:
        print(reference.table(lines, version))
    if allocation:
        print(allocation)
    return 0


def _is_chosen(case: Case, only: Sequence[str]) -> bool:
    return not only or any(name in case.name for name in only)


def _measure(chosen: Sequence[Case], scale: str, repeats: int) -> list[Row]:
    """Run each case in ``repeats`` new processes. Each round runs all cases once."""
    runs: dict[str, list[Sequence[Measurement]]] = {case.name: [] for case in chosen}
    with Work("bench", repeats * len(chosen)) as work:
        for case in [*chosen] * repeats:
            work.begin(case.name)
            runs[case.name].append(measure(case.name, scale))
    return [row for case in chosen for row in rows(runs[case.name])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure the mock kubelet and compare it with a baseline in the same run.",
    )
    parser.set_defaults(scale="full")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--scale", choices=SCALES, help="sizes and repetitions (default: full)")
    sizes.add_argument(
        "--quick",
        dest="scale",
        action="store_const",
        const="quick",
        help="fewer and smaller sizes, one process each: about two minutes",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only cases whose name contains NAME; repeatable",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument(
        "--reference",
        metavar="VERSION",
        help="instead compare with the kubelet's device manager of this version, such as 1.36.3; "
        "needs Go, and minutes for the first build",
    )
    for option, metavar, help_text in (
        ("--json", "FILE", "write the results to FILE"),
        ("--compare", "OLD.json", "list the cases that are slower or faster than in OLD.json"),
        ("--page", "FILE.md", "update the results in a documentation page"),
        ("--svg", "FILE", "draw the growth curves"),
    ):
        parser.add_argument(option, type=Path, metavar=metavar, help=help_text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
