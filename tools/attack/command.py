"""The command line of the attacks."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.attack import report
from tools.attack.model import Attack, Outcome, broken
from tools.attack.registry import attacks


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack and print. 0: everything held; 1: a limit or a promise is broken; 2: usage."""
    options = _parser().parse_args(arguments)
    chosen = [attack for attack in attacks() if _is_chosen(attack, options.only, options.skip)]
    if options.list:
        print(*(f"{attack.name:30} {attack.about}" for attack in chosen), sep="\n")
        return 0
    if options.compare:
        before, after = map(report.load, options.compare)
        print(report.comparison(attacks(), before, after))
        return 0
    if not chosen:
        print("attack: no attack has such a name: see --list", file=sys.stderr)
        return 2
    return 1 if _run(chosen, options.json) else 0


def _run(chosen: Sequence[Attack], kept: Path | None) -> list[str]:
    """The names of the attacks that did not hold."""
    begin = time.monotonic()
    print(report.head(), flush=True)
    wrong = []
    for attack in chosen:
        outcome = _outcome(attack)
        print(report.row(attack, outcome), flush=True)
        if any(broken(attack.limits, outcome)):
            wrong.append(attack.name)
        if kept is not None:
            report.save(kept, {attack.name: outcome})
    result = f"{len(chosen) - len(wrong)} of {len(chosen)} attacks held"
    broke = f"; broken: {', '.join(wrong)}" if wrong else ""
    print(f"attack: {result} in {time.monotonic() - begin:.0f} s{broke}")
    return wrong


def _outcome(attack: Attack) -> Outcome:
    """An attack that cannot be carried out proves nothing, so that is a problem, too."""
    try:
        return attack.run()
    except Exception as error:
        return Outcome(problems=(f"the attack could not be carried out: {error!r}",))


def _is_chosen(attack: Attack, only: Sequence[str], skip: Sequence[str]) -> bool:
    def among(patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatch(attack.name, pattern) for pattern in patterns)

    return (not only or among(only)) and not among(skip)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.attack",
        description="Attack a kubelet, and see what that costs a good plugin beside.",
    )
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="or a pattern such as 'list-*'"
    )
    parser.add_argument("--skip", action="append", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="only print a table of two files that --json has written",
    )
    return parser
