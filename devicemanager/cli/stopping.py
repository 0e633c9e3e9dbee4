"""Stop a program cleanly on SIGTERM, SIGHUP and Ctrl-C, even during its set-up.

A signal handler that raises an exception can interrupt any code. If that code is a method
``__del__`` or a callback of a weak reference, Python only prints the exception, and the program
continues. Therefore the handler only records the signal, and ``Stopped`` is raised where the
program allows it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType

from devicemanager.plugin.common.signals import SignalWait

_REPEAT_SECONDS = 0.5
"""Seconds in which repeated signals count as one. ``timeout`` sends a signal to the program and to
its process group; a test runner forwards a signal that the terminal sent to all processes."""


class Stopped(BaseException):
    """Request to stop, raised after a signal. It is not an Exception, so that error handlers do not
    catch it."""


class StopSignals(SignalWait):
    """Handler of the first SIGTERM, SIGINT or SIGHUP.

    After ``_REPEAT_SECONDS``, SIGTERM and SIGINT have their previous effect again, so that the user
    can abort a stop that hangs. SIGHUP is ignored after the first signal, because the kernel and
    the shell both send one when a terminal is closed. A signal that the process ignored from its
    start, as under nohup, remains ignored.
    """

    def __init__(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        super().__init__(handled, self._stop)
        self.came = False
        """True if a signal to stop has arrived."""
        self.first: Callable[[], None] = lambda: None
        """Function that the signal handler calls before anything else, for example to restore the
        terminal. Later code may never run, because a second signal can end the process."""
        self._interruptible = False

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.came:
            raise Stopped

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Return a context manager for waits. A signal during its ``with`` block raises Stopped.

        If a signal has already arrived, Stopped is raised at the start of the block.
        """
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def _stop(self, *_: object) -> None:
        self.came = True
        # Called before the handlers change, because a second signal can then end the process.
        self.first()
        self._restore_handlers()
        # Raised only in code that is inside `interruptible`.
        if self._interruptible:
            raise Stopped

    def _restore_handlers(self) -> None:
        """Restore the previous effect of the signals, but ignore repetitions within
        ``_REPEAT_SECONDS``."""
        # Copied, because SIGHUP is removed from the handlers below.
        former = dict(self._handlers)
        begin = monotonic()

        def again(number: int, _frame: FrameType | None) -> None:
            # The signal is raised again, so that its default action, such as exit, happens.
            if monotonic() - begin >= _REPEAT_SECONDS:
                signal.signal(number, former[signal.Signals(number)])
                signal.raise_signal(number)

        for number in former:
            signal.signal(number, again)
        # Removed, so that leaving the context does not restore the default action.
        if self._handlers.pop(signal.SIGHUP, None) is not None:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
