"""`make setup`, with interpreters that only pretend: nothing is installed here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import WIRE_ROOMS
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
    # The tests may run under make themselves, which hands its own ways down.
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


def test_an_old_python_is_rejected_before_anything_is_made(checkout):
    done = setup(checkout, interpreter(checkout / "old", 3, 10, 13))
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "needs Python 3.11 or later, this is 3.10.13"
    assert not (checkout / ".venv").exists()


def test_it_is_set_up_once(checkout):
    python = interpreter(checkout / "new", 3, 12, 1)
    assert setup(checkout, python).stdout == "setting up .venv\n"
    assert (checkout / ".venv/.ready").exists()
    assert setup(checkout, python).stdout == ""


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("version", [(3, 10, 13), None])
def test_an_environment_that_does_not_work_here_is_made_anew(checkout, version, ready):
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


def test_an_environment_of_another_python_is_made_anew_when_it_is_renewed(checkout):
    setup(checkout, interpreter(checkout / "new", 3, 12, 1))
    (checkout / ".venv/leftover").touch()
    same = interpreter(checkout / "same", 3, 12, 9)
    (checkout / ".venv/.ready").unlink()
    setup(checkout, same)
    assert (checkout / ".venv/leftover").exists()
    (checkout / ".venv/.ready").unlink()
    setup(checkout, interpreter(checkout / "newer", 3, 13, 0))
    assert not (checkout / ".venv/leftover").exists()


def test_the_older_lines_are_given_every_room_that_is_marked_wire():
    makefile = (ROOT / "Makefile").read_text()
    (rooms,) = re.findall(r"^WIRE := (.*)$", makefile, re.MULTILINE)
    assert rooms.split() == sorted(f"tests/{room}" for room in WIRE_ROOMS)
    marked = [path for path in (ROOT / "tests").rglob("*.py") if "mark.wire" in path.read_text()]
    assert marked == [Path(__file__)]
