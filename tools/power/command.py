"""The command line of the power losses."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from checkpoint import Durability
from tools.power.load import round_of
from tools.power.promises import Broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and replay. 0: every promise was kept; 1: one was not."""
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
        what = "ends of the process" if level is Durability.PROCESS else "losses of power"
        print(
            f"power: {level}: {options.rounds * options.admissions} admissions, {what} after "
            f"each of {operations} operations, {left} different outcomes: all as promised",
            flush=True,
        )
    print(f"power: ok in {time.monotonic() - begin:.0f} s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.power",
        description="Lose the power after every file operation, and look at what is left.",
    )
    parser.add_argument("--level", action="append", choices=list(Durability), metavar="LEVEL")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each level")
    parser.add_argument("--admissions", type=int, default=120, metavar="N", help="of a round")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    return parser
