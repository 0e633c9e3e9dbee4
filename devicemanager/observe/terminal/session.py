"""The terminal and the signal handlers of a program with a live view."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from devicemanager.observe.terminal.live import LiveView
from devicemanager.observe.terminal.tty import Terminal, is_foreground

__all__ = ["TerminalSignals", "is_live_terminal", "standard_terminal"]

_Handler = Callable[[int, FrameType | None], Any] | int | None
_DUMB = ("dumb", "unknown", "")


def is_live_terminal() -> bool:
    """True if standard output is a terminal with cursor control, and the process is in its
    foreground."""
    try:
        descriptor = sys.stdout.fileno()
    # Standard output is closed, or has been replaced by an object without a descriptor.
    except (OSError, ValueError):
        return False
    is_able = os.environ.get("TERM", "").lower() not in _DUMB
    return is_able and os.isatty(descriptor) and is_foreground(descriptor)


def standard_terminal() -> Terminal:
    """Return the terminal at standard output. Keys are read from standard input; if that is not a
    terminal, no keys are read."""
    # Earlier output must be written before the alternate screen is entered.
    sys.stdout.flush()
    return Terminal(sys.stdout.fileno(), _keys_descriptor(), sys.stdout.encoding)


def _keys_descriptor() -> int | None:
    try:
        descriptor = sys.stdin.fileno()
    # AttributeError: ``sys.stdin`` is None in a process without standard input.
    except (OSError, ValueError, AttributeError):
        return None
    return descriptor if os.isatty(descriptor) else None


class TerminalSignals:
    """Signal handlers of a live view, for a resized terminal, Ctrl-Z, `fg` and Ctrl-\\.

    Use it as a context manager in the main thread: Python accepts handlers only there.
    """

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._handlers: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> Self:
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: lambda *_: self._view.redraw(),
            signal.SIGTSTP: self._stops,
            signal.SIGCONT: self._continues,
            signal.SIGQUIT: self._dies,
        }
        for number, handler in handlers.items():
            # Signals that a parent process such as nohup has set to be ignored stay ignored.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _stops(self, number: int, _: FrameType | None) -> None:
        # Restored before the process stops, because the shell then uses the terminal.
        self._view.terminal.leave()
        _default(number)
        # The process continues here after SIGCONT; the view's thread takes over the terminal.
        signal.signal(number, self._stops)
        self._view.redraw()

    def _continues(self, *_: object) -> None:
        # Also needed after SIGSTOP, for which a process cannot have a handler.
        self._view.terminal.resume()
        self._view.redraw()

    def _dies(self, number: int, _: FrameType | None) -> None:
        # Restored first, because the default action ends the process at once.
        self._view.end()
        _default(number)


def _default(number: int) -> None:
    """Perform the default action of a signal."""
    signal.signal(number, signal.SIG_DFL)
    # Sent to this thread, so that the signal is delivered before the next line runs.
    signal.pthread_kill(threading.get_ident(), number)
