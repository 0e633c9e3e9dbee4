"""Time as a parameter: the system clock, and a clock that tests advance.

Theory of operation. ``SystemClock`` calls callbacks on one daemon thread, which exists only while
timers wait. Callbacks run one after the other, without the clock's lock, so a callback may set and
cancel timers. ``ManualClock`` has no thread. ``advance`` calls the callbacks of the timers that
become due, in order; during a callback, the clock shows the time at which the callback was due.

``call_at`` returns a function that cancels the timer. With ``SystemClock``, the callback is not
running and will not run after that function has returned, so the caller can free what the callback
uses. This guarantee makes cancellation the difficult part of ``SystemClock`` (``_cancel``). It has
three cases:

1. The timer is waiting: remove it.
2. The timer's callback is running on the timer thread: wait until it returns, unless the callback
   itself is the caller.
3. No timer remains, and no callback is running: also wait until the thread has ended, so that no
   thread remains after its kubelet has stopped.

A cancellation never waits for the callback of another timer.
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
"""Function that cancels a timer. It has no effect after the timer's callback has returned.

With ``SystemClock``, the function also waits until a running callback has returned. A callback that
cancels its own timer does not wait."""

_Timer = tuple[float, int, Callable[[], None]]
"""Due time, unique number and callback of a timer; the number makes heap entries comparable."""


class Clock(Protocol):
    """A clock: monotonic time, time of day, and timers. All times are in seconds."""

    def monotonic(self) -> float:
        """Return a time that never decreases, to measure intervals such as the grace period."""

    def time(self) -> float:
        """Return the seconds since the epoch, for timestamps that people read."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` once, on any thread, when ``monotonic()`` reaches ``when``.

        Returns a function that cancels the timer.
        """


class SystemClock:
    """Clock with the time of the operating system; thread-safe.

    One daemon thread calls the callbacks of timers one at a time, so a slow callback delays later
    timers.
    """

    def __init__(self) -> None:
        # Guards the fields below; not held during callbacks.
        # A plain lock: a Condition's default RLock is slower and not needed.
        self._changed = threading.Condition(threading.Lock())
        self._timers: list[_Timer] = []
        self._numbers = count()
        self._running: _Timer | None = None
        self._thread: threading.Thread | None = None

    # Not wrapped in methods, because every admission reads the clock several times.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` on the timer thread when ``monotonic()`` reaches ``when``.

        Returns a function that cancels the timer. Raises RuntimeError if no thread can be
        started. See ``Clock.call_at``.
        """
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
        """Wait until a timer is due, remove it and return it; return None if there is no timer."""
        with self._changed:
            self._running = None
            self._changed.notify_all()
            while self._timers:
                remaining = self._timers[0][0] - time.monotonic()
                if remaining <= 0:
                    self._running = heapq.heappop(self._timers)
                    return self._running
                # A wait longer than TIMEOUT_MAX, such as for math.inf, raises OverflowError.
                self._changed.wait(min(remaining, threading.TIMEOUT_MAX))
            # Set under the lock, so that a timer that is added now starts another thread.
            self._thread = None
            self._changed.notify_all()
            return None


class ManualClock:
    """Clock whose time changes only when a test calls ``advance``; thread-safe."""

    def __init__(self, start: float = 0.0) -> None:
        # Guards the fields below; not held during callbacks.
        self._lock = threading.Lock()
        self._now = start
        self._timers: list[_Timer] = []
        self._numbers = count()

    def advance(self, seconds: float) -> None:
        """Advance the time and call the callbacks of the timers that become due, in order.

        During a callback, the clock shows the time at which the callback was due. Raises ValueError
        for a negative number of seconds.
        """
        if seconds < 0:
            raise ValueError(f"invalid number of seconds {seconds}: use 0 or more")
        with self._lock:
            until = self._now + seconds
        while (callback := self._due(until)) is not None:
            callback()
        with self._lock:
            self._now = max(self._now, until)

    def _due(self, until: float) -> Callable[[], None] | None:
        """Remove the next timer that is due by ``until``, advance to its time, and return its
        callback; return None if no timer is due."""
        with self._lock:
            if not self._timers or self._timers[0][0] > until:
                return None
            # During the callback, the clock shows the due time of the timer.
            when, _, callback = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            return callback

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` when ``advance`` reaches the time ``when``, on the thread that calls
        ``advance``.

        Returns a function that cancels the timer.
        """
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
