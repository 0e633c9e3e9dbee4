"""Time, as something that can be handed in.

``SystemClock`` is the machine's; ``ManualClock`` stands still until a test turns it.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

Cancel = Callable[[], None]
"""Ends a timer; does nothing once it has fired. A callback under way is waited for."""

_Timer = tuple[float, int, Callable[[], None]]
"""When it is due, its number, and what it calls; no two have the same number."""


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
    """The machine's clock. May be used from any thread.

    One daemon thread calls the timers, in their order and one after another, and is there
    only while timers wait: a callback that takes its time holds up the later ones.
    """

    def __init__(self) -> None:
        # Guards the fields below; no callback runs under it.
        self._changed = threading.Condition(threading.Lock())
        self._timers: list[_Timer] = []
        self._numbers = count()
        self._running: _Timer | None = None
        self._thread: threading.Thread | None = None

    # The functions themselves: every admission reads the clock several times.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """As in ``Clock``. Raises RuntimeError if there is no thread to be had."""
        timer = when, next(self._numbers), callback
        with self._changed:
            heapq.heappush(self._timers, timer)
            # After a fork the thread is the parent's.
            if self._thread is None or not self._thread.is_alive():
                self._start(timer)
            elif self._timers[0] is timer:
                self._changed.notify_all()  # it waits for a later one

        return lambda: self._cancel(timer)

    def _cancel(self, timer: _Timer) -> None:
        with self._changed:
            if timer in self._timers:
                self._timers.remove(timer)
                heapq.heapify(self._timers)
                self._changed.notify_all()
            thread = self._thread
            if thread is None or thread is threading.current_thread() or not thread.is_alive():
                return

            def is_over() -> bool:
                is_idle = not self._timers and self._running is None
                return self._running is not timer and (not is_idle or self._thread is not thread)

            self._changed.wait_for(is_over)
            has_ended = self._thread is not thread
        if has_ended:
            thread.join()

    def _start(self, timer: _Timer) -> None:
        thread = threading.Thread(target=self._run, name="timer", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._timers.remove(timer)
            raise
        self._thread = thread

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            try:
                timer[2]()
            except BaseException:
                # As if the thread were the timer's own: told, and of no harm to the others.
                kind, error, trace = sys.exc_info()
                hook = threading.ExceptHookArgs((kind, error, trace, threading.current_thread()))
                threading.excepthook(hook)

    def _next(self) -> _Timer | None:
        """Wait until a timer is due, and take it off; None if none is left."""
        with self._changed:
            self._running = None
            self._changed.notify_all()
            while self._timers:
                rest = self._timers[0][0] - time.monotonic()
                if rest <= 0:
                    self._running = heapq.heappop(self._timers)
                    return self._running
                self._changed.wait(min(rest, threading.TIMEOUT_MAX))
            self._thread = None
            self._changed.notify_all()
            return None


class ManualClock:
    """A clock that a test turns by hand. May be used from any thread."""

    def __init__(self, start: float = 0.0) -> None:
        # Guards the fields below; no callback runs under it.
        self._lock = threading.Lock()
        self._now = start
        self._timers: list[_Timer] = []
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
