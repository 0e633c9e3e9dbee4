"""The live view: looks, draws, reads keys, until somebody ends it."""

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
from devicemanager.observe.terminal.screen import Picture, Screen, draw
from devicemanager.observe.terminal.text import ASCII, UNICODE, Glyphs
from devicemanager.observe.terminal.tty import Terminal

__all__ = ["LiveView", "LogLines", "glyphs_for"]

_SHORTEST = 0.2
"""Seconds between two pictures, however much happens."""
_LONGEST = 1.0
"""Seconds after which it is looked again, whatever happened."""
_PATIENCE = 2.0
_KEPT_LINES = 2000


class LogLines:
    """The latest lines of a log; may be added to from any thread."""

    def __init__(self, keep: int = _KEPT_LINES) -> None:
        self._lock = threading.Lock()
        self._keep = keep
        self._lines: tuple[LogLine, ...] = ()
        self._new: list[LogLine] = []
        self.count = 0
        """How many there have been, those that are not kept any more included."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each; must not block."""

    def add(self, line: LogLine) -> None:
        """One more line."""
        with self._lock:
            self._new.append(line)
            self.count += 1
            if len(self._new) > self._keep:
                self._fold()
        self.changed()

    def latest(self) -> Sequence[LogLine]:
        """The lines, the latest last."""
        with self._lock:
            if self._new:
                self._fold()
            return self._lines

    def _fold(self) -> None:
        self._lines = (*self._lines, *self._new)[-self._keep :]
        self._new = []


Ended = Callable[[BaseException | None], None]
"""Told why a view has ended by itself: None if its user wants to quit, OSError if the terminal
has gone, anything else is a mistake of ours."""


class LiveView:
    """Shows pictures on a terminal, on a thread of its own, from ``start`` to ``close``."""

    def __init__(
        self,
        terminal: Terminal,
        look: Callable[[], Picture],
        ended: Ended,
        *,
        lines: LogLines | None = None,
        about: Sequence[str] = (),
        colored: bool = True,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        """``look`` makes the picture, and must not block. ``ended`` is called at most once, on
        the view's thread, when the terminal has been given back. Without ``lines`` no events
        are shown. ``about`` stands below the help."""
        self.terminal = terminal
        self.notice = ""
        """What the program itself has to say; in the second line, if it is not empty."""
        self._look = look
        self._ended = ended
        self._lines = lines
        self._about = about
        self._glyphs = glyphs
        self._console = _console(colored)
        self._state = ScreenState()
        self._held: tuple[Picture, Sequence[LogLine] | None] | None = None
        self._screen = Screen(())
        self._closing = False
        # Sockets know that they are closed, where a descriptor may be somebody else's by then.
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        self._is_woken = False
        self._thread = threading.Thread(target=self._work, name="live view", daemon=True)

    def start(self) -> None:
        """Take the terminal over. Raises OSError if it is gone."""
        if self._lines is not None:
            self._lines.changed = self.wake
        self.terminal.enter()
        self._thread.start()

    def end(self) -> None:
        """Give the terminal back now, from any thread and in a signal handler."""
        self._closing = True
        self._wake()
        self.terminal.leave(for_good=True)

    def close(self) -> None:
        """As ``end``, and wait for the thread. Closing twice does nothing."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._woken.close()
            self._waking.close()
            self.terminal.close()

    def say(self, notice: str) -> None:
        """Put this into the second line; empty takes that line away."""
        self.notice = notice
        self.wake()

    def wake(self) -> None:
        """Something happened: look again, soon. From any thread, and in a signal handler. Only
        the first since the last look costs a system call."""
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waking.send(b"\0")

    def redraw(self) -> None:
        """The screen is another one: its size, or what is on it."""
        self.terminal.forget_drawn()
        self.wake()

    # -- the thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._closing:
                self._is_woken = False  # what happens from here on is seen by the next look
                self.terminal.enter()
                if self.terminal.is_entered:
                    self._show()
                self._wait()
            error: BaseException | None = None
        except BaseException as raised:
            error = raised
        if not self._closing or self._state.quit:
            self.end()
            self._ended(error)

    def _show(self) -> None:
        picture, lines = self._seen()
        width, height = self.terminal.size()
        shown = Shown(lines, time.time(), self._glyphs)
        self._screen = draw(picture, self._state, width, height, shown, self.notice, self._about)
        self.terminal.draw(self._rendered(self._screen, width))

    def _seen(self) -> tuple[Picture, Sequence[LogLine] | None]:
        if self._state.held and self._held is not None:
            return self._held
        self._held = self._look(), None if self._lines is None else self._lines.latest()
        return self._held

    def _rendered(self, screen: Screen, width: int) -> list[str]:
        console = self._console
        console.width = width
        with console.capture() as capture:
            for line in screen.lines:
                console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return capture.get().split("\n")[:-1]

    def _wait(self) -> None:
        """Until a key, a change, or a second later. Of many changes there are at most five
        pictures a second."""
        soonest = time.monotonic() + _SHORTEST
        if self._changed(_LONGEST, self._woken):
            rest = soonest - time.monotonic()
            if rest > 0:
                self._changed(rest)

    def _changed(self, seconds: float, *others: socket.socket) -> bool:
        """Wait for keys, and for others; True if one of the others came, and no key."""
        # Not select: it takes no descriptor above 1023, of which a kubelet may have more.
        poll = select.poll()
        key_source = self.terminal.input if self.terminal.is_entered else None
        for source in (*others, *(() if key_source is None else (key_source,))):
            poll.register(source, select.POLLIN)
        if self.terminal.output != key_source:
            poll.register(self.terminal.output, 0)  # which tells only that it has gone
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
            screen = self._screen
            self._state = pressed(self._state, key, screen.page, screen.last, screen.panes)
        self._closing |= self._state.quit


def _console(colored: bool) -> Console:
    """Renders with as many colours as the terminal has; none if they are not wanted."""
    return Console(
        force_terminal=True,
        no_color=None if colored else True,  # None: as the environment says
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def glyphs_for(encoding: str) -> Glyphs:
    """The characters that an encoding has."""
    try:
        "".join(UNICODE.states.values()).encode(encoding)
    except (LookupError, UnicodeError):
        return ASCII
    return UNICODE
