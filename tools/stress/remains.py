"""What is left of a kubelet, in the process and on the disk, when it is closed."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_DESCRIPTORS: Final = Path("/proc/self/fd")
_SLACK: Final = 2
"""Descriptors of gRPC's own, for waking its threads: they stay as long as the process."""


class Remains:
    """Threads, descriptors and temporary files that came while it was entered, and stayed."""

    def __init__(self, seconds: float = 10.0) -> None:
        """A thread has so many seconds to end."""
        self._seconds = seconds
        self._directory = tempfile.TemporaryDirectory(prefix="stress-")
        self._before = tempfile.tempdir
        self._threads: frozenset[threading.Thread] = frozenset()
        self._descriptors = 0
        self.found: list[str] = []
        """A sentence for each, once it was left."""

    def __enter__(self) -> Self:
        tempfile.tempdir = self._directory.name
        self._threads = frozenset(threading.enumerate())
        self._descriptors = _descriptors()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tempfile.tempdir = self._before
        self.found += self._left()
        self._directory.cleanup()

    def _left(self) -> Iterator[str]:
        for thread in set(threading.enumerate()) - self._threads:
            thread.join(self._seconds)
            if thread.is_alive():
                yield f"thread {thread.name} is left"
        more = _descriptors() - self._descriptors
        if more > _SLACK:
            yield f"{more} descriptors are left"
        for path in sorted(Path(self._directory.name).iterdir()):
            yield f"{path.name} is left in the directory for temporary files"


def _descriptors() -> int:
    return sum(1 for _ in _DESCRIPTORS.iterdir())
