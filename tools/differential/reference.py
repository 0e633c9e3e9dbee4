"""The Go program as a process: it runs scenarios in the real device manager."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

Answer = Mapping[str, Any]
"""Results: ``runs``, ``config_error`` or ``failed``.

A run has ``steps``, and ``panic`` if it ended with one.
"""

PLUGIN_DIR: Final = Path("/var/lib/kubelet/device-plugins")
"""Plugin directory that is compiled into the real device manager."""

# A new process, because only a single-threaded process can enter a user namespace.
_LAUNCH: Final = """
import os, sys
from pathlib import Path
from devicemanager.plugin.processes.namespace import Bind, NamespaceError, enter
try:
    enter([Bind(Path(sys.argv[1]), Path(sys.argv[2]))])
except NamespaceError as error:
    sys.exit(f"{error}")
os.execv(sys.argv[3], sys.argv[3:])
"""

_MOST_RUNS: Final = 600
"""Number of runs after which the process is replaced."""


class ReferenceError(Exception):  # the reference's, not Python's
    """The program exited without a result."""


def launch(program: Path, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the program with ``directory`` mounted as the kubelet's plugin directory."""
    command = [sys.executable, "-c", _LAUNCH, str(directory), str(PLUGIN_DIR), str(program)]
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GOMAXPROCS": "2"},
    )


class Reference:
    """Process of the Go program. Its plugin directory is in memory, which is faster."""

    def __init__(self, program: Path) -> None:
        memory = Path("/dev/shm")
        self._directory = Path(
            tempfile.mkdtemp(prefix="dm-", dir=memory if os.access(memory, os.W_OK) else None)
        )
        self._program = program
        self._runs = 0
        self._process = self._launch()

    def ask(self, scenario: Mapping[str, Any], runs: int) -> Answer:
        """Run a scenario ``runs`` times. Raises ReferenceError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({**scenario, "runs": runs}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            words, self._process = self._last_words(), self._launch()
            raise ReferenceError(f"the reference exited: {words}")
        answer: Answer = json.loads(self._plain(line))
        self._runs += runs
        if self._runs >= _MOST_RUNS or any(run.get("panic") for run in answer.get("runs") or ()):
            self._runs = 0
            # A panic leaves locks and goroutines behind, and other scenarios leave a few
            # goroutines. With thousands of goroutines, finding those of the kubelet's streams takes
            # too long.
            self._end()
            self._process = self._launch()
        return answer

    def _launch(self) -> subprocess.Popen[str]:
        return launch(self._program, self._directory)

    def _plain(self, line: str) -> str:
        """Return a result without the directory, which error messages contain."""
        return line.replace(f"{PLUGIN_DIR}/", "DIR/")

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines: Sequence[str] = self._process.stderr.read().splitlines()
        return " | ".join(lines[:3]) or f"status {self._process.wait()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)
