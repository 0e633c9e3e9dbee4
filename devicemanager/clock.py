"""Time, as something that can be handed in.

``SystemClock`` is the machine's; ``ManualClock`` stands still until a test turns it.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

Cancel = Callable[[], None]
"""Ends a timer; does nothing once it has fired. A callback under way is waited for."""


class Clock(Protocol):
    """Two readings, both in seconds, and timers."""

    def monotonic(self) -> float:
        """Never goes back; for intervals such as the grace period."""

    def time(self) -> float:
        """Since the epoch; for people."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` once, on any thread, when ``monotonic()`` has come to ``when``.
        With a far ``when`` it may be called early: look at the clock again."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """As in ``Clock``; each timer that waits is a daemon thread."""
        wait = min(max(0.0, when - self.monotonic()), threading.TIMEOUT_MAX)
        timer = threading.Timer(wait, callback)
        timer.name, timer.daemon = "timer", True
        timer.start()

        def cancel() -> None:
            timer.cancel()
            if timer is not threading.current_thread():
                timer.join()

        return cancel


class ManualClock:
    """A clock that a test turns by hand. May be used from any thread."""

    def __init__(self, start: float = 0.0) -> None:
        # Guards the fields below; no callback runs under it.
        self._lock = threading.Lock()
        self._now = start
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def advance(self, seconds: float) -> None:
        """Let time pass. Timers that come due are called in their order, each at its own
        time. Raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        with self._lock:
            until = self._now + seconds
        while (callback := self._due(until)) is not None:
            callback()
        with self._lock:
            self._now = max(self._now, until)

    def _due(self, until: float) -> Callable[[], None] | None:
        """Turn to the next timer that comes due by then, and take it off."""
        with self._lock:
            if not self._timers or self._timers[0][0] > until:
                return None
            when, _, callback = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            return callback

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """As in ``Clock``; ``advance`` calls it, on its own thread."""
        timer = when, next(self._numbers), callback

        def cancel() -> None:
            with self._lock:
                if timer in self._timers:
                    self._timers.remove(timer)
                    heapq.heapify(self._timers)

        with self._lock:
            heapq.heappush(self._timers, timer)
        return cancel

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now
