"""The Go package: its own tests, and a test suite of a plugin's author that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.matrix import PLUGIN
from tests.interop import builds, gobuild
from tools.go_client import FILE, source

MODULE = FILE.parent


def go_test(directory: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    command = Path(sys.executable).with_name("devicemanager")
    done = subprocess.run(
        ["go", "test", "-count=1", *options, "./..."],
        cwd=directory,
        env={**os.environ, "GOTOOLCHAIN": "local", "DEVICEMANAGER": str(command), **env},
        capture_output=True,
        text=True,
    )
    if done.returncode and "FAIL" not in done.stdout:
        reason = gobuild.explain(done.stderr)
        if isinstance(reason, builds.Unavailable):
            pytest.skip(f"no Go modules: {reason}")
    return done


def test_the_types_are_fresh() -> None:
    assert FILE.read_text() == source(), "run python -m tools.go_client"


def test_its_own_tests() -> None:
    done = go_test(MODULE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_plugin_author_finds_a_planted_bug() -> None:
    example = MODULE / "example"
    right = go_test(example)
    assert right.returncode == 0, right.stdout + right.stderr
    broken = go_test(example, "-run", "TestChangesAfterRestarts", PLANT_BUG="1")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "waited 10 s for 3 allocatable devices of vendor.com/gpu" in broken.stdout
    assert "the mock kubelet saw:" in broken.stdout


def test_a_check_that_fails_is_a_subtest_that_fails() -> None:
    root = MODULE.parents[1]
    plugin = (
        f'PYTHONPATH="{root}" exec "{sys.executable}" "{PLUGIN}" --switch accept-unknown --dir "$0"'
    )
    done = go_test(MODULE, "-run", "TestCheckFails", BROKEN_PLUGIN=plugin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--- FAIL: TestCheckFails/A02" in done.stdout
    assert "seen:      Allocate accepted an unknown ID" in done.stdout


def test_without_the_command() -> None:
    done = go_test(MODULE, "-run", "TestErrors", DEVICEMANAGER="/nowhere/devicemanager")
    assert done.returncode == 1
    assert "pip install '.[control]', or name the command in DEVICEMANAGER" in done.stdout


def test_an_option_that_there_is_not() -> None:
    done = go_test(MODULE, "-run", "TestUnknownOption", UNKNOWN_OPTION="1")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-option" in done.stdout
    assert "no events of the mock kubelet" not in done.stdout
