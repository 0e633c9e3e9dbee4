"""Freeing the file that a rename replaces, apart from who waits for the rename.

A file system frees a file when its last name and its last descriptor are gone. On ext4 that
is a fourth of a small checkpoint's whole write, and every admission would wait for it. So a
descriptor holds the old file over the rename, and a thread lets go of it afterwards.

A write begins when no file waits: it needs no more room on the disk than a write that frees by
itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue
from typing import TypeAlias

from checkpoint.files import FileOperations

__all__ = ["Freeing"]

_Held: TypeAlias = SimpleQueue[tuple[int, threading.Lock] | None]
"""What a thread has to free, and what to unlock then; None ends it."""


class Freeing:
    """Frees replaced files in a thread, which begins at the first and ends with ``close``. Any
    thread may call, and be interrupted at any line: whoever comes next waits for nobody who is
    gone."""

    def __init__(self, files: FileOperations | None = None) -> None:
        self._files = files or FileOperations()
        # Locked until the file that came last is freed; each file has its own.
        self._last = threading.Lock()
        # Guards the two below.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held: _Held = SimpleQueue()

    def hold(self, path: str) -> int | None:
        """Return a descriptor that keeps the file at ``path`` from being freed, whatever
        becomes of its name; None if there is no file, or no descriptor to be had."""
        try:
            # O_PATH opens nothing: no FIFO makes it wait, no remount read-only is in its way.
            return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None

    def free(self, descriptor: int) -> None:
        """Let go of a file that was held. Returns at once, if a thread can be had."""
        freed = threading.Lock()
        freed.acquire()
        with self._lock:
            if self._has_thread():
                self._held.put((descriptor, freed))
                # Only now: nobody may wait for a file that the thread does not know of.
                self._last = freed
                return
        self._close(descriptor)

    def settle(self) -> None:
        """Return when no file waits."""
        last, thread = self._last, self._thread
        # Usually it is freed by now. A process that was forked has no such thread.
        if last.locked() and thread is not None and thread.is_alive():
            with last:
                return

    def close(self) -> None:
        """Return when no file waits and the thread has ended. May be used again."""
        self.settle()
        with self._lock:
            thread = self._end()
        if thread is not None and thread.is_alive():
            thread.join()

    def _has_thread(self) -> bool:
        """Start the thread if there is none; hold the lock. False: there is none to be had."""
        if self._thread is None or not self._thread.is_alive():
            self._end()
            held: _Held = SimpleQueue()
            self._held = held
            self._last = threading.Lock()  # nobody unlocks that of a thread that is gone
            self._thread = threading.Thread(
                target=self._run, args=(held,), name="checkpoint freeing", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                return False
        return True

    def _end(self) -> threading.Thread | None:
        """Have the thread end after what it has to do; hold the lock. One whose start was
        interrupted ends as soon as it begins."""
        thread = self._thread
        if thread is not None:
            self._held.put(None)
            self._thread = None
        return thread

    def _run(self, held: _Held) -> None:
        while (each := held.get()) is not None:
            descriptor, freed = each
            try:
                self._close(descriptor)
            finally:
                freed.release()

    def _close(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            self._files.close(descriptor)
