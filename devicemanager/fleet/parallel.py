"""Run a function for each of many values, in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from devicemanager.io.parent import end_with_parent

__all__ = ["in_processes"]

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 8
"""Values per message to a process."""
_FEWEST = 2 * _CHUNK
"""Minimum number of values for several processes. With fewer values, starting processes costs more
than it saves."""


def in_processes(
    work: Callable[[T], R], values: Sequence[T], processes: int | None = None
) -> Iterable[R]:
    """Call ``work`` with each of ``values``, and return the results in the same order.

    This call forks the processes, so make it before you start threads. ``processes`` defaults to
    the number of CPUs that this process can use. With one process, or with fewer than 16 values,
    ``work`` runs in this process.
    """
    count = processes or len(os.sched_getaffinity(0))
    if count == 1 or len(values) < _FEWEST:
        return map(work, values)
    # Fork, although newer Pythons start new interpreters by default: these would repeat all
    # imports.
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(count, context, _end_with_parent, (os.getpid(),))
    return _results(pool, pool.map(work, values, chunksize=_CHUNK))


def _results(pool: ProcessPoolExecutor, results: Iterator[R]) -> Iterator[R]:
    try:
        yield from results
    finally:
        # A caller can stop reading early; the remaining values are then not computed.
        pool.shutdown(cancel_futures=True)


def _end_with_parent(parent: int) -> None:
    """Let this process end when its parent is killed, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, 1)
