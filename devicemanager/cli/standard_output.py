"""Standard output that never blocks the threads that print.

The kubelet prints an event on the thread where it happens. If the reader of the output stops
reading (a pager, a debugger, Ctrl-S), ``write`` would block that thread. Then no plugin could
register, and a signal to stop would have no effect. Therefore lines wait in a queue of limited
size. Lines that do not fit are dropped and counted.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["OutputQueue"]

# Room for tens of thousands of events: enough for a reader that pauses.
_LIMIT = 4 << 20
"""Maximum number of queued bytes; further texts are dropped."""
# The capacity of a pipe on Linux; larger writes would block.
_AT_ONCE = 1 << 16
_PATIENCE = 1.0
"""Seconds without progress after which ``close`` drops the queued texts."""

Notice = Callable[[int], str]
"""Function that returns the line to write in place of dropped texts. The argument is the number of
dropped texts."""


class OutputQueue:
    """Queue of texts that a separate thread writes in order. ``put`` never blocks."""

    def __init__(
        self,
        notice: Notice,
        failed: Callable[[OSError], None],
        descriptor: int,
        *,
        limit: int = _LIMIT,
        patience: float = _PATIENCE,
    ) -> None:
        """Start the thread that writes to ``descriptor``.

        If a write fails, for example because of a broken pipe or a full disk, the thread calls
        ``failed`` with the error and ends. Later texts are dropped silently.
        """
        self._notice = notice
        self._failed = failed
        # A descriptor instead of sys.stdout: a thread that blocks in sys.stdout holds a lock that
        # the interpreter needs to exit.
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
            # During a shutdown, other threads can still publish events.
            if self._closed or self._ended:
                return
            if self._size + len(data) > self._limit:
                self._dropped += 1
                return
            # The notice is put in place of the dropped texts as soon as there is room.
            self._report_dropped()
            self._append(data)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all texts are written. Stop waiting if the reader makes no progress."""
        with self._changed:
            while self._size and self._advances():
                pass

    def close(self) -> None:
        """Write the queued texts and close the queue. Stop writing if the reader makes no
        progress."""
        with self._changed:
            self._report_dropped()
            self._closed = True
            self._changed.notify_all()
            # A blocked reader must not delay the exit.
            while self._advances():
                pass

    def _advances(self) -> bool:
        """Wait until more bytes are written, and return True. Return False if the writing thread
        has ended, or if nothing is written for ``patience`` seconds."""
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
            # Marked as ended first, because `failed` may call close(), which would wait.
            self._end()
            self._failed(error)
        else:
            self._end()

    def _next(self) -> bytes:
        """Wait for queued texts, remove some from the queue and return them. Return empty bytes if
        the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            taken: list[bytes] = []
            size = 0
            while self._waiting and size < _AT_ONCE:
                taken.append(self._waiting.popleft())
                size += len(taken[-1])
            return b"".join(taken)

    def _write(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            # A pipe can accept a part of the data. `close` reads the progress.
            count = os.write(self._descriptor, remaining)
            remaining = remaining[count:]
            with self._changed:
                self._size -= count
                self._written += count
                self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
