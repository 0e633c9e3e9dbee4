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


def in_turns(count: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Do each action ``count`` times, one after the other; the times of each, in ms."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(count):
        for action, taken in zip(actions, times, strict=True):
            taken.append(timed(action))
    return times
