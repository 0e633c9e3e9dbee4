"""Progress bars and lines of long work."""

from __future__ import annotations

import io
import os

import pytest

from devicemanager.observe.terminal.progress import Work
from tests.observe.terminal.watched import Watched
from tests.timing import Clock


def test_progress_without_terminal_prints_periodic_lines():
    stream, clock = io.StringIO(), Clock()
    with Work("check", 90, stream=stream, now=clock) as work:
        for _ in range(90):
            clock.now += 1
            work.advance()
    assert stream.getvalue() == (
        "check: 30 of 90 after 30 s\ncheck: 60 of 90 after 60 s\ncheck: 90 of 90 after 90 s\n"
    )


def test_note_is_printed_at_once():
    stream = io.StringIO()
    with Work("check", 90, stream=stream, now=Clock()) as work:
        work.note("nothing came yet")
    assert stream.getvalue() == "check: nothing came yet\n"


def test_note_on_a_terminal_is_in_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with Watched() as watched, os.fdopen(os.dup(watched.slave), "w") as stream:
        with Work("check", 4, stream=stream, now=Clock()) as work:
            work.note("nothing came yet")
            watched.wait_for("nothing came yet")
        watched.wait_until(lambda: not watched.text.strip())


def test_short_work_prints_nothing():
    stream = io.StringIO()
    with Work("check", stream=stream) as work:
        assert list(work.tracked("abc")) == ["a", "b", "c"]
    assert stream.getvalue() == ""


def test_progress_without_standard_error_does_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    clock = Clock()
    with Work("check", now=clock) as work:
        clock.now = 100
        work.advance()
        work.note("nothing came yet")


@pytest.mark.parametrize("doing", ["B03 lists", "[red]\x1b[2J"])
def test_progress_on_terminal_is_a_transient_bar(doing, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    with Watched() as watched:
        with os.fdopen(os.dup(watched.slave), "w") as stream:
            with Work("check", 4, stream=stream, now=clock) as work:
                work.begin("the first")
                clock.now = 1
                work.begin(doing)
                watched.wait_for("1/4")
                watched.wait_for(doing.replace("\x1b", "\\x1b")[:9])
            watched.wait_until(lambda: not watched.text.strip())
        assert b"\x1b[?25l" not in watched.output  # the cursor was never hidden


def test_printed_line_appears_above_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    with Watched() as watched, os.fdopen(os.dup(watched.slave), "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        with Work("check", 2, stream=stream, now=clock) as work:
            work.print("A01 pass", "green")
            clock.now = 1
            work.advance()
            watched.wait_for("1/2")
            assert watched.screen.display[0].startswith("A01 pass ")
            assert watched.screen.display[1].startswith("check ")
        watched.wait_until(lambda: watched.text.split() == ["A01", "pass"])


def test_print_without_terminal_prints_plain_lines(capsys):
    with Work("check", 2) as work:
        work.print("A01 [red]pass[/]", "green")
    assert capsys.readouterr().out == "A01 [red]pass[/]\n"
