"""Processes that end together with their parent."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from devicemanager.io.parent import end_with_parent
end_with_parent(int(sys.argv[1]), 7)
print("runs")
"""


def run(parent: int) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, str(parent)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def test_process_continues_while_its_parent_runs() -> None:
    assert run(os.getpid()) == (0, "runs\n")


def test_process_whose_parent_has_ended_exits() -> None:
    # A process has another parent if the one that started it has ended.
    assert run(os.getpid() + 1) == (7, "")
