"""What a process holds, read from outside, and the most it ever held."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

import attrs
import psutil

_EVERY = 0.02
_MB = 1_000_000


@attrs.frozen
class Holding:
    """Memory in MB, and numbers."""

    memory: float = 0.0
    threads: int = 0
    descriptors: int = 0

    @classmethod
    def of(cls, process: psutil.Process) -> Holding:
        """Raises psutil.NoSuchProcess once it has ended."""
        with process.oneshot():
            return cls(process.memory_info().rss / _MB, process.num_threads(), process.num_fds())

    def most(self, other: Holding) -> Holding:
        """Field by field the larger one."""
        return Holding(
            max(self.memory, other.memory),
            max(self.threads, other.threads),
            max(self.descriptors, other.descriptors),
        )


class Watch:
    """Reads a process over and over until its block ends; ``peak`` is the most it held."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.before = self.now()
        self.peak = self.before
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="watch")

    def now(self) -> Holding:
        """What it holds at this moment; nothing once it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if self._process.status() != psutil.STATUS_ZOMBIE:
                return Holding.of(self._process)
        return Holding()

    def _read(self) -> None:
        while not self._end.wait(_EVERY):
            self.peak = self.peak.most(self.now())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
