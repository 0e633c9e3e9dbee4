"""Waiting that a fault causes: for a time of the kubelet's clock, or until it is released."""

from __future__ import annotations

import threading
from collections.abc import Callable

from devicemanager.io.clock import Cancel, Clock

__all__ = ["Hold"]


class Hold:
    """Somebody waits until ``release``. May be used from any thread."""

    def __init__(self, ended: Callable[[Hold], None] | None = None) -> None:
        """``ended`` is told of its end, whichever that is."""
        self._ended = ended
        # Guards the two below.
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.is_over = False
        self._cancel: Cancel | None = None

    def start(self, clock: Clock, seconds: float | None) -> None:
        """Release it after ``seconds``; None: not by itself."""
        if seconds is not None:
            self._cancel = clock.call_at(clock.monotonic() + seconds, self.release)

    def then(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when it is released: at once, if it is already."""
        with self._lock:
            if not self.is_over:
                self._callbacks.append(callback)
                return
        callback()

    def release(self) -> None:
        """Let everybody go on. Releasing twice does nothing."""
        self._end(call=True)

    def cancel(self) -> None:
        """End it without calling anybody."""
        self._end(call=False)

    def _end(self, call: bool) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            if self.is_over:
                return
            self.is_over = True
        if self._cancel is not None:
            self._cancel()
        if self._ended is not None:
            self._ended(self)
        for callback in callbacks if call else ():
            callback()

    def wait(self) -> None:
        """Wait on this thread."""
        over = threading.Event()
        self.then(over.set)
        over.wait()
