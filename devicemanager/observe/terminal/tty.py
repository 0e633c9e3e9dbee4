"""The terminal itself: taken over, and given back whatever happens.

Everything is written past ``sys.stdout``: a thread that is stuck in its buffer, since nobody
reads, would hold a lock that the interpreter's end waits for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import termios
import threading
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Terminal", "is_foreground"]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The alternate screen; no cursor; nothing wraps; empty."""
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
_PATIENCE = 1.0
"""Seconds for which giving back waits, twice, for a write that is stuck."""


def is_foreground(descriptor: int) -> bool:
    """Whether the terminal is ours to draw on and to read from: not so after ``&`` or ``bg``."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        # It does not control us, so no shell shares it with us; or it is gone, as using it tells.
        return True


class Terminal:
    """The terminal at two descriptors. May be used from any thread and in a signal handler.

    ``enter`` and ``leave`` may be called in any order and any number of times.
    """

    def __init__(self, output: int, input_: int | None, encoding: str = "utf-8") -> None:
        """Without ``input_`` there are no keys."""
        self.input = None if input_ is None else _reopened(input_)
        self._given_input = input_
        self.output = output
        self._encoding = encoding
        # A handler may come while its own thread holds it.
        self._lock = threading.RLock()
        self._saved: list[Any] | None = None
        self._entered = False
        self._given_up = False
        self._drawn: list[str] = []
        self._stale = False
        """Whether somebody else wrote on the screen since."""

    @property
    def is_entered(self) -> bool:
        """Whether the terminal shows our screen."""
        return self._entered

    def size(self) -> tuple[int, int]:
        """Cells and rows. One that says 0, as some do, counts as 80 by 24."""
        try:
            width, height = os.get_terminal_size(self.output)
        except OSError:
            width = height = 0
        return (width or 80, height or 24)

    def enter(self) -> None:
        """Take the terminal over, if it is ours to take. Raises OSError if it is gone."""
        with self._lock:
            if self._entered or self._given_up or not is_foreground(self.output):
                return
            self._set_keys()
            self._drawn = []
            self._entered = True
            self._write(_ENTER)

    def _set_keys(self) -> None:
        """Keys come at once and are not shown; Ctrl-C and Ctrl-Z stay signals. Ctrl-\\ is none:
        nobody could restore the terminal after it."""
        if self.input is None or not is_foreground(self.input):
            return
        with contextlib.suppress(termios.error):
            mode = termios.tcgetattr(self.input)
            if self._saved is None:
                # Once: a shell that brings us back may bring back our own mode as well.
                self._saved = termios.tcgetattr(self.input)
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            mode[6][termios.VQUIT] = b"\0"
            with _background_writes():
                termios.tcsetattr(self.input, termios.TCSANOW, mode)

    def leave(self, *, for_good: bool = False) -> None:
        """Give the terminal back as it was; ``for_good``, nothing takes it again. Never
        raises: there may be none any more."""
        self._given_up |= for_good
        with self._patiently() as is_ours:
            if not self._entered:
                return
            self._entered = False
            with contextlib.suppress(termios.error, OSError), _background_writes():
                if self.input is not None and self._saved is not None:
                    termios.tcsetattr(self.input, termios.TCSANOW, self._saved)
            with contextlib.suppress(OSError):
                if is_ours:
                    self._write(_LEAVE)

    @contextlib.contextmanager
    def _patiently(self) -> Iterator[bool]:
        """Holds the lock, or goes on without it (False) where a write is stuck for too long. One
        that Ctrl-S holds up is let go."""
        taken = self._lock.acquire(timeout=_PATIENCE)
        if not taken:
            with contextlib.suppress(termios.error, OSError):
                termios.tcflow(self.output, termios.TCOON)
            taken = self._lock.acquire(timeout=_PATIENCE)
        try:
            yield taken
        finally:
            if taken:
                self._lock.release()

    def close(self) -> None:
        """After ``leave`` for good: let go of what was opened for the keys."""
        if self.input is not None and self.input != self._given_input:
            os.close(self.input)
        self.input = None

    def resume(self) -> None:
        """The process goes on after a stop, perhaps in the background: a shell has had the
        terminal meanwhile."""
        with self._patiently() as is_ours:
            was_entered, self._entered = self._entered, False
            if was_entered and is_ours:
                with contextlib.suppress(OSError):
                    self.enter()

    def forget_drawn(self) -> None:
        """Somebody else wrote on the screen, or it has another size: it is drawn anew. Never
        waits, so that a signal handler may call it."""
        self._stale = True

    def read(self) -> bytes | None:
        """The keys that have been pressed; None if there are none, or if they are not for us.
        Raises OSError if the terminal is gone."""
        with self._lock:
            # What a wait for keys has found may be what somebody types for a shell by now.
            if self.input is None or not self._entered or not is_foreground(self.input):
                return None
            try:
                data = os.read(self.input, 1024)
            except BlockingIOError:
                return None
        if not data:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "the terminal")
        return data

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, of which only those that differ are written. Raises OSError."""
        with self._lock:
            if not self._entered:
                return
            if self._stale:
                self._stale, self._drawn = False, []
            parts = [] if self._drawn else ["\x1b[0m\x1b[2J"]
            for number, line in enumerate(lines):
                if number >= len(self._drawn) or self._drawn[number] != line:
                    # Emptied before: after a full line the cursor still stands on its end.
                    parts.append(f"\x1b[{number + 1};1H\x1b[0m\x1b[2K{line}")
            if len(lines) < len(self._drawn):
                parts.append(f"\x1b[{len(lines) + 1};1H\x1b[0m\x1b[J")
            self._drawn = list(lines)
            self._write("".join(parts))

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode(self._encoding, "backslashreplace"))
        while rest:
            rest = rest[os.write(self.output, rest) :]


def _reopened(descriptor: int) -> int:
    """The same terminal, to be read without waiting. To say that of the descriptor itself would
    say it to every program that shares it, the shell among them."""
    try:
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # somebody else's, as after su
        return descriptor


@contextlib.contextmanager
def _background_writes() -> Iterator[None]:
    """A program in the background is stopped when it sets a terminal's mode, unless it blocks
    the signal; between a look and the call the foreground may change."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
