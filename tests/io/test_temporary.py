"""Temporary directories with paths short enough for sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from devicemanager.io import temporary
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory


@pytest.mark.parametrize(("length", "is_used"), [(30, True), (31, False)])
def test_short_tmpdir_is_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch, length: int, is_used: bool
) -> None:
    chosen = directory / ("d" * (length - len(str(directory)) - 1))
    chosen.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(chosen))
    made = short_directory()
    try:
        assert made.parent == (chosen if is_used else Path("/tmp"))
        assert made.name.startswith("dm-") and made.is_dir()
        assert made.stat().st_mode & 0o777 == 0o700
    finally:
        made.rmdir()


def test_missing_tmpdir_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/none")
    with pytest.raises(NoDirectory) as raised:
        short_directory()
    assert str(raised.value) == (
        "cannot make a temporary directory in /tmp/none: No such file or directory"
    )
    assert ADVICE == "set TMPDIR to a directory whose path has at most 30 bytes"


@pytest.mark.parametrize(
    ("tmpdir", "has_memory", "expected"),
    [
        ("/tmp", True, "memory"),
        ("/tmp", False, "/tmp"),
        ("/" + "d" * 40, True, "memory"),
        (None, True, "chosen"),
    ],
)
def test_memory_replaces_only_the_default(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmpdir: str | None,
    has_memory: bool,
    expected: str,
) -> None:
    memory, chosen = directory / "memory", directory / "chosen"
    chosen.mkdir()
    if has_memory:
        memory.mkdir()
    monkeypatch.setattr(temporary, "_MEMORY", str(memory))
    monkeypatch.setattr(tempfile, "tempdir", tmpdir or str(chosen))
    made = short_directory(in_memory=True)
    made.rmdir()
    assert made.parent == directory / expected
    default = short_directory()
    default.rmdir()
    assert default.parent != memory


@pytest.mark.parametrize("denied", [os.W_OK, os.X_OK])
def test_memory_must_be_writable_and_enterable(
    directory: Path, monkeypatch: pytest.MonkeyPatch, denied: int
) -> None:
    monkeypatch.setattr(temporary, "_MEMORY", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & denied)
    made = short_directory(in_memory=True)
    made.rmdir()
    assert made.parent == Path("/tmp")
