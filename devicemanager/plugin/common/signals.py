"""Wait for signals without missing any.

A thread that waits for a lock or a queue can miss a signal that arrives just before it blocks. So
the interpreter's C-level signal handler writes the number of each signal into a pipe, and
:meth:`SignalWait.wait` reads from this pipe.
"""

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
    """Do nothing, because the interpreter has already written the signal's number to the pipe."""


class SignalWait:
    """Context manager that handles signals until :meth:`restore` or the end of the ``with`` block.

    The default ``numbers`` are STOP_SIGNALS. If the process ignores SIGHUP (nohup), the default
    omits SIGHUP. ``handler`` is called for each signal; if it raises, :meth:`wait` can raise that
    exception.

    Use it in the main thread only. A forked child process gets the previous handlers back:
    otherwise its signals would wake the parent through the pipe.
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
        # Guards _open: after the close, the number of the descriptor can belong to another file.
        self._lock = threading.Lock()
        self._open = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        # A signal handler must never block. If the pipe is full, the wait is awake anyway.
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
        """Wait for a signal in ``numbers`` and return it; return None after :meth:`give_up`."""
        while True:
            (number,) = os.read(self._reader, 1)
            # `give_up` writes 0, which is not the number of a signal.
            if number == 0:
                return None
            # The interpreter writes every handled signal here, not only those of `_numbers`.
            if number in self._numbers:
                return signal.Signals(number)

    def is_pending(self) -> bool:
        """True if :meth:`wait` would return immediately."""
        readable, _, _ = select.select([self._reader], [], [], 0)
        return bool(readable)

    def give_up(self) -> None:
        """Make :meth:`wait` return None. Thread-safe. No effect after the ``with`` block."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._open:
                os.write(self._writer, b"\0")

    def let_next_signal_kill(self) -> None:
        """Restore the previous handlers, so that a second signal ends the process.

        There are two exceptions. If SIGINT would raise KeyboardInterrupt, it kills the process
        instead, because a traceback from the middle of a stop does not help. SIGHUP still has no
        effect, because the kernel and the shell each send a SIGHUP when a terminal closes. The end
        of the ``with`` block also restores the handlers of SIGINT and SIGHUP.
        """
        for number, handler in self._handlers.items():
            if number is signal.SIGHUP:
                continue
            interrupts = handler is signal.default_int_handler
            signal.signal(number, signal.SIG_DFL if interrupts else handler)

    def leave_in_child(self) -> None:
        """Clean up in a forked child process. In the child, the end of the ``with`` block then
        does nothing."""
        # The parent's lock can be held by a thread that the child does not have.
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
        """Restore the signal handlers that were set before the ``with`` block. Idempotent."""
        # A program can call `restore` inside the block and then leave the block.
        if self._handlers:
            signal.set_wakeup_fd(self._former_fd)
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)


def _stop_signals() -> list[signal.Signals]:
    # A handler for SIGHUP would undo nohup.
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in STOP_SIGNALS if not (ignored and number is signal.SIGHUP)]


_active: weakref.WeakSet[SignalWait] = weakref.WeakSet()


def _leave_in_child() -> None:
    for wait in list(_active):
        wait.leave_in_child()


os.register_at_fork(after_in_child=_leave_in_child)
