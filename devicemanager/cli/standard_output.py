"""Standard output that never blocks its writers.

The kubelet prints an event on the thread where it happens. A reader that stops reading (a pager,
a debugger, Ctrl-S) would block that thread in ``write``: no plugin could register, and a signal
to stop would have no effect. Therefore lines wait in a queue of limited size. Lines that do not
fit are dropped and counted.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["OutputQueue"]

# Several ten thousand events: enough for a reader that pauses, and little memory.
_LIMIT = 4 << 20
"""Bytes that can wait for the reader; more are dropped."""
# The capacity of a pipe on Linux: larger writes block in any case.
_AT_ONCE = 1 << 16
_PATIENCE = 1.0
"""Seconds without progress after which ``close`` drops the rest."""

Notice = Callable[[int], str]
"""Returns the line that replaces a number of dropped texts."""


class OutputQueue:
    """Writer of texts in order, on a separate thread. ``put`` never blocks."""

    def __init__(
        self,
        notice: Notice,
        failed: Callable[[OSError], None],
        descriptor: int,
        *,
        limit: int = _LIMIT,
        patience: float = _PATIENCE,
    ) -> None:
        """``failed`` is called once, on the queue's thread, for a broken pipe or a full disk.

        Later texts are dropped silently.
        """
        self._notice = notice
        self._failed = failed
        # Not sys.stdout: a thread that is blocked in its buffer holds a lock that the exit of
        # the interpreter waits for.
        self._descriptor = descriptor
        self._limit = limit
        self._patience = patience
        # Guards the fields below.
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._written = 0
        self._closed = False
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="standard output", daemon=True)
        self._thread.start()

    def put(self, text: str) -> None:
        """Queue a text, or count it as dropped if the queue is full."""
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            # Late events of other threads are normal during a shutdown.
            if self._closed or self._ended:
                return
            if self._size + len(data) > self._limit:
                self._dropped += 1
                return
            # At the place of the gap, as soon as there is room for a line again.
            self._report_dropped()
            self._append(data)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until everything is written, as long as the reader makes progress."""
        with self._changed:
            while self._size and self._advances():
                pass

    def close(self) -> None:
        """Write what is queued, as long as the reader makes progress."""
        with self._changed:
            self._report_dropped()
            self._closed = True
            self._changed.notify_all()
            # A reader that makes progress gets everything; a blocked one must not delay the exit.
            while self._advances():
                pass

    def _advances(self) -> bool:
        """Wait until more is written. False at the end, or without progress."""
        before = self._written
        moved = self._changed.wait_for(
            lambda: self._ended or self._written != before, self._patience
        )
        return moved and not self._ended

    def _report_dropped(self) -> None:
        if self._dropped:
            self._append(self._notice(self._dropped).encode("utf-8", "backslashreplace"))
            self._dropped = 0

    def _append(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)

    def _work(self) -> None:
        try:
            while data := self._next():
                self._write(data)
        except OSError as error:
            # Ended first: `failed` may stop the program, which calls close() and would wait.
            self._end()
            self._failed(error)
        else:
            self._end()

    def _next(self) -> bytes:
        """Return part of the queue; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            taken: list[bytes] = []
            size = 0
            while self._waiting and size < _AT_ONCE:
                taken.append(self._waiting.popleft())
                size += len(taken[-1])
            return b"".join(taken)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # A pipe can accept a part; the size shows progress to `close`.
            count = os.write(self._descriptor, rest)
            rest = rest[count:]
            with self._changed:
                self._size -= count
                self._written += count
                self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
