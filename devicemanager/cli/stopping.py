"""Stop a program cleanly on SIGTERM, SIGHUP and Ctrl-C, also during its set-up.

A signal handler that raises can interrupt any code: imports, and callbacks of locks and of the
garbage collector, which ignore the exception or print a traceback. Therefore the handler only
records the signal. ``Stopped`` is raised where the program allows it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType

from devicemanager.plugin.common.signals import SignalWait

_REPEAT_SECONDS = 0.5
"""Repeated signals within this time count as one. ``timeout`` sends a signal to the program and
then to its process group; a test runner forwards what the terminal has sent to all processes."""


class Stopped(BaseException):
    """A signal requests to stop. Not an Exception, so that error handlers do not catch it."""


class StopSignals(SignalWait):
    """Handler of the first SIGTERM, SIGINT or SIGHUP.

    After ``_REPEAT_SECONDS``, SIGTERM and SIGINT have their former effect, so that the user can
    abort a stop that hangs. SIGHUP stays ignored: when a terminal is closed, the kernel sends one
    and the shell another. Signals that the process ignores from its start, as under nohup, stay
    ignored.
    """

    def __init__(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        super().__init__(handled, self._stop)
        self.came = False
        """True if a signal to stop has arrived."""
        self.first: Callable[[], None] = lambda: None
        """Called in the handler, before a second signal can end the process. Restores the
        terminal."""
        self._interruptible = False

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.came:
            raise Stopped

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise Stopped inside when a signal arrives, or at once if one has arrived. For waits."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def _stop(self, *_: object) -> None:
        self.came = True
        # Before the handlers change: a second signal can then end the process at once.
        self.first()
        self._restore_handlers()
        # Only inside a wait that was prepared for it.
        if self._interruptible:
            raise Stopped

    def _restore_handlers(self) -> None:
        """Restore the former effect of signals, except for immediate repetitions."""
        # Copied: SIGHUP is removed from the handlers below.
        former = dict(self._handlers)
        begin = monotonic()

        def again(number: int, _frame: FrameType | None) -> None:
            # Raised again, so that a default action such as exit really happens.
            if monotonic() - begin >= _REPEAT_SECONDS:
                signal.signal(number, former[signal.Signals(number)])
                signal.raise_signal(number)

        for number in former:
            signal.signal(number, again)
        # Removed, so that leaving the context does not restore the default action either.
        if self._handlers.pop(signal.SIGHUP, None) is not None:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
