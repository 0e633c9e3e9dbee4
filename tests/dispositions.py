"""Signals that tests inherit as ignored from the process that starts them."""

import signal
from types import FrameType


def hear_signals() -> None:
    """Restore the usual effect of signals for processes that tests start and signal.

    A script's background command (``&``) ignores SIGINT and SIGQUIT, nohup ignores SIGHUP, and
    every child inherits that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            # A handler without effect: exec resets handlers to the default, but keeps ignored
            # signals ignored.
            signal.signal(number, _ignored)


def _ignored(number: int, frame: FrameType | None) -> None:
    pass
