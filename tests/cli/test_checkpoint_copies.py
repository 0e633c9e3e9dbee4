"""Files that replace or copy a checkpoint."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from devicemanager.cli.checkpoint_writing import _Like, _print


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the owner of a file")
def test_copy_has_the_owner_and_the_mode_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    file.touch()
    os.chown(file, 1234, 1235)
    file.chmod(0o640)
    descriptor = _Like(file.stat()).create(str(tmp_path / "copy"))
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1234, 1235, 0o640)


def test_copy_has_the_mode_of_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: int) -> None:
        raise PermissionError

    file = tmp_path / "checkpoint"
    file.touch()
    file.chmod(0o604)
    monkeypatch.setattr(os, "fchown", forbidden)
    descriptor = _Like(file.stat()).create(str(tmp_path / "copy"))
    os.close(descriptor)
    assert (tmp_path / "copy").stat().st_mode & 0o7777 == 0o604


def test_bytes_are_printed_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    binary = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(binary, encoding="ascii"))
    _print(b"\xc3\xbc\xff\n")
    sys.stdout.flush()
    assert binary.getvalue() == b"\xc3\xbc\xff\n"


def test_replaced_output_without_bytes_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    _print(b"\xc3\xbc\n")
    assert text.getvalue() == "\u00fc\n"
