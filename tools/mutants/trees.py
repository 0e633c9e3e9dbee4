"""Copies of the repository to put mutants into, and pytest in them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

__all__ = ["Tree"]

_COPIED = (
    "devicemanager", "checkpoint", "podresources", "protos",
    "tests", "tools", "docs", "deploy", "ci", "examples",
)  # fmt: skip
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
_START_SECONDS = 20.0
"""What a run may take besides its tests."""


class Tree:
    """A copy of the repository at ``path``. One process at a time."""

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
        # The tests look for the vectors beside the repository.
        beside, shared = path.parent / "shared", repository.parent / "shared"
        if shared.is_dir() and not beside.is_symlink():
            beside.symlink_to(shared)

    def put(self, file: str, source: str) -> None:
        """Replace a module. Python would take its compiled form for up to date if the size
        and the second are the same."""
        target = self.path / file
        target.write_text(source)
        Path(cache_from_source(str(target))).unlink(missing_ok=True)

    def pytest(
        self, arguments: list[str], seconds: float, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str] | None:
        """Run pytest here; None if it took ``seconds`` longer than a start takes. All
        processes that the tests started are killed at the end."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        # What another pytest handed down, if this runs in a test, is not for this one.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "COV"))
        }
        # First of all on the path: the environment has another copy of the packages. What is
        # compiled is kept, or each run would compile everything anew.
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
