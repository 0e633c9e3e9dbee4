"""Time as a parameter: the system clock, and a clock that tests advance.

Theory of operation. ``SystemClock`` calls timers on one daemon thread, which exists only while
timers wait. Callbacks run one after the other, without the clock's lock, so a callback may set
and cancel timers. ``ManualClock`` has no thread: ``advance`` calls the timers that become due,
in order, each at its own time.

``call_at`` returns a function that cancels the timer. After it returns, the callback is neither
running nor will it run, so the caller can free what the callback uses. That makes cancelling
the difficult part of ``SystemClock`` (``_cancel``). Three cases:

1. The timer is waiting: remove it.
2. Its callback is running on the timer thread: wait for it, unless the caller is that callback.
3. It was the last timer: wait for the end of the thread as well, so that a kubelet leaves no
   thread behind when it stops. A callback of another timer is not waited for.
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
"""Cancels a timer; no effect once it has fired. Waits for a callback in progress."""

_Timer = tuple[float, int, Callable[[], None]]
"""Due time, unique number and callback; the number makes heap entries comparable."""


class Clock(Protocol):
    """Two readings, both in seconds, and timers."""

    def monotonic(self) -> float:
        """Return a time that never goes back; for intervals such as the grace period."""

    def time(self) -> float:
        """Return the seconds since the epoch; for people."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` once, on any thread, when ``monotonic()`` reaches ``when``.

        If ``when`` is far away, the callback can be early and must read the clock again.
        """


class SystemClock:
    """The machine's clock; thread-safe.

    One daemon thread calls the timers in order, one at a time: a slow callback delays later
    ones.
    """

    def __init__(self) -> None:
        # Guards the fields below; not held during callbacks.
        # A plain lock: a Condition's default RLock is slower and not needed.
        self._changed = threading.Condition(threading.Lock())
        self._timers: list[_Timer] = []
        self._numbers = count()
        self._running: _Timer | None = None
        self._thread: threading.Thread | None = None

    # The functions themselves: every admission reads the clock several times.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """As ``Clock.call_at``. Raises RuntimeError if no thread can be started."""
        timer = when, next(self._numbers), callback
        with self._changed:
            heapq.heappush(self._timers, timer)
            # After a fork, the thread exists only in the parent.
            if self._thread is None or not self._thread.is_alive():
                self._start(timer)
            elif self._timers[0] is timer:
                self._changed.notify_all()  # the thread waits for a later timer

        return lambda: self._cancel(timer)

    def _cancel(self, timer: _Timer) -> None:
        with self._changed:
            if timer in self._timers:
                self._timers.remove(timer)
                heapq.heapify(self._timers)
                self._changed.notify_all()
            thread = self._thread
            # A callback that cancels its own timer must not wait for itself.
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
                # Report it as an uncaught exception of a thread, and continue
                # with the other timers.
                kind, error, trace = sys.exc_info()
                hook = threading.ExceptHookArgs((kind, error, trace, threading.current_thread()))
                threading.excepthook(hook)

    def _next(self) -> _Timer | None:
        """Wait for the next timer that is due and remove it; None if no timer is left."""
        with self._changed:
            self._running = None
            self._changed.notify_all()
            while self._timers:
                rest = self._timers[0][0] - time.monotonic()
                if rest <= 0:
                    self._running = heapq.heappop(self._timers)
                    return self._running
                # A wait longer than TIMEOUT_MAX, such as for math.inf, raises OverflowError.
                self._changed.wait(min(rest, threading.TIMEOUT_MAX))
            # Under the lock, so that a timer that is set now starts another thread.
            self._thread = None
            self._changed.notify_all()
            return None


class ManualClock:
    """A clock that a test advances; thread-safe."""

    def __init__(self, start: float = 0.0) -> None:
        # Guards the fields below; not held during callbacks.
        self._lock = threading.Lock()
        self._now = start
        self._timers: list[_Timer] = []
        self._numbers = count()

    def advance(self, seconds: float) -> None:
        """Advance the time and call the timers that become due, in order, each at its own time.

        Raises ValueError for a negative step.
        """
        if seconds < 0:
            raise ValueError(f"invalid step {seconds} s: time does not go back")
        with self._lock:
            until = self._now + seconds
        while (callback := self._due(until)) is not None:
            callback()
        with self._lock:
            self._now = max(self._now, until)

    def _due(self, until: float) -> Callable[[], None] | None:
        """Advance to the next timer that is due by ``until`` and remove it."""
        with self._lock:
            if not self._timers or self._timers[0][0] > until:
                return None
            # The clock shows the timer's own time while its callback runs.
            when, _, callback = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            return callback

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """As ``Clock.call_at``; ``advance`` calls the callback on its own thread."""
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
