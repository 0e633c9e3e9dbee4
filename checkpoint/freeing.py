"""Freeing the file that a rename replaced, apart from who waits for the rename.

A file system frees what it held when its last name and its last descriptor are gone. On ext4
that is a fourth of a small checkpoint's whole write, and every admission would wait for it:
so a descriptor holds the file over the rename, and a thread closes that.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

__all__ = ["MOST_WAITING", "Freeing"]

MOST_WAITING: Final = 16
"""Files that may wait; a disk that is slower than its writers makes the writers wait again."""


class Freeing:
    """One thread, begun at the first file; ``close`` ends it. Any thread may call."""

    def __init__(self, close: Callable[[int], None] = os.close) -> None:
        self._close = close
        self._descriptors: SimpleQueue[int | None] = SimpleQueue()
        # Guards the one below.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, path: str) -> int | None:
        """Return a descriptor that keeps the file at ``path``, not to read or to write it;
        None if there is no file, no descriptor to be had, or too many files wait."""
        if self._descriptors.qsize() >= MOST_WAITING:
            return None
        try:
            return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None

    def free(self, descriptor: int) -> None:
        """Let go of a file that was held, soon."""
        if self._thread is None and not self._begin():
            return self._close_one(descriptor)
        self._descriptors.put(descriptor)

    def close(self) -> None:
        """Return when every file is freed and the thread has ended. A later ``free`` begins
        another."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._descriptors.put(None)
            thread.join()

    def _begin(self) -> bool:
        """Start the thread if nobody has. False: there are no threads to be had."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="checkpoint freeing", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
        return True

    def _run(self) -> None:
        while (descriptor := self._descriptors.get()) is not None:
            self._close_one(descriptor)

    def _close_one(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            self._close(descriptor)
