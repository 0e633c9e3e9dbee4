"""What tests inherit from whoever starts them: signals that are ignored."""

import signal
from types import FrameType


def hear_signals() -> None:
    """Let the processes that tests start have the usual effect of signals, which they are sent
    on purpose. A shell in whose script the tests run in the background (``&``) has them ignore
    SIGINT and SIGQUIT, nohup SIGHUP, and every child inherits that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            # Here they stay without effect; exec gives a child the default in place of this.
            signal.signal(number, _ignored)


def _ignored(number: int, frame: FrameType | None) -> None:
    pass
