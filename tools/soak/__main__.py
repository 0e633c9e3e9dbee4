"""``python -m tools.soak``: admit and terminate pods for an hour. Print one line per lap, and the
verdict. With ``--mixed``, use everything of a kubelet for this time."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from devicemanager.observe.terminal.progress import Work
from tools.harness.command import Run, counts, parser
from tools.harness.usage import Reading, growth
from tools.soak.churn import Amount, Lap, Soak
from tools.soak.mixed import MixedSoak

HEAD: Final = (
    "lap  admitted  rejected  restarts      s    p50  x baseline   RSS MB  objects  descriptors  "
    "threads"
)
_FLAT: Final = "memory, objects, blocks, descriptors and threads flat"
_WARM_UP: Final = 10.0
"""Minutes of a mixed soak after which nothing may grow: caches and logs are full then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test. Return 0 if nothing has grown and every check succeeded, else 1."""
    found = parser(
        "soak",
        "Admit and terminate pods for long, and check that nothing accumulates.",
        admissions=(100_000, "number of admissions"),
        restarts=(1000, "number of restarts of the plugin"),
        minutes=(60.0, "end after this time, even if not done"),
        laps=(10, "number of laps, with a check after each"),
    )
    found.add_argument(
        "--mixed",
        action="store_true",
        help="also use claims, the control API, HTTP and PodResources, for --minutes in --laps",
    )
    options = found.parse_args(arguments)
    if options.mixed:
        return _mixed(options.minutes, options.laps)
    amount = Amount(options.admissions, options.restarts, options.minutes, options.laps)
    run, laps = Run("soak"), list[Lap]()
    run.say(HEAD)
    with run.recording_problems():
        with Work("soak", amount.admissions) as work, Soak(work.advance) as soak:
            for lap in soak.laps(amount):
                laps.append(lap)
                run.say(line(lap))
        run.problems += growth([lap.reading for lap in laps])
    return run.finish(summary(laps), _FLAT)


def _mixed(minutes: float, laps: int) -> int:
    run, readings = Run("soak"), list[Reading]()
    with run.recording_problems(), MixedSoak() as soak:
        for number, (done, reading) in enumerate(soak.laps(minutes, laps), start=1):
            readings.append(reading)
            run.say(f"lap {number}: {reading}; {counts(done)}")
    warm = math.ceil(min(_WARM_UP / minutes, 0.5) * laps) if minutes else 0
    run.problems += growth(readings[warm:])
    return run.finish(
        f"{len(readings)} laps", "memory, objects, blocks, descriptors and threads flat"
    )


def line(lap: Lap) -> str:
    """Return the row of a lap for the table under ``HEAD``."""
    reading = lap.reading
    return (
        f"{lap.number:3}  {lap.admitted:8}  {lap.rejected:8}  {lap.restarted:8}  "
        f"{lap.seconds:5.0f}  {lap.p50:5.2f}  {lap.ratio:10.2f}  {reading.memory:7.1f}  "
        f"{reading.objects:7}  {reading.descriptors:11}  {reading.threads:7}"
    )


def summary(laps: Sequence[Lap]) -> str:
    """Return a text with the numbers of the whole run."""
    admitted, restarted = sum(lap.admitted for lap in laps), sum(lap.restarted for lap in laps)
    done = f"{admitted} admissions and releases, {restarted} plugin restarts"
    if not laps:
        return f"{done}, nothing was measured"
    # Compare with the baseline, because the disk of a shared machine gets slower and faster.
    first, last = laps[0], laps[-1]
    return (
        f"{done}, p50 at the end {last.p50 / first.p50:.2f} x that at the start "
        f"(relative to the baseline {last.ratio / first.ratio:.2f} x)"
    )


if __name__ == "__main__":
    sys.exit(main())
