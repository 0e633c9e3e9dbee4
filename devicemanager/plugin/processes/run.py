"""One start of a command under a supervisor, seen from the program that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from devicemanager.plugin.processes.namespace import Bind
from devicemanager.plugin.processes.plan import encode
from devicemanager.plugin.processes.supervisor import Supervision

__all__ = ["SupervisedRun"]

_LONGEST_LINE = 1 << 16
_STOP_SECONDS = 10.0

# By its path: neither the command's directory nor its environment may hide the supervisor.
_SUPERVISE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); "
    "from devicemanager.plugin.processes.__main__ import main; main()"
)


class SupervisedRun:
    """One start of the command, under a supervisor."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        binds: tuple[Bind, ...],
        output: deque[str] | None,
    ) -> None:
        """What the command prints goes into ``output`` line by line; None: to where our own
        does."""
        self._command = command
        self._env = env
        self._cwd = cwd
        self._binds = binds
        self._output = output
        self.pid = 0
        self.status: int | None = None
        self._done = threading.Event()
        self._lifeline: IO[bytes] | None = None

    def start(self, ended: Callable[[], None]) -> None:
        """Start the command and the thread that reads what it prints."""
        life_read, lifeline = os.pipe()
        # As a file: whoever closes it, and however often, closes no descriptor of somebody else.
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)
        report_read, report_write = os.pipe()
        plan = Supervision(self._command, self._binds, life_read, report_write)
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _SUPERVISE, encode(plan)],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=None if self._output is None else subprocess.PIPE,
                stderr=None if self._output is None else subprocess.STDOUT,
                pass_fds=(life_read, report_write),
            )
        finally:
            os.close(life_read)
            os.close(report_write)
        with os.fdopen(report_read) as report:
            line = report.readline()
        # Without a line the supervisor itself could not start; it has said why.
        self.pid = int(json.loads(line)["pid"]) if line else process.pid
        threading.Thread(
            target=self._read, args=(process, ended), name=f"output of {self.pid}", daemon=True
        ).start()

    def end(self) -> None:
        """End the command and what it started, and wait."""
        self.terminate()
        if self.wait(_STOP_SECONDS) is None:
            self._cut()
            self.wait(_STOP_SECONDS)

    def terminate(self) -> None:
        """SIGTERM, to a paused command as well."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """To the command's process group; nothing happens if it has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, timeout: float) -> int | None:
        """The exit status, None if it runs on."""
        return self.status if self._done.wait(timeout) else None

    def _cut(self) -> None:
        """Close the lifeline: everything is killed."""
        if self._lifeline is not None:
            self._lifeline.close()

    def _read(self, process: subprocess.Popen[bytes], ended: Callable[[], None]) -> None:
        if process.stdout is not None and self._output is not None:
            with process.stdout as stream:
                while line := stream.readline(_LONGEST_LINE):
                    self._output.append(line.decode(errors="replace").rstrip("\n"))
        self.status = process.wait()
        self._cut()
        self._done.set()
        ended()
