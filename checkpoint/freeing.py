"""Free the file that a rename replaces in a background thread."""

# A file system frees a file when its last name and its last descriptor are gone. On ext4 this
# takes a quarter of the time of a small checkpoint's write, and every admission would wait for
# it. Therefore a descriptor holds the old file during the rename, and a thread closes it
# afterwards.
#
# A new write first waits until the previous file is freed (``settle``). So writes need no more
# disk space than without this module.

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue
from typing import TypeAlias

from checkpoint.files import FileOperations

_Held: TypeAlias = SimpleQueue[tuple[int, threading.Lock] | None]
"""Descriptors for the thread to close, with the lock to release then; None ends the thread."""


class Freeing:
    """Thread that frees replaced files; it starts with the first file and ends in ``close``.

    Thread-safe. A caller can be interrupted at any line; later callers never wait for it.
    """

    def __init__(self, files: FileOperations | None = None) -> None:
        self._files = files or FileOperations()
        # Locked until the last file is freed. Each file has a separate lock, so an interrupted
        # caller cannot leave one locked that others wait for.
        self._last = threading.Lock()
        # Guards the two below.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held: _Held = SimpleQueue()

    def hold(self, path: str) -> int | None:
        """Return a descriptor that keeps the file at ``path`` from being freed; None without
        a file or a free descriptor."""
        try:
            # O_PATH does not open the file itself, so it cannot block on a FIFO.
            return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None

    def free(self, descriptor: int) -> None:
        """Close a descriptor from ``hold``, in the thread if one can be started."""
        freed = threading.Lock()
        freed.acquire()
        with self._lock:
            if self._has_thread():
                self._held.put((descriptor, freed))
                # After ``put``: an interrupt in between must not leave callers waiting for a
                # file that the thread does not know of.
                self._last = freed
                return
        self._close(descriptor)

    def settle(self) -> None:
        """Wait until all files are freed."""
        last, thread = self._last, self._thread
        # Usually the file is freed by now. A forked process does not have the thread.
        if last.locked() and thread is not None and thread.is_alive():
            with last:
                return

    def close(self) -> None:
        """Wait until all files are freed and the thread has ended. Can be used again."""
        self.settle()
        with self._lock:
            thread = self._end()
        if thread is not None and thread.is_alive():
            thread.join()

    def _has_thread(self) -> bool:
        """Start the thread if needed. Must be called with the lock held. False if no thread
        can be started."""
        if self._thread is None or not self._thread.is_alive():
            self._end()
            held: _Held = SimpleQueue()
            self._held = held
            self._last = threading.Lock()  # a dead thread cannot release the old one
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
        """Let the thread end after its remaining work. Must be called with the lock held.
        A thread whose start was interrupted ends as soon as it begins."""
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
