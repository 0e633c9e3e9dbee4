"""Taking times."""

from __future__ import annotations

import time
from collections.abc import Callable

now = time.perf_counter
"""Seconds on a clock that all processes of the machine share."""


def timed(action: Callable[[], object]) -> float:
    """How long ``action`` takes, in ms."""
    begin = now()
    action()
    return (now() - begin) * 1000


def computed(action: Callable[[], object]) -> float:
    """How much of the processor ``action`` takes, in ms: for what waits for nobody."""
    begin = time.process_time()
    action()
    return (time.process_time() - begin) * 1000


def in_turns(
    count: int,
    *actions: Callable[[], object],
    take: Callable[[Callable[[], object]], float] = timed,
) -> list[list[float]]:
    """Do each action ``count`` times, one after the other; the times of each, in ms."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(count):
        for action, taken in zip(actions, times, strict=True):
            taken.append(take(action))
    return times
