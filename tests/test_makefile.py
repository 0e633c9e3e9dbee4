"""`make setup` with fake interpreters, so that nothing is installed; rooms of the suite."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MEASURED_ROOMS, TESTS, WIRE_ROOMS
from tests.paths import ROOT

INTERPRETER = """#!/bin/sh
case "$1 $2" in
"-c "*) exec {real} -c 'import sys; sys.version_info = ({version}); exec(sys.argv[1])' "$2" ;;
"-m venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip") ;;
*) exit 9 ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "constraints").mkdir()
    for name in ["Makefile", "pyproject.toml", "constraints/dev.txt"]:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def interpreter(path, *version):
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = ", ".join(map(str, version))
    path.write_text(INTERPRETER.format(real=sys.executable, version=numbers))
    path.chmod(0o755)
    return path


def setup(checkout, python):
    # If make runs the tests, these variables would pass its options on to this make.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    env.pop("MFLAGS", None)
    return subprocess.run(
        ["make", "setup", f"PYTHON={python}"],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_old_python_is_rejected_before_setup(checkout):
    done = setup(checkout, interpreter(checkout / "old", 3, 10, 13))
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "needs Python 3.11 or later, this is 3.10.13"
    assert not (checkout / ".venv").exists()


def test_setup_runs_once(checkout):
    python = interpreter(checkout / "new", 3, 12, 1)
    assert setup(checkout, python).stdout == "setting up .venv\n"
    assert (checkout / ".venv/.ready").exists()
    assert setup(checkout, python).stdout == ""


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("version", [(3, 10, 13), None])
def test_broken_environment_is_replaced(checkout, version, ready):
    leftover = checkout / ".venv/leftover"
    if version:
        interpreter(checkout / ".venv/bin/python", *version)
    else:
        (checkout / ".venv/bin").mkdir(parents=True)
        (checkout / ".venv/bin/python").symlink_to("/nowhere/python3.11")
    leftover.touch()
    if ready:
        (checkout / ".venv/.ready").touch()
    done = setup(checkout, interpreter(checkout / "new", 3, 11, 7))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "setting up .venv\n"
    assert not leftover.exists()


def test_environment_of_another_python_version_is_replaced(checkout):
    setup(checkout, interpreter(checkout / "new", 3, 12, 1))
    (checkout / ".venv/leftover").touch()
    same_minor = interpreter(checkout / "same", 3, 12, 9)
    (checkout / ".venv/.ready").unlink()
    setup(checkout, same_minor)
    assert (checkout / ".venv/leftover").exists()
    (checkout / ".venv/.ready").unlink()
    setup(checkout, interpreter(checkout / "newer", 3, 13, 0))
    assert not (checkout / ".venv/leftover").exists()


def test_older_libraries_run_every_room_marked_wire():
    makefile = (ROOT / "Makefile").read_text()
    (rooms,) = re.findall(r"^WIRE := (.*)$", makefile, re.MULTILINE)
    assert rooms.split() == sorted(f"tests/{room}" for room in WIRE_ROOMS)
    marked = [path for path in TESTS.rglob("*.py") if "mark.wire" in path.read_text()]
    assert marked == [Path(__file__)]


def test_rooms_of_suite_exist():
    """A room that has moved would lose its marker, or the coverage of its processes."""
    assert [room for room in (*WIRE_ROOMS, *MEASURED_ROOMS) if not (TESTS / room).is_dir()] == []
