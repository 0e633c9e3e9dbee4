"""End a process together with its parent."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, status: int) -> None:
    """Make the kernel kill this process when its parent process ends.

    ``parent`` is the parent's process ID. If the parent has already ended, exit with ``status``.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(status)
