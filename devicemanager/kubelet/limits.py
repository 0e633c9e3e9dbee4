"""What a process must have left of the system's resources for a kubelet to start in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from devicemanager.core.errors import StartError

__all__ = ["check_address_space", "check_descriptors", "explained"]

_DESCRIPTORS = 16
"""A start opens a dozen at a time; gRPC ends the program if it gets none."""


def check_descriptors() -> None:
    """Raise StartError unless enough file descriptors are free."""
    taken: list[int] = []
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(taken) < _DESCRIPTORS:
            taken.append(os.dup(taken[0]))
    except OSError as error:
        raise StartError(
            f"the kubelet cannot start: {error.strerror}: it needs {_DESCRIPTORS} free file "
            f"descriptors, {len(taken)} are left: raise the limit (ulimit -n)"
        ) from error
    finally:
        for descriptor in taken:
            os.close(descriptor)


_ADDRESS_SPACE = 104 << 20
"""Bytes for a dozen threads with stacks of 8 MiB; gRPC tries for ever, or ends the program, if
it gets none for its own."""


@cache
def check_address_space() -> None:
    """Raise StartError unless there is room for the threads of the process's first start.
    Later ones have them already."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pages = Path("/proc/self/statm").read_text().split()[0]
    left = limit - int(pages) * resource.getpagesize()
    if left < _ADDRESS_SPACE:
        raise StartError(
            f"the kubelet cannot start: out of memory: its threads need {_ADDRESS_SPACE >> 20} MiB "
            f"of address space, {max(left, 0) >> 20} are left: raise the limit (ulimit -v)"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what the system rejects meanwhile (descriptors, threads, memory, a file of ours
    that cannot be imported) into a StartError of one line."""
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as error:
        raise StartError(f"the kubelet cannot start: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """One line: what the system rejects, and with which file."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if not isinstance(error, OSError):
        text = str(error) or repr(error)
        is_thread = isinstance(error, RuntimeError) and "new thread" in text
        return f"{text}: out of memory (ulimit -v) or of threads (ulimit -u)" if is_thread else text
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"
