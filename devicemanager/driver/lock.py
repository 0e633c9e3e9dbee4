"""Serialize the calls of the kubelet, within a process and across the instances of a driver."""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOCK_FILE", "CallLock"]

LOCK_FILE = "serialize.lock"
"""Name of the file in the data directory; drivers built on the Go library lock the same file."""


class CallLock:
    """Lock for one call at a time. Thread-safe, also across processes that use the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Locked first, so that the threads of this process wait in order and without the file.
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock until the ``with`` block ends. Raises OSError."""
        with self._lock, self._path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
