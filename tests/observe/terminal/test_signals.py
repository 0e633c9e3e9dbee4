"""Programs with a live view on a separate terminal, under a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from devicemanager.observe.terminal.session import is_live_terminal
from tests.observe.terminal.watched import DEADLINE, Watched
from tests.paths import ROOT

HERE = Path(__file__).parent
PROGRAM = [sys.executable, "-m", "tests.observe.terminal.program"]
COMMAND = [str(Path(sys.executable).with_name("devicemanager"))]


@contextmanager
def under_a_shell(
    watched: Watched, command: Sequence[str], **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, HERE / "shell.py", *command],
        stdin=watched.slave,
        stdout=watched.slave,
        stderr=watched.slave,
        start_new_session=True,
        cwd=ROOT,
        env={**environment, "TERM": "xterm-256color", **variables},
    ) as shell:
        try:
            yield shell
        finally:
            watched.hang_up()
            watched.close_slave()
            try:
                shell.wait(DEADLINE)
            finally:
                shell.kill()


@pytest.fixture
def root() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dm-") as path:
        yield path


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def job_of(watched: Watched) -> int:
    """Return the process in the foreground."""
    return os.tcgetpgrp(watched.master)


def test_run_on_a_terminal_from_start_to_ctrl_c(root):
    """Resize, Ctrl-Z and `fg` in between."""
    run = [*COMMAND, "run", "--root", root, "--simulate", "vendor.com/gpu=4"]
    with Watched() as watched:
        before = watched.mode()
        with under_a_shell(watched, run):
            watched.wait_for("□ 4 free")
            assert watched.mode() != before
            watched.resize(100, 30)
            watched.wait_until(lambda: "q quit" in watched.screen.display[29])
            watched.press("\x1a")
            watched.wait_for("STOPPED")
            assert watched.is_restored
            assert watched.mode() == before
            watched.press("fg\n")
            watched.wait_until(lambda: not watched.is_restored)
            watched.wait_for("gpu.sock")
            watched.press("\x03")
            watched.wait_for("ENDED 0")
            assert watched.is_restored
            assert watched.mode() == before
            assert "stopped: kubelet stopped" in watched.text


def test_run_with_plain_prints_lines(root):
    run = [*COMMAND, "run", "--plain", "--root", root]
    with Watched(width=200) as watched, under_a_shell(watched, run):
        watched.wait_for("ready; Ctrl-C stops")
        assert b"\x1b" not in watched.output
        watched.press("\x03")
        watched.wait_for("ENDED 0")


def test_run_exits_when_its_terminal_closes(root):
    run = [*COMMAND, "run", "--root", root]
    with Watched() as watched:
        with under_a_shell(watched, run):
            watched.wait_for("none has registered")
            job = job_of(watched)
        limit = time.monotonic() + DEADLINE
        while not is_gone(job):
            assert time.monotonic() < limit
            time.sleep(0.02)
    assert not (Path(root) / "device-plugins" / "kubelet.sock").exists()


def test_sigquit_restores_the_terminal():
    with Watched() as watched:
        before = watched.mode()
        with under_a_shell(watched, PROGRAM):
            watched.wait_for("a test")
            watched.press("\x1c?")  # Ctrl-\ sends no signal meanwhile
            watched.wait_for("PageUp")
            os.killpg(job_of(watched), signal.SIGQUIT)
            watched.wait_for(f"ENDED {-signal.SIGQUIT}")
            assert watched.is_restored
            assert watched.mode() == before


def test_screen_is_redrawn_after_sigstop():
    with Watched() as watched, under_a_shell(watched, PROGRAM):
        watched.wait_for("a test")
        os.killpg(job_of(watched), signal.SIGSTOP)
        watched.wait_for("STOPPED")
        watched.press("fg\n")
        # The shell may have shown the normal screen and restored its own mode meanwhile.
        watched.wait_until(lambda: watched.output.count(b"\x1b[?1049h") == 2)
        watched.wait_until(lambda: "STOPPED" not in watched.text and "a test" in watched.text)


def test_background_process_does_not_use_the_terminal():
    with Watched() as watched, under_a_shell(watched, PROGRAM):
        watched.wait_for("a test")
        job = job_of(watched)
        watched.press("\x1a")
        watched.wait_for("STOPPED")
        written = len(watched.output)
        os.killpg(job, signal.SIGCONT)  # as `bg` does
        os.killpg(job, signal.SIGWINCH)
        watched.press("fg\n")
        watched.wait_until(lambda: not watched.is_restored)
        assert b"\x1b" not in watched.output[written : watched.output.rindex(b"\x1b[?1049h")]


@pytest.mark.parametrize(("kind", "is_live"), [("xterm", True), ("dumb", False), ("", False)])
def test_dumb_terminal_is_not_live(kind, is_live, monkeypatch):
    monkeypatch.setenv("TERM", kind)
    with Watched() as watched, os.fdopen(os.dup(watched.slave), "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert is_live_terminal() is is_live
    with (HERE / "shell.py").open() as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert not is_live_terminal()


def test_demo_shows_nodes_until_quit() -> None:
    command = [*COMMAND, "join", "--demo", "--nodes", "3", "--job-duration", "10ms"]
    with Watched(width=120) as watched, under_a_shell(watched, command):
        watched.wait_for("3 Ready")
        watched.wait_for("virtual-2")
        watched.wait_for("  40 succeeded")
        watched.wait_for("0 allocated of 24 allocatable")
        watched.press("q")
        watched.wait_for("leaving: deleting the nodes")
        watched.wait_for("ENDED 0")
        assert watched.is_restored
