"""Processes of tests: the signals of this one, and interpreters that tests start."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

_UNNEEDED = ("anyio", "cacheprovider", "hypothesispytest", "pytest_cov", "timeout", "xdist")
NO_SUITE_PLUGINS = tuple(flag for name in _UNNEEDED for flag in ("-p", f"no:{name}"))
"""Options of pytest without plugins that only this suite uses, or that come with a dependency
(anyio): they triple the start-up time."""


def run_python(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter with these arguments and additional environment variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def restore_signals() -> None:
    """Restore the default effect of signals for the processes that tests start.

    A script's background command (``&``) ignores SIGINT and SIGQUIT, nohup ignores SIGHUP, and
    every child inherits that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            # A handler without effect: exec resets handlers to the default, but ignored signals
            # stay ignored.
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass
