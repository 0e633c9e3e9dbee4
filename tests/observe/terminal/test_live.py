"""The live view on a pseudo-terminal, in this process."""

from __future__ import annotations

import os
import termios
import threading

import attrs
import pytest

from devicemanager.observe.terminal import tty
from devicemanager.observe.terminal.live import LiveView, LogLines, glyphs_for
from devicemanager.observe.terminal.rows import LogLine
from devicemanager.observe.terminal.text import ASCII, UNICODE
from devicemanager.observe.terminal.tty import Terminal
from tests.observe.terminal import views
from tests.observe.terminal.watched import DEADLINE, Watched


class Shown:
    """A live view whose contents a test can change."""

    def __init__(self, watched: Watched, **options) -> None:
        self.content = views.small()
        self.error: list[BaseException | None] = []
        self.has_ended = threading.Event()
        self.lines = LogLines()
        terminal = Terminal(watched.slave, watched.slave)
        self.view = LiveView(terminal, self._get_view, self._ended, lines=self.lines, **options)

    def _get_view(self):
        return self.content

    def _ended(self, error):
        self.error.append(error)
        self.has_ended.set()

    def __enter__(self):
        self.view.start()
        return self

    def __exit__(self, *_):
        self.view.close()


@pytest.fixture(autouse=True)
def terminal_kind(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_view_follows_changes_keys_and_size_and_restores_terminal():
    with Watched() as watched:
        before = watched.mode()
        with Shown(watched) as shown:
            watched.wait_for("■ 3 allocated")
            assert watched.mode() != before
            shown.content = attrs.evolve(shown.content, kubelet_version="9.99")
            shown.view.wake()
            watched.wait_for("kubelet 9.99")
            shown.lines.add(LogLine(0.0, "something happened"))
            watched.wait_for("something happened")
            watched.press("2")
            watched.wait_for("default/train main")
            watched.press("0")
            watched.wait_for("Plugins")
            watched.resize(100, 30)
            shown.view.redraw()
            watched.wait_until(lambda: "q quit" in watched.screen.display[29])
            shown.view.say("waiting for something")
            watched.wait_for("waiting for something")
            watched.press("q")
            assert shown.has_ended.wait(DEADLINE)
        watched.wait_until(lambda: watched.is_restored)
        assert watched.mode() == before
        assert shown.error == [None]


def test_paused_view_is_not_updated():
    with Watched() as watched, Shown(watched) as shown:
        watched.wait_for("kubelet 1.")
        watched.press(" ")
        watched.wait_for("paused")
        shown.content = attrs.evolve(shown.content, kubelet_version="9.99")
        watched.press("?")
        watched.wait_for("PageUp")
        watched.press("x")
        watched.wait_for("Plugins")
        assert "9.99" not in watched.text
        watched.press(" ")
        watched.wait_for("kubelet 9.99")


def test_only_changed_lines_are_written():
    with Watched() as watched, Shown(watched) as shown:
        watched.wait_for("q quit")
        shown.view.say("the first")
        watched.wait_for("the first")
        written = len(watched.output)
        shown.view.say("the second")
        watched.wait_for("the second")
        assert watched.output[written:].count(b"\x1b[2K") == 1


def test_closed_terminal_ends_the_view():
    watched = Watched()
    with Shown(watched) as shown:
        watched.wait_for("q quit")
        watched.hang_up()
        assert shown.has_ended.wait(DEADLINE)
    assert isinstance(shown.error[0], OSError)
    watched.close_slave()


def test_bug_restores_the_terminal_and_is_reported():
    with Watched() as watched:
        before = watched.mode()
        with Shown(watched) as shown:
            watched.wait_for("q quit")
            shown.content = None
            shown.view.wake()
            assert shown.has_ended.wait(DEADLINE)
            watched.wait_until(lambda: watched.is_restored)
        assert watched.mode() == before
        assert isinstance(shown.error[0], AttributeError)


def test_end_restores_terminal_during_blocked_write(monkeypatch):
    """After Ctrl-S a write of the view blocks; the terminal is restored nevertheless."""
    monkeypatch.setattr(tty, "_PATIENCE", 0.05)
    with Watched() as watched:
        before = watched.mode()
        with Shown(watched) as shown:
            watched.wait_for("q quit")
            termios.tcflow(watched.slave, termios.TCOOFF)
            shown.view.redraw()
            blocked = threading.Event()
            monkeypatch.setattr(os, "write", reporting(blocked, os.write))
            assert blocked.wait(DEADLINE)
            shown.view.end()
        watched.wait_until(lambda: watched.is_restored)
        assert watched.mode() == before


def reporting(event, write):
    """Return an ``os.write`` that sets an event first."""

    def reporting_write(descriptor, data):
        event.set()
        return write(descriptor, data)

    return reporting_write


def test_keys_are_read_only_while_entered():
    with Watched() as watched:
        terminal = tty.Terminal(watched.slave, watched.slave)
        watched.press("for the shell\n")
        assert terminal.read() is None
        terminal.enter()
        assert terminal.read() == b"for the shell\n"
        assert terminal.read() is None
        terminal.leave(for_good=True)
        terminal.close()


def test_signal_handler_never_waits_for_output():
    with Watched() as watched:
        shown = Shown(watched)
        with shown.view.terminal._lock:  # stands for a blocked write
            handler = threading.Thread(target=shown.view.redraw)
            handler.start()
            handler.join(DEADLINE)
            assert not handler.is_alive()
        shown.view.close()


@pytest.mark.parametrize("no_color", [True, False])
def test_view_can_omit_colours(no_color):
    with Watched() as watched, Shown(watched, colored=not no_color):
        watched.wait_for("q quit")
    assert (b"\x1b[32m" in watched.output) is not no_color


def test_no_color_variable_disables_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with Watched() as watched, Shown(watched):
        watched.wait_for("q quit")
    assert b"\x1b[32m" not in watched.output


def test_hostile_names_reach_the_terminal_as_text_only():
    with Watched() as watched:
        shown = Shown(watched)
        shown.content = views.hostile()
        with shown:
            for number in range(22):
                shown.lines.add(LogLine(0.0, views.HOSTILE[number % len(views.HOSTILE)]))
            watched.press("2")
            watched.wait_for("Holders")
            watched.press("5")
            watched.wait_for("Events")
    for sequence in (b"\x1b]0;", b"\x07", "\u202e".encode(), b"\x1b[31mred"):
        assert sequence not in watched.output
    assert watched.screen.title == ""


def test_log_lines_are_limited():
    lines = LogLines(most=3)
    for number in range(10):
        lines.add(LogLine(0.0, str(number)))
    assert [line.text for line in lines.latest()] == ["7", "8", "9"]


@pytest.mark.parametrize(
    ("encoding", "glyphs"), [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), ("?", ASCII)]
)
def test_glyphs_depend_on_encoding(encoding, glyphs):
    assert glyphs_for(encoding) is glyphs
