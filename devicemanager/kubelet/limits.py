"""What a kubelet needs of the system's resources to start in this process.

gRPC does not report that descriptors or threads are missing: it retries forever or aborts the
program. Therefore a start checks them first, and translates every such error to a one-line
StartError.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from devicemanager.core.errors import StartError

__all__ = ["check_address_space", "check_descriptors", "explained", "reason"]

_DESCRIPTORS = 16
"""A start opens up to a dozen at a time; gRPC aborts the program if it gets none."""


def check_descriptors() -> None:
    """Raise StartError unless enough file descriptors are free."""
    opened: list[int] = []
    # Duplicates of one descriptor need no other resource, so the count is exact.
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(opened) < _DESCRIPTORS:
            opened.append(os.dup(opened[0]))
    except OSError as error:
        raise StartError(
            f"the kubelet cannot start: {error.strerror}: it needs {_DESCRIPTORS} free file "
            f"descriptors, {len(opened)} are left: raise the limit (ulimit -n)"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


_ADDRESS_SPACE = 104 << 20
"""Bytes for a dozen threads with stacks of 8 MiB. If gRPC gets none for its own threads, it
retries forever or aborts the program."""


@cache
def check_address_space() -> None:
    """Raise StartError unless there is room for the kubelet's threads.

    Checked once per process: later starts reuse gRPC's threads.
    """
    # Not at the top: needed only once per process.
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    # The limit is on the size of the whole address space, which is the first value of statm.
    pages = Path("/proc/self/statm").read_text().split()[0]
    left = limit - int(pages) * resource.getpagesize()
    if left < _ADDRESS_SPACE:
        raise StartError(
            f"the kubelet cannot start: out of memory: its threads need {_ADDRESS_SPACE >> 20} MiB "
            f"of address space, {max(left, 0) >> 20} are left: raise the limit (ulimit -v)"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Translate errors of the system to a StartError of one line.

    They come from missing descriptors, threads or memory, and from modules that can no longer be
    read.
    """
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as error:
        raise StartError(f"the kubelet cannot start: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return one line: what the system reported, and for which file."""
    if isinstance(error, MemoryError):
        return "out of memory"  # its own text is empty
    if not isinstance(error, OSError):
        text = str(error) or repr(error)
        # Python raises the same error when memory or the number of threads has run out.
        is_thread = isinstance(error, RuntimeError) and "new thread" in text
        return f"{text}: out of memory (ulimit -v) or of threads (ulimit -u)" if is_thread else text
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"
