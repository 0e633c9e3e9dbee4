"""Take over the terminal, and restore it in every case.

Three problems make this hard:

* The terminal is shared. After ``&``, ``bg`` or Ctrl-Z it belongs to the shell: reading would
  steal the user's input, and setting its mode would stop the process. Therefore each access first
  checks that this process is in the foreground.
* A write can block forever, after Ctrl-S or if the reader of a pseudo-terminal stops reading.
  Restoring the terminal must not wait for such a write longer than ``_PATIENCE``.
* A signal handler can interrupt its thread anywhere, even while the thread holds the lock of a
  ``Terminal``.

Output bypasses ``sys.stdout``: a thread that blocks in ``sys.stdout`` holds a lock that the
interpreter needs to exit.
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

# Alternate screen, no cursor, no wrapping, clear.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
# Seconds to wait for a blocked write when the terminal is restored; this is done twice.
_PATIENCE = 1.0


def is_foreground(descriptor: int) -> bool:
    """True if this process may draw on the terminal and read from it. False if the shell runs the
    process in the background, as after ``bg``."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        # It is not the controlling terminal, so no shell shares it. Or the terminal is gone; then
        # the next use fails.
        return True


class Terminal:
    """A terminal, with one file descriptor for output and one for keys. Thread-safe; may be used in
    a signal handler.

    ``enter`` and ``leave`` may be called in any order and any number of times.
    """

    def __init__(self, output: int, input_: int | None, encoding: str = "utf-8") -> None:
        """Create the object without changing the terminal. ``output`` and ``input_`` are file
        descriptors. If ``input_`` is None, no keys are read."""
        self.input = None if input_ is None else _reopened(input_)
        self._given_input = input_
        self.output = output
        self._encoding = encoding
        # Reentrant, because a signal handler can run while its thread holds the lock.
        self._lock = threading.RLock()
        self._saved: list[Any] | None = None
        self._entered = False
        self._given_up = False
        self._drawn: list[str] = []
        self._stale = False
        """True if another program may have written on the screen."""

    @property
    def is_entered(self) -> bool:
        """True while the terminal shows the live view."""
        return self._entered

    def size(self) -> tuple[int, int]:
        """Return width and height in cells; 80 and 24 if the terminal does not report them."""
        try:
            width, height = os.get_terminal_size(self.output)
        except OSError:
            width = height = 0
        return (width or 80, height or 24)

    def enter(self) -> None:
        """Take over the terminal. Does nothing if this process is in the background. Raises OSError
        if the terminal is gone."""
        with self._lock:
            if self._entered or self._given_up or not is_foreground(self.output):
                return
            self._set_keys()
            self._drawn = []
            self._entered = True
            self._write(_ENTER)

    def _set_keys(self) -> None:
        """Set the terminal to deliver keys immediately and without echo. Ctrl-C and Ctrl-Z remain
        signals."""
        if self.input is None or not is_foreground(self.input):
            return
        with contextlib.suppress(termios.error):
            mode = termios.tcgetattr(self.input)
            if self._saved is None:
                # Saved only once, because a shell may restore this program's mode after `fg`.
                self._saved = termios.tcgetattr(self.input)
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            # Ctrl-\\ would end the process without restoring the terminal.
            mode[6][termios.VQUIT] = b"\0"
            with _background_writes():
                termios.tcsetattr(self.input, termios.TCSANOW, mode)

    def leave(self, *, for_good: bool = False) -> None:
        """Restore the terminal. With ``for_good``, later calls of ``enter`` do nothing. Never
        raises, even if the terminal is gone."""
        # Set before taking the lock, so that a thread that waits in ``enter`` does nothing.
        self._given_up |= for_good
        with self._patiently() as is_ours:
            if not self._entered:
                return
            self._entered = False
            with contextlib.suppress(termios.error, OSError), _background_writes():
                if self.input is not None and self._saved is not None:
                    termios.tcsetattr(self.input, termios.TCSANOW, self._saved)
            with contextlib.suppress(OSError):
                # Without the lock, another thread's write still blocks, and this one would, too.
                if is_ours:
                    self._write(_LEAVE)

    @contextlib.contextmanager
    def _patiently(self) -> Iterator[bool]:
        """Take the lock and yield True. Yield False, without the lock, if another thread's write
        blocks for too long."""
        taken = self._lock.acquire(timeout=_PATIENCE)
        if not taken:
            # Ctrl-S may have blocked the write, so resume output as Ctrl-Q does.
            with contextlib.suppress(termios.error, OSError):
                termios.tcflow(self.output, termios.TCOON)
            taken = self._lock.acquire(timeout=_PATIENCE)
        try:
            yield taken
        finally:
            if taken:
                self._lock.release()

    def close(self) -> None:
        """Close the descriptor from which keys are read. Call ``leave(for_good=True)`` first."""
        if self.input is not None and self.input != self._given_input:
            os.close(self.input)
        self.input = None

    def resume(self) -> None:
        """Take over the terminal again after the process was stopped and continued."""
        # After `bg` the process is in the background, and ``enter`` does nothing.
        with self._patiently() as is_ours:
            was_entered, self._entered = self._entered, False
            if was_entered and is_ours:
                with contextlib.suppress(OSError):
                    self.enter()

    def forget_drawn(self) -> None:
        """Make the next drawing write all lines. Call it if the screen's size or content
        changed."""
        # Takes no lock, because a signal handler calls it.
        self._stale = True

    def read(self) -> bytes | None:
        """Return the bytes of pressed keys. Return None if no key was pressed, or if this process
        may not read from the terminal now. Raises OSError if the terminal is gone."""
        with self._lock:
            # Checked again, because the shell may have got the terminal after ``poll`` returned.
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
        """Show the lines, writing only changed lines. Raises OSError if the terminal is gone."""
        with self._lock:
            if not self._entered:
                return
            if self._stale:
                self._stale, self._drawn = False, []
            parts = [] if self._drawn else ["\x1b[0m\x1b[2J"]
            for number, line in enumerate(lines):
                if number >= len(self._drawn) or self._drawn[number] != line:
                    # Clear the line before writing it. After a full line, the cursor is still on
                    # the last cell, and clearing the rest of the line would remove that cell.
                    parts.append(f"\x1b[{number + 1};1H\x1b[0m\x1b[2K{line}")
            if len(lines) < len(self._drawn):
                parts.append(f"\x1b[{len(lines) + 1};1H\x1b[0m\x1b[J")
            self._drawn = list(lines)
            self._write("".join(parts))

    def _write(self, text: str) -> None:
        # ``os.write`` may write only a part, for example when a signal arrives.
        remaining = memoryview(text.encode(self._encoding, "backslashreplace"))
        while remaining:
            remaining = remaining[os.write(self.output, remaining) :]


def _reopened(descriptor: int) -> int:
    """Return a new, non-blocking descriptor of the same terminal."""
    # Opened again, because the shell shares the given descriptor and its O_NONBLOCK flag.
    try:
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # owned by another user, as after su
        return descriptor


@contextlib.contextmanager
def _background_writes() -> Iterator[None]:
    """Block SIGTTOU in the with block. The signal stops a background process that sets the
    terminal's mode."""
    # Needed although callers check the foreground, which can change after the check.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
