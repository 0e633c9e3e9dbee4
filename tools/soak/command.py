"""The command line of the soak."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from devicemanager.core.errors import DeviceManagerError
from devicemanager.observe.terminal.progress import Work
from tools.soak.churn import Amount, Soak
from tools.soak.readings import HEAD, Lap, grown, line, verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Churn and print. 0: nothing grew and every check agreed; 1: something did not."""
    options = _parser().parse_args(arguments)
    amount = Amount(options.admissions, options.restarts, options.minutes, options.laps)
    laps: list[Lap] = []
    problems: list[str] = []
    print(HEAD, flush=True)
    try:
        with Work("soak", amount.admissions) as work, Soak(work.advance) as soak:
            for lap in soak.laps(amount):
                laps.append(lap)
                print(line(lap), flush=True)
        problems += grown(laps)
    except DeviceManagerError as error:
        problems.append(str(error))
    print(verdict(laps, problems))
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description="Let pods and plugins come and go, and see that nothing piles up.",
    )
    parser.add_argument("--admissions", type=int, default=100_000, metavar="N")
    parser.add_argument("--restarts", type=int, default=1000, metavar="N", help="of the plugin")
    parser.add_argument(
        "--minutes", type=float, default=60.0, metavar="M", help="end after that long, done or not"
    )
    parser.add_argument("--laps", type=int, default=10, metavar="N", help="with a check after each")
    return parser
