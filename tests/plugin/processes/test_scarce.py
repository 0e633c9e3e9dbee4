"""The program that limits inotify instances before it becomes the command."""

from __future__ import annotations

import errno
import os
import sys

import pytest

from devicemanager.plugin.processes import scarce
from devicemanager.plugin.processes.namespace import NamespaceError


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The steps that the program takes. No process changes."""
    taken: list[object] = []
    monkeypatch.setattr(sys, "argv", ["scarce", "7", "sh", "-c", "true"])
    monkeypatch.setattr(scarce, "_LIMIT", tmp_path / "limit")
    monkeypatch.setattr(scarce, "enter_user", lambda: taken.append("user"))
    monkeypatch.setattr(os, "execvp", lambda *words: taken.append(words))
    return taken


def test_limit_is_written_before_the_command_runs(steps, tmp_path):
    scarce.main()
    assert steps == ["user", ("sh", ["sh", "-c", "true"])]
    assert (tmp_path / "limit").read_text() == "7"


def fail(error):
    def raise_(*_):
        raise error

    return raise_


@pytest.mark.parametrize(
    ("owner", "name", "error", "text"),
    [
        (scarce, "enter_user", NamespaceError("no namespaces"), "no namespaces"),
        (
            scarce,
            "enter_user",
            PermissionError(errno.EPERM, "not permitted"),
            "cannot write {limit} in a user namespace: not permitted",
        ),
        (os, "execvp", FileNotFoundError(errno.ENOENT, "no file"), "cannot run sh: no file"),
    ],
)
def test_failed_step_is_a_one_line_error(
    steps, tmp_path, monkeypatch, capsys, owner, name, error, text
):
    monkeypatch.setattr(owner, name, fail(error))
    with pytest.raises(SystemExit) as ended:
        scarce.main()
    assert ended.value.code == 125
    assert capsys.readouterr().err == text.format(limit=tmp_path / "limit") + "\n"
    assert [each for each in steps if each != "user"] == []
