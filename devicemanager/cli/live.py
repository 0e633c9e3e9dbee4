"""Output of commands that run until a signal: lines, or a live view on the terminal.

A command writes only to the ``log`` of its ``Display``. While the live view is shown, the log adds
the lines to the view. Before and after, the log prints them. It has a lock, so that no line is lost
when the view starts or ends.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from devicemanager.cli.kubelet_log import KubeletLog
from devicemanager.cli.output import clean
from devicemanager.cli.standard_output import OutputQueue

if TYPE_CHECKING:
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.observe.terminal.live import LiveView, LogLines
    from devicemanager.observe.terminal.screen import View

__all__ = ["Display", "LiveDisplay", "add_live", "display", "display_until", "live_view"]

_LEFT_BEHIND = 10
"""Number of the view's last log lines that are printed again when the view ends."""
_LONG = 2.0
"""Seconds after which a wait is reported."""

Failed = Callable[[OSError], None]
"""Function that is called once, when standard output can no longer be written."""


def add_live(parser: argparse.ArgumentParser) -> None:
    """Add the flags ``--plain`` and ``--no-color``."""
    parser.add_argument(
        "--plain",
        action="store_true",
        help="print lines instead of the live view, also on a terminal",
    )
    parser.add_argument(
        "--no-color",
        action="store_true",
        help="do not use colors, as with the variable NO_COLOR; states also differ by shape",
    )


def live_view(
    args: argparse.Namespace,
    get_view: Callable[[], View],
    ended: Callable[[BaseException | None], None],
    lines: LogLines | None = None,
    about: Sequence[str] = (),
) -> LiveView:
    """Return a live view for the terminal, without starting it.

    ``get_view`` returns the current view of the node. ``ended`` is called when the live view ends,
    with the error that ended it, or None.
    """
    from devicemanager.observe.terminal.live import LiveView, glyphs_for
    from devicemanager.observe.terminal.session import standard_terminal

    return LiveView(
        standard_terminal(),
        get_view,
        ended,
        lines=lines,
        about=about,
        colored=not args.no_color,
        glyphs=glyphs_for(sys.stdout.encoding),
    )


class Display:
    """Plain display: prints the output of a command as lines."""

    def __init__(self, log: KubeletLog) -> None:
        self.log = log

    def show(self, new_builder: Callable[[], Callable[[], View]]) -> None:
        """Start the live view, if this display has one.

        ``new_builder`` returns a function. The live view calls this function each time it needs
        the current state of the node.
        """

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Print ``waiting`` and the text ``what`` if the ``with`` block takes longer than two
        seconds."""
        timer = threading.Timer(_LONG, lambda: self.log.say("waiting", f"waiting {what}"))
        # A daemon, so that a pending timer does not delay the exit.
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the live view, if any. Later messages are printed as lines."""


class _LiveLog(KubeletLog):
    """Log that prints lines, or adds them to the live view while the view is shown."""

    def __init__(self, lines: LogLines, write: Callable[[str], None]) -> None:
        super().__init__(False, write)
        self.lines = lines
        self.about: list[str] = []
        """Messages from before the view started, such as the paths of the sockets."""
        # Guards the fields below, so that no line is lost when the view starts or ends.
        self._turn = threading.Lock()
        self._showing = False
        self._before = 0

    def say(self, kind: str, text: str, **facts: object) -> None:
        # The view shows these lines again, because it hides earlier output.
        if not self._showing:
            self.about.append(text)
        super().say(kind, text, **facts)

    def begin_showing(self) -> None:
        with self._turn:
            self._showing = True
            self._before = self.lines.count

    def end_showing(self) -> None:
        """Print the last lines of the view again, because the view is no longer visible."""
        with self._turn:
            if self._showing:
                shown = min(self.lines.count - self._before, _LEFT_BEHIND)
                for line in self.lines.latest()[-shown:] if shown else ():
                    mark = "warning: " if line.is_warning else ""
                    self._write(self._rendered(line.time, {}, [f"{mark}{line.text}"]))
            self._showing = False

    def _print(self, when: float, record: Mapping[str, object], lines: list[str]) -> None:
        from devicemanager.observe.terminal.rows import LogLine

        with self._turn:
            if not self._showing:
                super()._print(when, record, lines)
            is_warning = bool(record.get("warning"))
            for line in lines:
                text = clean(line).removeprefix("warning: ")
                self.lines.add(LogLine(when, text, is_warning))


