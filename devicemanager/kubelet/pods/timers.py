"""Timers of one kubelet instance. Each timer has a key, such as the UID of a pod."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from devicemanager.io.clock import Cancel, Clock

__all__ = ["Timers"]

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Timers by key. Each key has at most one timer. Thread-safe."""

    # Slots: a cluster has thousands of in-memory kubelets in one process.
    __slots__ = ("_clock", "_closed", "_lock", "_threaded", "_timers")

    def __init__(self, clock: Clock, *, threaded: bool = False) -> None:
        """With ``threaded``, each callback runs on a thread of its own. Use this if callbacks can
        block for long."""
        self._clock = clock
        self._threaded = threaded
        # Guards the fields below.
        self._lock = threading.Lock()
        self._timers: dict[Key, Cancel] = {}
        self._closed = False

    def start(self, key: Key, seconds: float, callback: Callable[[], None]) -> float:
        """Call ``callback`` after ``seconds``. An earlier timer with this key is cancelled.

        Return the time at which ``callback`` will be called, in seconds of the clock's monotonic
        time.
        """
        when = self._clock.monotonic() + seconds
        self.start_at(key, when, callback)
        return when

    def start_at(self, key: Key, when: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the clock's monotonic time reaches ``when`` (in seconds). An
        earlier timer with this key is cancelled."""

        def fire() -> None:
            with self._lock:
                self._timers.pop(key, None)
                if self._closed:
                    return
            if self._threaded:
                threading.Thread(target=callback, name="retry", daemon=True).start()
            else:
                callback()

        cancel = self._clock.call_at(when, fire)
        with self._lock:
            old, self._timers[key] = self._timers.pop(key, None), cancel
            is_closed = self._closed
        # Called without the lock: cancelling waits for a callback in progress, which takes it.
        if old is not None:
            old()
        # ``close`` ran before this timer was stored, and did not cancel the timer.
        if is_closed:
            cancel()

    def cancel(self, *keys: Key) -> None:
        """Cancel the timers with these keys."""
        with self._lock:
            found = [self._timers.pop(key) for key in keys if key in self._timers]
        for cancel in found:
            cancel()

    @property
    def closed(self) -> bool:
        """True after ``close`` was called."""
        return self._closed

    def close(self) -> None:
        """Cancel all timers, and wait for callbacks in progress."""
        with self._lock:
            self._closed = True
            cancels = list(self._timers.values())
            self._timers.clear()
        # Without the lock, which a callback in progress may need before it can end.
        for cancel in cancels:
            cancel()
