"""Copies of the repository in which mutants are tried, and pytest runs in these copies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

_COPIED = (
    "devicemanager", "checkpoint", "podresources", "protos",
    "tests", "tools", "docs", "deploy", "ci", "examples", "clients",
)  # fmt: skip
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
_START_SECONDS = 20.0
"""Time limit for the start of a run in seconds, in addition to the limit for its tests."""


class Tree:
    """Copy of the repository at ``path``. Only one process at a time may use it."""

    def __init__(self, repository: Path, path: Path) -> None:
        self.path = path
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        for name in _COPIED:
            if (repository / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(repository / name, path / name, symlinks=True, ignore=ignored)
        for name in _FILES:
            if (repository / name).exists():
                shutil.copy(repository / name, path / name)
        # Tests expect the recorded vectors in a directory beside the repository.
        beside, shared = path.parent / "shared", repository.parent / "shared"
        if shared.is_dir() and not beside.is_symlink():
            beside.symlink_to(shared)

    def put(self, file: str, source: str) -> None:
        """Replace the source of a module and remove its bytecode file.

        Python compares only the size and the time in seconds of the source, so it could run the
        old bytecode.
        """
        target = self.path / file
        target.write_text(source)
        Path(cache_from_source(str(target))).unlink(missing_ok=True)

    def pytest(
        self, arguments: list[str], seconds: float, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str] | None:
        """Run pytest in this copy. Return None if it exceeds ``seconds`` plus the time for a start.

        At the end, all processes that the tests have started are killed.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        # Remove settings of an outer pytest, which has started this code in a test.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "COV"))
        }
        # The environment has another copy of the packages, so this copy must come first on the
        # path. Bytecode files are kept: otherwise each run would compile everything.
        ours = {"PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "", "CI": "1"}
        full = inherited | ours | (environment or {})
        with subprocess.Popen(
            command,
            cwd=self.path,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=_START_SECONDS + seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _kill_group(process.pid)
        return subprocess.CompletedProcess(command, process.returncode, output)


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
