"""A pseudo-terminal whose screen a test can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte

DEADLINE = 30.0


class Watched:
    """A pseudo-terminal and its screen. A context manager."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.master, self.slave = os.openpty()
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        """Everything that was written."""
        self.resize(width, height)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.close_slave()

    def hang_up(self) -> None:
        """Close the terminal's side, like a closed window."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def close_slave(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self.master)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, text: str) -> None:
        """Wait until the screen contains a text."""
        self.wait_until(lambda: text in self.text, text)

    def wait_until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        limit = time.monotonic() + DEADLINE
        while not condition():
            left = limit - time.monotonic()
            assert left > 0, f"no {what!r}:\n{self.text}\n{self.output[-500:]!r}"
            self._read(min(left, 0.2))

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):  # no process has it open any more
                data = os.read(self.master, 65536)
                self.output += data
                self._stream.feed(data)

    @property
    def is_restored(self) -> bool:
        """True if the normal screen is shown, with a cursor and wrapping lines."""
        ends = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?7h")
        begins = (b"\x1b[?1049h", b"\x1b[?25l", b"\x1b[?7l")
        return all(
            self.output.rfind(end) > self.output.rfind(begin)
            for begin, end in zip(begins, ends, strict=True)
        )
