"""A shell script that controls the kubelet with curl finds a planted bug in a plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("planted_bug.sh")


@pytest.mark.parametrize(
    ("options", "status", "output"),
    [
        ([], 0, "all changes arrived"),
        (["-deaf"], 1, "no 3 healthy devices after device-0 broke, "),
    ],
    ids=["correct", "deaf"],
)
def test_curl_script_finds_planted_bug(
    go_bin: Path, options: list[str], status: int, output: str
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [SCRIPT, go_bin / "conformant", *options],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert output in done.stdout
