"""Serialize the kubelet's calls to a driver, across the threads and instances of the driver."""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOCK_FILE", "CallLock"]

LOCK_FILE = "serialize.lock"
"""Name of the lock file in the data directory.

Drivers built on the Go library ``kubeletplugin`` use the same name.
"""


class CallLock:
    """Lock that lets only one call run at a time. It works across threads, and across processes
    that use the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Taken first: the threads of this process then wait here, in order, and not for the file.
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock until the ``with`` block ends. Raises OSError."""
        with self._lock, self._path.open("w") as file:
            # The lock belongs to the open file. It ends when the file is closed, even by the end of
            # a killed process.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
