"""Limit the CPU time of a search. The search sleeps regularly, so that other threads can run. It
ends when its CPU time is used up."""

# Python runs one thread at a time. A thread that computes gives way after 5 ms only, each time
# another thread needs to run, and an admission needs that several times. So a long search sleeps
# after every time slice. It sleeps longer after a long time slice: a constraint that computes for
# milliseconds cannot be interrupted.

from __future__ import annotations

import time

CPU_SECONDS = 4.0
"""Maximum CPU time of one search, in seconds. A usual machine reaches the step limit earlier, after
about 1 second."""

_FREE = 0.004
"""Seconds at the beginning of a search without sleeping: nearly all searches end earlier."""
_SLICE = 0.0002
"""Shortest time slice: seconds of CPU time between two sleeps."""
_RATIO = 2
"""Length of a sleep, as a multiple of the time slice before it."""


class Pace:
    """Limiter of the CPU time of one search, which calls this object every few steps."""

    def __init__(self, seconds: float = CPU_SECONDS) -> None:
        self._end = time.thread_time() + seconds
        self._next = self._slice_begin = time.thread_time() + _FREE

    def __call__(self) -> bool:
        """Sleep if the time slice of the search has ended. Return False if the search has
        used up its CPU time."""
        now = time.thread_time()
        if now >= self._next:
            time.sleep(max(_SLICE, _RATIO * (now - self._slice_begin)))
            self._slice_begin = time.thread_time()
            self._next = self._slice_begin + _SLICE
        return now < self._end
