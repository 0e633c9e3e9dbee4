"""Freeing the file that a rename replaces, apart from who waits for the rename.

A file system frees a file when its last name and its last descriptor are gone. On ext4 that
is a fourth of a small checkpoint's whole write, and every admission would wait for it. So a
descriptor holds the old file over the rename, and a thread lets go of it afterwards.

At most one file waits. The next write begins when that is freed: it needs no more room on the
disk than a write that frees by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue

from checkpoint.files import FileOperations

__all__ = ["Freeing"]


class Freeing:
    """Frees replaced files in a thread, which begins at the first and ends with ``close``. Any
    thread may call."""

    def __init__(self, files: FileOperations | None = None) -> None:
        self._files = files or FileOperations()
        # Taken while a file waits; the thread gives it back.
        self._waiting = threading.Lock()
        self._held: SimpleQueue[int | None] = SimpleQueue()
        # Guards the one below.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, path: str) -> int | None:
        """Return a descriptor that keeps the file at ``path`` from being freed, whatever
        becomes of its name; None if there is no file, or no descriptor to be had."""
        try:
            # O_PATH opens nothing: no FIFO makes it wait, no remount read-only is in its way.
            return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None

    def free(self, descriptor: int) -> None:
        """Let go of a file that was held. Returns at once if no other waits."""
        self._waiting.acquire()
        if self._thread is None and not self._begin():
            return self._free(descriptor)
        self._held.put(descriptor)

    def settle(self) -> None:
        """Return when no file waits."""
        with self._waiting:
            pass

    def close(self) -> None:
        """Return when no file waits and the thread has ended. May be used again."""
        self.settle()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._held.put(None)
            thread.join()

    def _begin(self) -> bool:
        """Start the thread if nobody has. False: there is none to be had."""
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
        while (descriptor := self._held.get()) is not None:
            self._free(descriptor)

    def _free(self, descriptor: int) -> None:
        try:
            with contextlib.suppress(OSError):
                self._files.close(descriptor)
        finally:
            self._waiting.release()
