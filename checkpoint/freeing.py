"""Free the disk space of replaced checkpoint files in a background thread."""

# A file system frees the blocks of a file when its last name and its last descriptor are gone. On
# ext4 this takes a quarter of the time of a small checkpoint's write, and every admission would
# wait for it. Therefore a descriptor keeps the old file open during the rename, and a thread closes
# the descriptor afterwards.
#
# A new write first waits until the file that the previous write replaced is freed (``settle``).
# Therefore writes need no more disk space than without the thread.

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue
from typing import TypeAlias

from checkpoint.files import FileOperations

_Held: TypeAlias = SimpleQueue[tuple[int, threading.Lock] | None]
"""Queue of pairs: a descriptor that the thread closes, and a lock that the thread releases
afterwards. None stops the thread."""


class Freeing:
    """Thread that frees the disk space of replaced files. It starts with the first file and stops
    in ``close``.

    Thread-safe. A call that is interrupted, for example by Ctrl-C, never blocks other callers.
    """

    def __init__(self, files: FileOperations | None = None) -> None:
        self._files = files or FileOperations()
        # Locked until the last file is freed. Each file has a separate lock, so an interrupted
        # caller cannot leave a lock that other callers wait for.
        self._last = threading.Lock()
        # Guards ``_thread`` and ``_held``.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held: _Held = SimpleQueue()

    def hold(self, path: str) -> int | None:
        """Return a descriptor that keeps the file at ``path`` from being freed. Return None if the
        file does not exist or the process has no descriptor left."""
        try:
            # O_PATH does not open the file's contents, so it cannot block on a FIFO.
            return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None

    def free(self, descriptor: int) -> None:
        """Close a descriptor that ``hold`` returned. If the background thread runs or can be
        started, that thread closes the descriptor; otherwise this method does."""
        freed = threading.Lock()
        freed.acquire()
        with self._lock:
            if self._has_thread():
                self._held.put((descriptor, freed))
                # Set after ``put``: if an interrupt comes before ``put``, no caller may wait for a
                # file that the thread does not have.
                self._last = freed
                return
        self._close(descriptor)

    def settle(self) -> None:
        """Wait until all files passed to ``free`` are freed."""
        last, thread = self._last, self._thread
        # Usually the file is already freed, so the lock is open. A forked process does not have the
        # thread, so it must not wait.
        if last.locked() and thread is not None and thread.is_alive():
            with last:
                return

    def close(self) -> None:
        """Free all files passed to ``free``, then stop the thread. Returns when it has stopped.

        The object can be used again: the next ``free`` starts a new thread.
        """
        self.settle()
        with self._lock:
            thread = self._end()
        if thread is not None and thread.is_alive():
            thread.join()

    def _has_thread(self) -> bool:
        """Start the thread if it does not run. Return False if it cannot be started.

        Must be called with the lock held.
        """
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
        """Let the thread stop after it has closed the remaining files, without waiting. Return the
        thread, or None if it does not run.

        Must be called with the lock held. A thread whose start was interrupted stops immediately.
        """
        if self._thread is not None:
            self._held.put(None)
        return self._thread

    def _run(self, held: _Held) -> None:
        while (each := held.get()) is not None:
            self._close_and_release(*each)
        with self._lock:
            # From now on, ``free`` does not pass files to this thread. A caller of ``close`` cannot
            # do this: if it is interrupted after it has put None, the thread stops all the same.
            if self._held is held:
                self._thread = None
        # Files that were passed to this thread after None.
        while not held.empty():
            if (each := held.get()) is not None:
                self._close_and_release(*each)

    def _close_and_release(self, descriptor: int, freed: threading.Lock) -> None:
        try:
            self._close(descriptor)
        finally:
            freed.release()

    def _close(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            self._files.close(descriptor)
