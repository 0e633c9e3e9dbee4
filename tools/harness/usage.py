"""Measure the resource use of processes: the peak, growth over laps, and leftovers."""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, Self

import attrs
import psutil

_EVERY: Final = 0.02
_MB: Final = 1_000_000

SLACK: Final = {
    "memory": 4.0, "objects": 400, "blocks": 10_000, "descriptors": 4, "threads": 4
}  # fmt: skip
"""Accepted growth of each figure: memory in MB, other figures as numbers."""
# Accept some growth: the thread pools of gRPC and the arenas of the allocator grow and shrink.

_DESCRIPTORS_OF_GRPC: Final = 2
"""Number of descriptors with which gRPC wakes its threads. It never closes them."""


@attrs.frozen
class Usage:
    """Resource use of a process: resident memory in MB, number of threads, number of
    descriptors."""

    memory: float = 0.0
    threads: int = 0
    descriptors: int = 0

    @classmethod
    def of(cls, process: psutil.Process) -> Usage:
        """Read the resource use of a process. Raises psutil.NoSuchProcess if it has exited."""
        with process.oneshot():
            return Usage(process.memory_info().rss / _MB, process.num_threads(), process.num_fds())

    def max(self, other: Usage) -> Usage:
        """Return the maximum of each figure."""
        return Usage(*map(max, attrs.astuple(self), attrs.astuple(other)))

    def __sub__(self, other: Usage) -> Usage:
        mine, others = attrs.astuple(self), attrs.astuple(other)
        return Usage(*(a - b for a, b in zip(mine, others, strict=True)))


class Watch:
    """Thread that reads the resource use of a process repeatedly during a ``with`` block.

    ``peak`` is the maximum of each figure.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.before = self.now()
        self.peak = self.before
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="watch")

    def now(self) -> Usage:
        """Return the current resource use; zeros if the process has exited."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            # A zombie process still has an entry in /proc, but no memory and no readable
            # descriptors.
            if self._process.status() != psutil.STATUS_ZOMBIE:
                return Usage.of(self._process)
        return Usage()

    def _read(self) -> None:
        while not self._end.wait(_EVERY):
            self.peak = self.peak.max(self.now())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@attrs.frozen
class Reading:
    """Resource use of this process at a moment without pods and without calls in progress."""

    memory: float
    objects: int
    """Number of objects that the garbage collector tracks. The number is exact, so it is the first
    sign of a leak."""
    descriptors: int
    threads: int
    blocks: int = 0
    """Number of blocks that Python has allocated. Unlike ``objects``, it includes strings and
    numbers, and a dict that has only such entries."""

    @classmethod
    def now(cls) -> Reading:
        """Read the resource use of this process now."""
        # Uncollected garbage is not a leak.
        gc.collect()
        usage = Usage.of(psutil.Process())
        return cls(
            usage.memory,
            len(gc.get_objects()),
            usage.descriptors,
            usage.threads,
            sys.getallocatedblocks(),
        )

    def __str__(self) -> str:
        return (
            f"{self.memory:.1f} MB, {self.objects} objects, {self.blocks} blocks, "
            f"{self.descriptors} descriptors, {self.threads} threads"
        )


def growth(readings: Sequence[Reading]) -> list[str]:
    """Return a text for each figure that has grown from the first third of the laps to the last
    third by more than ``SLACK``."""
    # The first lap fills pools and caches. Compare medians, because a single lap can be unusual.
    counted = readings[1:] if len(readings) > 2 else readings
    third = -(-len(counted) // 3)
    found = []
    for what, slack in SLACK.items() if counted else ():
        values = [float(getattr(each, what)) for each in counted]
        before, after = (round(median(part), 1) for part in (values[:third], values[-third:]))
        if after > before + slack:
            found.append(f"{what} grew from {before:g} to {after:g}")
    return found


class Leftovers:
    """Context manager that finds threads, descriptors and temporary files that the block has
    created and left."""

    def __init__(self, seconds: float = 10.0) -> None:
        """Each thread may take up to ``seconds`` to exit."""
        self._seconds = seconds
        self._directory = tempfile.TemporaryDirectory(prefix="leftovers-")
        self._tempdir = tempfile.tempdir
        self._threads: frozenset[threading.Thread] = frozenset()
        self._descriptors = 0
        self.found: list[str] = []
        """One sentence for each leftover; filled at the end of the block."""

    def __enter__(self) -> Self:
        # Create all temporary files in one directory. Any file in it is then a leftover.
        tempfile.tempdir = self._directory.name
        self._threads = frozenset(threading.enumerate())
        self._descriptors = Usage.of(psutil.Process()).descriptors
        return self

    def __exit__(self, *_: object) -> None:
        tempfile.tempdir = self._tempdir
        self.found += self._read()
        self._directory.cleanup()

    def _read(self) -> Iterator[str]:
        for thread in set(threading.enumerate()) - self._threads:
            # The threads of gRPC exit some time after a server or a channel was closed.
            thread.join(self._seconds)
            if thread.is_alive():
                yield f"thread {thread.name} still runs"
        more = Usage.of(psutil.Process()).descriptors - self._descriptors
        if more > _DESCRIPTORS_OF_GRPC:
            yield f"{more} descriptors are still open"
        for path in sorted(Path(self._directory.name).iterdir()):
            yield f"{path.name} was left in the directory for temporary files"
