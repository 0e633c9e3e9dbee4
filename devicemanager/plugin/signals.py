"""Waiting for a signal without missing one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

__all__ = ["STOP_SIGNALS", "SignalWait"]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)

_Handler = Callable[[int, FrameType | None], Any] | int | None


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal's number is in the pipe already."""


class SignalWait:
    """Takes the stop signals from entering until :meth:`restore` or leaving.

    ``numbers`` are those of STOP_SIGNALS if left out, without SIGHUP where it is ignored, as
    under nohup. ``handler`` is called besides, and may raise, also out of :meth:`wait`.

    In the main thread only. The interpreter writes each signal's number into a pipe at the
    moment it comes. A wait on a lock or a queue would do without one, but may sleep through
    a signal that comes just before it falls asleep. A forked child gets its signals back, or
    they would go through the pipe to the parent.
    """

    def __init__(
        self,
        numbers: Sequence[signal.Signals] | None = None,
        handler: Callable[[int, FrameType | None], object] = _ignore,
    ) -> None:
        self._numbers = _stop_signals() if numbers is None else numbers
        self._handler = handler
        self._handlers: dict[signal.Signals, _Handler] = {}
        self._former_fd = -1
        # Guards _open: a descriptor that is closed may already be somebody else's.
        self._lock = threading.Lock()
        self._open = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._open = True
        _active.add(self)
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in self._numbers:
            self._handlers[number] = signal.signal(number, self._handler)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.restore()
        self._close()

    def wait(self) -> signal.Signals | None:
        """The stop signal that came, or None after :meth:`give_up`."""
        while True:
            (number,) = os.read(self._reader, 1)
            if number == 0:
                return None
            # Other signals that the program handles are written here as well.
            if number in self._numbers:
                return signal.Signals(number)

    def has_come(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        readable, _, _ = select.select([self._reader], [], [], 0)
        return bool(readable)

    def give_up(self) -> None:
        """End the wait, from any thread. Without a wait, nothing happens."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._open:
                os.write(self._writer, b"\0")

    def let_next_end(self) -> None:
        """Give the signals back, except that where SIGINT would raise KeyboardInterrupt it
        ends the process by the signal: in the midst of stopping, a traceback tells nobody
        anything. SIGHUP has no effect any more, since the kernel sends one when a terminal
        goes away, and the shell another. Leaving puts back these as well.
        """
        for number, handler in self._handlers.items():
            if number is signal.SIGHUP:
                continue
            ends = handler is signal.default_int_handler
            signal.signal(number, signal.SIG_DFL if ends else handler)

    def leave_in_child(self) -> None:
        """In a forked child: as leaving, which does nothing there any more."""
        self._lock = threading.Lock()
        self.restore()
        self._close()

    def _close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._reader)
                os.close(self._writer)
        _active.discard(self)

    def restore(self) -> None:
        """Restore the former handlers."""
        if self._handlers:
            signal.set_wakeup_fd(self._former_fd)
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)


def _stop_signals() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in STOP_SIGNALS if not (ignored and number is signal.SIGHUP)]


_active: weakref.WeakSet[SignalWait] = weakref.WeakSet()


def _leave_in_child() -> None:
    for wait in list(_active):
        wait.leave_in_child()


os.register_at_fork(after_in_child=_leave_in_child)
