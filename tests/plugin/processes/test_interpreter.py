"""Why a command cannot be started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from devicemanager.plugin.processes.interpreter import why_not_started
from devicemanager.plugin.processes.supervisor import CANNOT_START

EXEC = [sys.executable, "-m", "devicemanager", "exec"]
NOT_FOUND = FileNotFoundError(2, "No such file or directory")


def started(*command: object) -> OSError:
    with pytest.raises(OSError) as raised:
        subprocess.run([str(each) for each in command], check=False)
    assert not isinstance(raised.value, PermissionError)
    return raised.value


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def test_missing_interpreter_of_a_script_is_named(tmp_path: Path) -> None:
    script = executable(tmp_path / "plugin", b"#! /no/such/python3 -u\nprint()\n")
    assert why_not_started(str(script), started(script)) == (
        "it needs /no/such/python3, which does not exist"
    )


def test_missing_loader_of_a_program_is_named(tmp_path: Path) -> None:
    content = Path("/bin/true").resolve().read_bytes()
    loader = re.search(rb"/lib[^\0]*/ld-[^\0]+", content)
    if loader is None:
        pytest.skip("/bin/true needs no loader on this host")
    missing = loader[0].replace(b"/lib", b"/bil")
    program = executable(tmp_path / "plugin", content.replace(loader[0], missing))
    assert why_not_started(str(program), started(program)) == (
        f"it needs {missing.decode()}, which does not exist"
    )


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    missing = str(tmp_path / "plugin")
    error = started(missing)
    assert why_not_started(missing, error) == "No such file or directory"
    assert why_not_started(missing, error, is_image=True) == (
        "No such file or directory in the root file system"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"#!", b"#!\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100, b"#!/bin/sh\n"],
)
def test_other_files_explain_nothing(tmp_path: Path, content: bytes) -> None:
    path = executable(tmp_path / "plugin", content)
    assert why_not_started(str(path), NOT_FOUND) == "No such file or directory"
    assert why_not_started(str(path), PermissionError(13, "Permission denied")) == (
        "Permission denied"
    )


def test_exec_prints_the_reason(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    script = executable(tmp_path / "plugin", b"#!/no/such/python3\n")
    done = subprocess.run(
        [*EXEC, "--root", str(tmp_path), "--", str(script)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == CANNOT_START
    assert done.stderr == (
        f"devicemanager: {script}: cannot be started: it needs /no/such/python3, which does not "
        "exist\n"
    )
