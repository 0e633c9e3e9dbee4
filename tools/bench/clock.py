"""Measure the time of actions."""

from __future__ import annotations

import time
from collections.abc import Callable

now = time.perf_counter
"""Function that returns the time in seconds. The clock is the same in all processes of the
machine."""


def timed(action: Callable[[], object]) -> float:
    """Return the time that ``action`` takes, in ms."""
    begin = now()
    action()
    return (now() - begin) * 1000


def computed(action: Callable[[], object]) -> float:
    """Return the CPU time of ``action`` in ms. Use it for actions that never wait."""
    begin = time.process_time()
    action()
    return (time.process_time() - begin) * 1000


def in_turns(
    count: int,
    *actions: Callable[[], object],
    take: Callable[[Callable[[], object]], float] = timed,
) -> list[list[float]]:
    """Run all actions alternately, ``count`` times. Return a list of times in ms for each action.

    ``take`` measures one run of an action.
    """
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(count):
        for action, taken in zip(actions, times, strict=True):
            taken.append(take(action))
    return times
