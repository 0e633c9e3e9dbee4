"""The command line of ``tools.power``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from checkpoint import Durability
from tools.power.load import round_of
from tools.power.promises import Broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and replay; return 0 if every promise was kept, else 1."""
    options = _parser().parse_args(arguments)
    begin = time.monotonic()
    for level in map(Durability, options.level or Durability):
        operations = left = 0
        for turn in range(options.rounds):
            try:
                done, found = round_of(level, options.admissions, options.seed + turn)
            except Broken as broken:
                print(f"power: BROKEN, seed {options.seed + turn}: {broken}")
                return 1
            operations, left = operations + done, left + found
        what = "process kills" if level is Durability.PROCESS else "power failures"
        print(
            f"power: {level}: {options.rounds * options.admissions} admissions, {what} after "
            f"each of {operations} operations, {left} different outcomes: all promises kept",
            flush=True,
        )
    print(f"power: ok in {time.monotonic() - begin:.0f} s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.power",
        description="Simulate a power failure after every file operation, and check the files.",
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=list(Durability),
        metavar="LEVEL",
        help="durability level to check; repeatable (default: all)",
    )
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds per level")
    parser.add_argument(
        "--admissions", type=int, default=120, metavar="N", help="admissions per round"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the first round")
    return parser
