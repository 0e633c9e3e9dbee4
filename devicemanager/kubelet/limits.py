"""Checks that enough file descriptors and memory are free to start a kubelet in this process.

Without free descriptors or memory for threads, gRPC retries forever or aborts the program instead
of raising an error. Therefore a start checks both first, and converts every operating-system error
to a one-line StartError.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from devicemanager.core.errors import StartError

__all__ = ["as_start_error", "check_address_space", "check_descriptors", "reason"]

_DESCRIPTORS = 32
"""Number of free descriptors that a start needs. The kubelet's servers use a dozen. The rest is
a reserve, because a plugin's socket is dialed only if enough descriptors stay free
(``registration.dialer.leaves_enough``)."""


def check_descriptors() -> None:
    """Raise StartError if fewer than 32 file descriptors are free."""
    opened: list[int] = []
    # Duplicates of one descriptor need no other resource, so the count is exact.
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(opened) < _DESCRIPTORS:
            opened.append(os.dup(opened[0]))
    except OSError as error:
        raise StartError(
            f"the kubelet cannot start: {error.strerror}: free file descriptors: {len(opened)}, "
            f"needed: {_DESCRIPTORS}: raise the limit (ulimit -n)"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


_ADDRESS_SPACE = 104 << 20
"""Bytes of address space that a start needs: a dozen threads with stacks of 8 MiB."""


@cache
def check_address_space() -> None:
    """Raise StartError if the address space is too small for the kubelet's threads.

    A successful check is not repeated in this process: later starts reuse gRPC's threads.
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
            f"of address space, but only {max(left, 0) >> 20} MiB are free: raise the limit "
            "(ulimit -v)"
        )


@contextlib.contextmanager
def as_start_error() -> Iterator[None]:
    """Convert operating-system errors in the ``with`` block to a StartError of one line.

    Such errors come from missing descriptors, threads or memory, and from Python modules that
    cannot be read any more.
    """
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as error:
        raise StartError(f"the kubelet cannot start: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Describe an error in one line.

    For an error of the operating system, the line is the text of the error. If the error names a
    file, the file name comes first.
    """
    if isinstance(error, MemoryError):
        return "out of memory"  # its own text is empty
    if not isinstance(error, OSError):
        text = str(error) or repr(error)
        # Python raises the same error when memory or the number of threads has run out.
        is_thread = isinstance(error, RuntimeError) and "new thread" in text
        return f"{text}: out of memory (ulimit -v) or of threads (ulimit -u)" if is_thread else text
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"