class LiveDisplay(Display):
    """Output as a live view between ``show`` and ``close``, and as lines before and after."""

    def __init__(
        self,
        args: argparse.Namespace,
        output: OutputQueue,
        signals: StopSignals,
        quit_: Callable[[], None],
        failed: Failed,
    ) -> None:
        """Create the display without starting the view. ``quit_`` is called when the user quits the
        view, ``failed`` when standard output can no longer be written."""
        from devicemanager.observe.terminal.live import LogLines

        self._args = args
        self._output = output
        self._signals = signals
        self._quit = quit_
        self._failed = failed
        self._view: LiveView | None = None
        self._stack = contextlib.ExitStack()
        self._live_log = _LiveLog(LogLines(), output.put)
        super().__init__(self._live_log)

    def show(self, new_builder: Callable[[], Callable[[], View]]) -> None:
        from devicemanager.observe.terminal.session import TerminalSignals

        log = self._live_log
        view = live_view(self._args, new_builder(), self._ended, log.lines, log.about)
        # Earlier lines must be printed before the view takes over the screen.
        self._output.drain()
        self._view = view
        self._stack.callback(view.close)
        self._stack.enter_context(TerminalSignals(view))
        # Called in the signal handler, because a second signal can end the process before the
        # terminal is restored.
        self._signals.first = view.end
        # Called before the view starts, so that no line is printed into the view.
        self._live_log.begin_showing()
        try:
            view.start()
        except OSError as error:
            self._live_log.end_showing()
            self._failed(error)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        view = self._view
        if view is None:
            with super().waiting(what):
                yield
            return
        view.say(f"waiting {what}")
        try:
            yield
        finally:
            view.say("")

    def close(self) -> None:
        self._stack.close()
        self._live_log.end_showing()

    def _ended(self, error: BaseException | None) -> None:
        # Runs on the view's thread, which ends here. The main thread stops the command.
        if error is None:
            self._quit()
        elif isinstance(error, OSError):
            self._failed(error)
        else:
            self._live_log.end_showing()
            text = f"live view failed: {error!r} (a bug); continuing with plain output"
            self._live_log.warn("view", text)


def display(
    args: argparse.Namespace,
    signals: StopSignals,
    quit_: Callable[[], None],
    failed: Failed,
    stack: contextlib.ExitStack,
) -> Display:
    """Return a live display if the options and the terminal allow one, otherwise a plain
    display."""
    as_json = args.output == "json"
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a test or a program has replaced standard output
        return Display(KubeletLog(as_json))
    log: KubeletLog
    output = OutputQueue(lambda count: log.dropped(count), failed, descriptor)
    stack.callback(output.close)
    # Imported only for a terminal, because output to a file needs no terminal library.
    if not as_json and not args.plain and sys.stdout.isatty():
        from devicemanager.observe.terminal.session import is_live_terminal

        if is_live_terminal():
            shown = LiveDisplay(args, output, signals, quit_, failed)
            log = shown.log
            stack.callback(shown.close)
            return shown
    log = KubeletLog(as_json, output.put)
    return Display(log)


def display_until(
    args: argparse.Namespace,
    signals: StopSignals,
    failures: list[OSError],
    stack: contextlib.ExitStack,
) -> Display:
    """Return a live or plain display, as ``display`` does, for a command that runs until a signal.

    If the user quits the live view, the command stops as after Ctrl-C. The command also stops if
    standard output can no longer be written; the error is then appended to the list ``failures``.
    """

    def failed(error: OSError) -> None:
        # After a signal, such as the SIGHUP of a closed terminal, the command stops anyway.
        if not signals.came:
            failures.append(error)
            # Runs on another thread, so the main thread is interrupted to end its wait.
            _thread.interrupt_main(signal.SIGTERM)

    def quit_() -> None:
        _thread.interrupt_main(signal.SIGINT)

    return display(args, signals, quit_, failed, stack)
