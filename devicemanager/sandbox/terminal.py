"""The terminal of a command, so that a shell has job control.

A shell needs a foreground process group in its own PID namespace, but the foreground group of the
caller is outside this namespace. ``runc`` and ``crun`` also start a new session, which has no
terminal. So these runtimes create a new terminal for the command, and copy its input and output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from collections.abc import Iterator
from typing import Any

__all__ = ["add_to", "has_terminal", "kept", "take"]

_STDIN = 0


def has_terminal() -> bool:
    """True if this process uses a terminal and is in the terminal's foreground group."""
    try:
        return all(map(os.isatty, range(3))) and os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restore the terminal's settings and its foreground process group at the end of the block."""
    if not has_terminal():
        yield
        return
    settings = termios.tcgetattr(_STDIN)
    try:
        yield
    finally:
        _set_foreground()
        # After the foreground group: SIGTTOU would stop a background process that changes settings.
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, settings)


def take() -> None:
    """Move this process to a new process group, and make this group the terminal's foreground
    group."""
    os.setpgid(0, 0)
    _set_foreground()
    # Nothing could continue the command. A shell sets this signal for its jobs itself.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)


def add_to(config: dict[str, Any]) -> None:
    """Change the OCI configuration ``config`` so that the runtime creates a terminal."""
    config["process"]["terminal"] = True
    config["mounts"].append(
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        }
    )


def _set_foreground() -> None:
    # A process in the background is stopped by SIGTTOU when it changes the foreground.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(_STDIN, os.getpgrp())
    signal.signal(signal.SIGTTOU, before)
