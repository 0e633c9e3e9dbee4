"""Output of ``run``: lines, and the live view between them."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from types import SimpleNamespace
from unittest import mock

import pytest

from devicemanager.cli import live
from devicemanager.cli.kubelet_log import KubeletLog
from tests.observe.terminal import views
from tests.observe.terminal.watched import DEADLINE, Watched

ARGUMENTS = argparse.Namespace(output="text", plain=False, no_color=False)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with Watched() as watched:
        yield watched


class Program:
    """Signals and errors that ``run`` and its display exchange."""

    def __init__(self, watched, arguments=ARGUMENTS, with_keys=True):
        self.signals = SimpleNamespace(first=None)
        self.failures = []
        self.has_failed = threading.Event()
        self.quit = threading.Event()
        self._stack = contextlib.ExitStack()
        stream = self._stack.enter_context(os.fdopen(os.dup(watched.slave), "w"))
        self._stack.enter_context(contextlib.redirect_stdout(stream))
        keys = self._stack.enter_context(os.fdopen(os.dup(watched.slave)))
        self._stack.enter_context(mock.patch("sys.stdin", keys if with_keys else None))
        self.display = live.display(
            arguments, self.signals, self.quit.set, self._failed, self._stack
        )

    def _failed(self, error):
        self.failures.append(error)
        self.has_failed.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.display.close()
        self._stack.close()


def test_lines_are_printed_before_and_after_the_view(watched):
    with Program(watched) as program:
        program.display.log.say("path", "served at /here")
        watched.wait_for("served at /here")
        program.display.show(lambda: views.small)
        program.display.log.warn("manifest", "a bad file")
        watched.wait_for("manifest: a bad file")
        watched.press("?")
        watched.wait_for("served at /here")
        watched.press("q")
        assert program.quit.wait(DEADLINE)
        program.display.close()
        program.display.log.say("stopped", "it is over")
        watched.wait_for("it is over")
    after = watched.output[watched.output.rindex(b"\x1b[?1049l") :]
    assert b"warning: manifest: a bad file" in after
    assert b"served at /here" not in after  # it is printed above
    assert program.failures == []


def test_view_shows_what_the_command_waits_for(watched):
    with Program(watched) as program:
        program.display.show(lambda: views.small)
        with program.display.waiting("for a plugin"):
            watched.wait_for("waiting for a plugin")
        watched.wait_until(lambda: "waiting" not in watched.text)


def test_bug_in_the_view_loses_no_line(watched):
    def broken():
        raise ZeroDivisionError("oops")

    with Program(watched) as program:
        program.display.show(lambda: broken)
        watched.wait_for("live view failed: ZeroDivisionError('oops')")
        program.display.log.say("more", "the next line")
        watched.wait_for("the next line")
    assert program.failures == [] and not program.quit.is_set()


def test_first_signal_restores_the_terminal_at_once(watched):
    with Program(watched) as program:
        program.display.show(lambda: views.small)
        watched.wait_for("q quit")
        program.signals.first()
        watched.wait_until(lambda: watched.is_restored)


@pytest.mark.parametrize("with_keys", [True, False])
def test_closed_terminal_is_reported(watched, with_keys):
    with Program(watched, with_keys=with_keys) as program:
        program.display.show(lambda: views.small)
        watched.wait_for("q quit")
        watched.hang_up()
        assert program.has_failed.wait(DEADLINE)
    assert isinstance(program.failures[0], OSError)


@pytest.mark.parametrize("changed", [{"plain": True}, {"output": "json"}])
def test_plain_and_json_print_lines(watched, changed):
    with Program(watched, argparse.Namespace(**{**vars(ARGUMENTS), **changed})) as program:
        program.display.show(lambda: views.small)
        program.display.log.say("path", "served at /here")
        watched.wait_for("served at /here")
    assert b"\x1b" not in watched.output


def test_long_wait_prints_a_line(monkeypatch):
    monkeypatch.setattr(live, "_LONG", 0.0)
    lines, reported = [], threading.Event()

    def write(line):
        lines.append(line)
        reported.set()

    with live.Display(KubeletLog(False, write)).waiting("for a plugin"):
        assert reported.wait(DEADLINE)
    assert lines[0].endswith(" waiting for a plugin\n")
