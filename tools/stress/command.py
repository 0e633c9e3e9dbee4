"""The command line of the stress."""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from devicemanager.core.errors import DeviceManagerError
from tools.soak.readings import Reading, grown
from tools.stress.laps import Lap, Stress
from tools.stress.remains import Remains

_STDERR: Final = 2
_STUCK: Final = 120.0
"""Seconds after which a lap that has not ended is a deadlock."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Stress and print. 0: everything agreed and nothing is left; 1: something did not, or is."""
    options = _parser().parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    laps: list[Lap] = []
    problems: list[str] = []
    print(f"stress: {options.threads} threads, {options.minutes:g} minutes, seed {seed}")
    seconds = options.minutes * 60 / options.laps
    remains = Remains()
    try:
        with remains, Stress(options.threads, seed) as stress:
            for number in range(options.laps):
                # Says where every thread stands, and ends the process.
                faulthandler.dump_traceback_later(seconds + _STUCK, exit=True, file=_STDERR)
                laps.append(stress.lap(seconds))
                print(f"lap {number + 1}: {_line(laps[-1])}", flush=True)
        problems += grown(laps)
    except DeviceManagerError as error:
        problems.append(str(error))
    finally:
        faulthandler.cancel_dump_traceback_later()
    problems += remains.found
    print(_verdict(laps, problems))
    return 1 if problems else 0


def _line(lap: Lap) -> str:
    done = ", ".join(f"{count} {name}" for name, count in sorted(lap.done.items()))
    return f"{done}; {_reading(lap.reading)}"


def _reading(reading: Reading) -> str:
    return (
        f"{reading.memory:.1f} MB, {reading.objects} objects, {reading.descriptors} descriptors, "
        f"{reading.threads} threads"
    )


def _verdict(laps: Sequence[Lap], problems: Sequence[str]) -> str:
    done = sum((lap.done for lap in laps), Counter[str]())
    counts = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    result = "; ".join(problems) or "nothing lost, nothing left, self_check agrees"
    return f"stress: {'FAILED' if problems else 'ok'}: {counts}: {result}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.stress",
        description="Do everything to one kubelet at once, and see that nothing is lost or left.",
    )
    parser.add_argument("--threads", type=int, default=8, metavar="N")
    parser.add_argument("--minutes", type=float, default=5.0, metavar="M")
    parser.add_argument("--laps", type=int, default=10, metavar="N", help="checks in between")
    parser.add_argument("--seed", type=int, metavar="N", help="what is chosen; default: any")
    return parser


if __name__ == "__main__":
    sys.exit(main())
