"""``python -m tools.stress``: run several threads on one kubelet, and check the kubelet after each
lap."""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import monotonic
from typing import Final

from tools.harness.command import Run, counts, parser
from tools.harness.usage import Leftovers, Reading, growth
from tools.stress.actor import MAX_DEVICES, MAX_PODS, Actor, StressNode

_STDERR: Final = 2
_STUCK: Final = 120.0
"""Seconds after the end of a lap after which threads that still run count as deadlocked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stress test. Return 0 if all checks succeeded and nothing remains, else 1."""
    options = _parser().parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    run = Run("stress", seed)
    run.say(f"stress: {options.threads} threads, {options.minutes:g} minutes, seed {seed}")
    total, readings = Counter[str](), list[Reading]()
    seconds = options.minutes * 60 / options.laps
    # One device less than all pods can request, so that some pods are rejected.
    devices = options.threads * MAX_PODS * MAX_DEVICES - 1
    numbers, choice = count(), random.Random(seed)
    leftovers = Leftovers()
    try:
        with run.recording_problems(), leftovers, StressNode(devices) as node:
            actors = [Actor(node, numbers, choice.random()) for _ in range(options.threads)]
            for number in range(options.laps):
                # Print the stack of every thread and exit: nothing else ends a deadlock.
                faulthandler.dump_traceback_later(seconds + _STUCK, exit=True, file=_STDERR)
                done = lap(node, actors, seconds)
                total += done
                readings.append(Reading.now())
                run.say(f"lap {number + 1}: {counts(done)}; {readings[-1]}")
            run.problems += growth(readings)
    finally:
        faulthandler.cancel_dump_traceback_later()
    run.problems += leftovers.found
    return run.finish(counts(total), "nothing lost, nothing left, all sources agree")


def lap(node: StressNode, actors: Sequence[Actor], seconds: float) -> Counter[str]:
    """Let the actors work for ``seconds``, check the node, and return the counts of their actions.

    Raises Broken or InternalError.
    """
    end = monotonic() + seconds
    with ThreadPoolExecutor(len(actors)) as pool:
        works = [pool.submit(actor.work, end) for actor in actors]
        try:
            for work in works:
                work.result()
        except BaseException:
            # Stop the other actors: until the end of the lap, they would use a kubelet that has
            # failed.
            for actor in actors:
                actor.give_up()
            raise
    node.wait_for_devices()
    node.check({uid: ids for actor in actors for uid, ids in actor.allocated.items()})
    for actor in actors:
        actor.end_all()
    node.check({})
    return sum((actor.take_counts() for actor in actors), Counter[str]())


def _parser() -> argparse.ArgumentParser:
    found = parser(
        "stress",
        "Do everything to one kubelet at once, and check that nothing is lost or left.",
        threads=(8, "number of threads"),
        minutes=(5.0, "duration"),
        laps=(10, "number of laps, with a check after each"),
    )
    found.add_argument("--seed", type=int, metavar="N", help="seed for random choices (random)")
    return found


if __name__ == "__main__":
    sys.exit(main())
