"""A live view in a program: on which terminal, and what signals mean to it."""

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
    """Whether standard output is a terminal that a live view can have: one that moves its
    cursor, and in whose foreground we are."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    is_able = os.environ.get("TERM", "").lower() not in _DUMB
    return is_able and os.isatty(descriptor) and is_foreground(descriptor)


def standard_terminal() -> Terminal:
    """The terminal at standard output, with keys if standard input is one, too."""
    sys.stdout.flush()
    return Terminal(sys.stdout.fileno(), _keys_descriptor(), sys.stdout.encoding)


def _keys_descriptor() -> int | None:
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    return descriptor if os.isatty(descriptor) else None


class TerminalSignals:
    """What signals about its terminal mean to a view: another size, Ctrl-Z, `fg`, and an end
    that leaves no time for anything else. A context manager, in the main thread only."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._handlers: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> Self:
        meant: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: lambda *_: self._view.redraw(),
            signal.SIGTSTP: self._stops,
            signal.SIGCONT: self._continues,
            signal.SIGQUIT: self._dies,
        }
        for number, handler in meant.items():
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
        self._view.terminal.leave()
        _default(number)
        # Here the process goes on after a SIGCONT; the view takes the terminal by itself.
        signal.signal(number, self._stops)
        self._view.redraw()

    def _continues(self, *_: object) -> None:
        self._view.terminal.resume()
        self._view.redraw()

    def _dies(self, number: int, _: FrameType | None) -> None:
        self._view.end()
        _default(number)


def _default(number: int) -> None:
    """The signal does what it does to a program that does not handle it."""
    signal.signal(number, signal.SIG_DFL)
    # To this thread: it has happened before the next line.
    signal.pthread_kill(threading.get_ident(), number)
