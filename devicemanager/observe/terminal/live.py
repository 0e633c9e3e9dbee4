"""The live view: a thread that gets views, draws them and reads keys.

The thread must end quickly when the program exits, the user quits or the terminal is closed, so
every wait has a time limit. One ``poll`` waits for pressed keys, for a closed terminal, and for the
wake-up socket. This socket reports a change in the node or a request to close.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

from rich.console import Console

from devicemanager.observe.terminal.keys import ScreenState, keys, pressed
from devicemanager.observe.terminal.rows import LogLine, Shown
from devicemanager.observe.terminal.screen import Screen, View, draw
from devicemanager.observe.terminal.text import ASCII, UNICODE, Glyphs
from devicemanager.observe.terminal.tty import Terminal

__all__ = ["LiveView", "LogLines", "glyphs_for"]

# Minimum seconds between two drawings.
_SHORTEST = 0.2
# Maximum seconds between two drawings, because the view shows durations.
_LONGEST = 1.0
# Seconds that ``close`` waits for the thread.
_PATIENCE = 2.0
_MOST_LINES = 2000


class LogLines:
    """Buffer of the latest lines of a log. Thread-safe."""

    def __init__(self, most: int = _MOST_LINES) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._lines: tuple[LogLine, ...] = ()
        self._new: list[LogLine] = []
        self.count = 0
        """Number of lines so far, including removed ones."""
        self.changed: Callable[[], None] = lambda: None
        """Function that is called after each new line; it must not block."""

    def add(self, line: LogLine) -> None:
        """Append a line. Remove the oldest lines above the limit."""
        with self._lock:
            # New lines are collected in a list, because copying the tuple for each is quadratic.
            self._new.append(line)
            self.count += 1
            if len(self._new) > self._most:
                self._fold()
        self.changed()

    def latest(self) -> Sequence[LogLine]:
        """Return the stored lines, oldest first."""
        with self._lock:
            if self._new:
                self._fold()
            return self._lines

    def _fold(self) -> None:
        # A new tuple, because a drawing may still use the old one.
        self._lines = (*self._lines, *self._new)[-self._most :]
        self._new = []


Ended = Callable[[BaseException | None], None]
"""Function that is called with the reason why a view ended: None if the user quit, OSError if the
terminal is gone, any other exception for a bug."""


class LiveView:
    """Live view on a terminal. ``start`` starts the thread that draws the view, and ``close`` ends
    this thread."""

    def __init__(
        self,
        terminal: Terminal,
        get_view: Callable[[], View],
        ended: Ended,
        *,
        lines: LogLines | None = None,
        about: Sequence[str] = (),
        colored: bool = True,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        """Create a view without starting it. ``get_view`` returns the data to show, and must not
        block. ``ended`` is called at most once, on the view's thread, after the terminal is
        restored. ``lines``: the event log; None to show no events. ``about``: lines to show below
        the help."""
        self.terminal = terminal
        self.notice = ""
        """A message of the program, for the second line of the screen; empty for no message."""
        self._get_view = get_view
        self._ended = ended
        self._lines = lines
        self._about = about
        self._glyphs = glyphs
        self._console = _console(colored)
        self._state = ScreenState()
        self._drawn: tuple[View, Sequence[LogLine] | None] | None = None
        self._screen = Screen(())
        self._closing = False
        # Sockets instead of a pipe, because the number of a closed descriptor may be reused.
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        self._is_woken = False
        self._thread = threading.Thread(target=self._work, name="live view", daemon=True)

    def start(self) -> None:
        """Take over the terminal and start the thread. Raises OSError if the terminal is gone."""
        if self._lines is not None:
            self._lines.changed = self.wake
        self.terminal.enter()
        self._thread.start()

    def end(self) -> None:
        """Restore the terminal immediately. Thread-safe; may be called in a signal handler."""
        self._closing = True
        self._wake()
        self.terminal.leave(for_good=True)

    def close(self) -> None:
        """Restore the terminal and wait until the thread ends. Does nothing if already closed."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._woken.close()
            self._waking.close()
            self.terminal.close()

    def say(self, notice: str) -> None:
        """Show a message in the second line of the screen. An empty message removes this line."""
        self.notice = notice
        self.wake()

    def wake(self) -> None:
        """Request a new drawing. Thread-safe; may be called in a signal handler."""
        # This can run on the thread of an admission, so only the first call since the last
        # drawing makes a system call.
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waking.send(b"\0")

    def redraw(self) -> None:
        """Request a new drawing of all lines. Call it if the screen's size or content changed."""
        self.terminal.forget_drawn()
        self.wake()

    # -- the thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._closing:
                # Cleared before getting the view, so that a later change wakes this thread again.
                self._is_woken = False
                self.terminal.enter()
                if self.terminal.is_entered:
                    self._show()
                self._wait()
            error: BaseException | None = None
        except BaseException as raised:
            error = raised
        # Not called after ``close``, whose caller knows that the view ends.
        if not self._closing or self._state.quit:
            self.end()
            self._ended(error)

    def _show(self) -> None:
        view, lines = self._current()
        width, height = self.terminal.size()
        shown = Shown(lines, time.time(), self._glyphs)
        self._screen = draw(view, self._state, width, height, shown, self.notice, self._about)
        self.terminal.draw(self._rendered(self._screen, width))

    def _current(self) -> tuple[View, Sequence[LogLine] | None]:
        if self._state.paused and self._drawn is not None:
            return self._drawn
        self._drawn = self._get_view(), None if self._lines is None else self._lines.latest()
        return self._drawn

    def _rendered(self, screen: Screen, width: int) -> list[str]:
        # ``rich`` only converts styles to escape sequences. The lines already have the right
        # width, so they must not be wrapped or cropped.
        console = self._console
        console.width = width
        with console.capture() as capture:
            for line in screen.lines:
                console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return capture.get().split("\n")[:-1]

    def _wait(self) -> None:
        """Wait for a key, a change of the node, or one second."""
        # After a change, wait for more changes: at most five drawings per second. The effect of a
        # key is drawn immediately.
        soonest = time.monotonic() + _SHORTEST
        if self._changed(_LONGEST, self._woken):
            remaining = soonest - time.monotonic()
            if remaining > 0:
                self._changed(remaining)

    def _changed(self, seconds: float, *others: socket.socket) -> bool:
        """Wait up to ``seconds`` for keys and for the sockets ``others``. Handle keys. Return True
        if a socket was ready and no key was pressed."""
        # ``select`` fails for descriptors above 1023, which a kubelet can have.
        poll = select.poll()
        key_source = self.terminal.input if self.terminal.is_entered else None
        for source in (*others, *(() if key_source is None else (key_source,))):
            poll.register(source, select.POLLIN)
        if self.terminal.output != key_source:
            poll.register(self.terminal.output, 0)  # reports only that the terminal is gone
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if key_source in ready:
            self._take(self.terminal.read() or b"")
            return False
        if self.terminal.output in ready:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "the terminal")
        for other in others:
            with contextlib.suppress(BlockingIOError):
                other.recv(4096)
        return bool(ready)

    def _take(self, data: bytes) -> None:
        for key in keys(data):
            # Keys refer to the screen that the user sees, which is the last drawing.
            screen = self._screen
            self._state = pressed(self._state, key, screen.page, screen.last, screen.panes)
        self._closing |= self._state.quit


def _console(colored: bool) -> Console:
    """Return a rich console that renders with the colors of the terminal, or without colors."""
    return Console(
        force_terminal=True,
        no_color=None if colored else True,  # None: NO_COLOR decides
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def glyphs_for(encoding: str) -> Glyphs:
    """Return the glyphs for an encoding: Unicode if the encoding has these characters, else
    ASCII."""
    try:
        "".join(UNICODE.states.values()).encode(encoding)
    except (LookupError, UnicodeError):
        return ASCII
    return UNICODE
