"""The Go package in ``clients/go``: its tests, and those of the example plugin."""

from __future__ import annotations

import sys

from tests.conformance.matrix import PLUGIN
from tests.interop.gobuild import go_test
from tools.go_client import FILE, source

MODULE = FILE.parent


def test_generated_types_are_up_to_date() -> None:
    assert FILE.read_text() == source(), "run python -m tools.go_client"


def test_tests_of_package_pass() -> None:
    done = go_test(MODULE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_example_tests_find_planted_bug() -> None:
    example = MODULE / "example"
    correct = go_test(example)
    assert correct.returncode == 0, correct.stdout + correct.stderr
    broken = go_test(example, "-run", "TestChangesAfterRestarts", PLANT_BUG="1")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "waited 10 s for 3 allocatable devices of vendor.com/gpu" in broken.stdout
    assert "what did happen:" in broken.stdout  # the events, once
    assert "the mock kubelet saw:" not in broken.stdout


def test_failed_check_is_failed_subtest() -> None:
    root = MODULE.parents[1]
    plugin = (
        f'PYTHONPATH="{root}" exec "{sys.executable}" "{PLUGIN}" --switch accept-unknown --dir "$0"'
    )
    done = go_test(MODULE, "-run", "TestCheckFails", BROKEN_PLUGIN=plugin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--- FAIL: TestCheckFails/A02" in done.stdout
    assert "A02 fail: Allocate accepted an unknown ID" in done.stdout


def test_missing_command_is_named() -> None:
    done = go_test(MODULE, "-run", "TestErrors", DEVICEMANAGER="/nowhere/devicemanager")
    assert done.returncode == 1
    wanted = "pip install '.[control]', or '.[control,claims]' for DRA drivers, or name the "
    assert wanted in done.stdout


def test_unknown_option_is_reported() -> None:
    done = go_test(MODULE, "-run", "TestUnknownOption", UNKNOWN_OPTION="1")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-option" in done.stdout
    assert "no events of the mock kubelet" not in done.stdout
