"""SIGTERM, SIGHUP and Ctrl-C during the set-up of a program that takes down what it has set up.

A handler that raises wherever the program is raises inside imports, too, and inside the
callbacks of locks and of the garbage collector, which swallow it or print a traceback. So a
signal is noted first, and raised only where the program says that it may be.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType

from devicemanager.plugin.common.signals import SignalWait

_REPEAT_SECONDS = 0.5
"""Who sends a signal may send it twice: ``timeout`` to the program and then to its process group,
a runner of tests once more what the terminal has sent to all. That asks for nothing new."""


class Stopped(BaseException):
    """A signal asks to stop. No error, so no handler of errors may take it for one."""


class StopSignals(SignalWait):
    """Takes SIGTERM, SIGINT and SIGHUP, once.

    From half a second later on SIGTERM and SIGINT have their usual effect, so that the user
    can end a stop that hangs; before, one is taken for the same, which some send twice.
    SIGHUP has none: when a terminal goes away the kernel sends one and the shell another.
    What the process was started to ignore, as under nohup, it goes on ignoring.
    """

    def __init__(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        super().__init__(heard, self._stop)
        self.came = False
        """Whether a signal to stop has come."""
        self.first: Callable[[], None] = lambda: None
        """Called when it comes, before the next one can end the process: for what must not be
        left as it is."""
        self._interruptible = False

    def check(self) -> None:
        """Raises Stopped if a signal has come."""
        if self.came:
            raise Stopped

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raises Stopped when a signal comes, or at once if one came before: for waits."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def _stop(self, *_: object) -> None:
        self.came = True
        self.first()
        self._give_back()
        if self._interruptible:
            raise Stopped

    def _give_back(self) -> None:
        """Later signals have their former effect, but for those that come at once."""
        former = dict(self._handlers)
        begin = monotonic()

        def again(number: int, _frame: FrameType | None) -> None:
            if monotonic() - begin >= _REPEAT_SECONDS:
                signal.signal(number, former[signal.Signals(number)])
                signal.raise_signal(number)

        for number in former:
            signal.signal(number, again)
        if self._handlers.pop(signal.SIGHUP, None) is not None:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
