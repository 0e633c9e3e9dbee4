"""Start a supervised command, signal it, wait for it, and compute pauses between restarts."""

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
from devicemanager.plugin.processes.supervisor import Supervision

__all__ = ["CrashLoopBackOff", "SupervisedRun"]

_LONGEST_LINE = 1 << 16
_STOP_SECONDS = 10.0

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
"""Pause before the second restart, and longest pause before a restart, in seconds
(``backOffPeriod`` and ``MaxContainerBackOff``, pkg/kubelet/kubelet.go, v1.32)."""
_RESET_SECONDS = 2 * _LONGEST_PAUSE
"""A process that ran for more than this number of seconds restarts without a pause."""

# The supervisor finds the package by path, because the command's working directory and PYTHONPATH
# could hide it.
_SUPERVISE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r}); "
    "from devicemanager.plugin.processes.__main__ import main; main()"
)


class SupervisedRun:
    """One run of a command under a supervisor process."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        binds: tuple[Bind, ...],
        output: deque[str] | None,
    ) -> None:
        """Prepare a run without starting it.

        ``output``: queue for the lines that the command prints; if None, the command inherits
        standard output and error.
        """
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
        """Start the command, and a thread that reads its output.

        The thread calls ``ended`` after the command and its supervisor have exited.
        """
        life_read, lifeline = os.pipe()
        # Use a file object: closing a descriptor twice could close an unrelated file.
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)
        report_read, report_write = os.pipe()
        plan = Supervision(self._command, self._binds, life_read, report_write)
        try:
            # The supervisor inherits two descriptors and nothing else of this program.
            process = subprocess.Popen(
                [sys.executable, "-c", _SUPERVISE, plan.encode()],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=None if self._output is None else subprocess.PIPE,
                stderr=None if self._output is None else subprocess.STDOUT,
                pass_fds=(life_read, report_write),
            )
        finally:
            # Close the supervisor's ends: with copies in this process, the pipes would never end.
            os.close(life_read)
            os.close(report_write)
        with os.fdopen(report_read) as report:
            line = report.readline()
        # Without a line, the supervisor could not start and has printed the reason.
        self.pid = int(json.loads(line)["pid"]) if line else process.pid
        # A daemon thread: reading output must not prevent this program from exiting.
        threading.Thread(
            target=self._read, args=(process, ended), name=f"output of {self.pid}", daemon=True
        ).start()

    def end(self, timeout: float = _STOP_SECONDS) -> None:
        """End the command and its descendants, and wait until they have exited.

        Send SIGTERM. If the command still runs after ``timeout`` seconds, kill it and all its
        descendants.
        """
        self.terminate()
        if self.wait(timeout) is None:
            # SIGTERM was ignored, or the supervisor hangs.
            self._cut_lifeline()
            self.wait(_STOP_SECONDS)

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT.

        A command that SIGSTOP has paused reacts to SIGTERM only after SIGCONT.
        """
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group, if the command still runs."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, timeout: float) -> int | None:
        """Wait until the command has exited, and return its exit status.

        Return None after ``timeout`` seconds.
        """
        return self.status if self._done.wait(timeout) else None

    def _cut_lifeline(self) -> None:
        """Close the lifeline, so that the supervisor kills the command and its descendants."""
        if self._lifeline is not None:
            self._lifeline.close()

    def _read(self, process: subprocess.Popen[bytes], ended: Callable[[], None]) -> None:
        if process.stdout is not None and self._output is not None:
            with process.stdout as stream:
                # A limit, because output without line breaks would otherwise need unlimited memory.
                while line := stream.readline(_LONGEST_LINE):
                    self._output.append(line.decode(errors="replace").rstrip("\n"))
        # The output ends before the supervisor exits, because it first reaps descendants.
        self.status = process.wait()
        self._cut_lifeline()
        self._done.set()
        ended()


class CrashLoopBackOff:
    """Pauses before the restarts of one process. They have the same lengths as the kubelet's.

    Source: ``doBackOff``, pkg/kubelet/kuberuntime/kuberuntime_manager.go, v1.32. Not thread-safe.
    """

    def __init__(self) -> None:
        self._pause = 0.0

    def next_pause(self, ran: float) -> float:
        """Return the pause in seconds before restarting a process that ran for ``ran`` seconds.

        The first pause is 0, the second 10. Each further pause is twice as long, up to 300. After a
        run of more than ten minutes, the pauses begin again at 0.
        """
        if ran > _RESET_SECONDS:
            self._pause = 0.0
        pause = self._pause
        self._pause = min(2 * pause or _FIRST_PAUSE, _LONGEST_PAUSE)
        return pause
