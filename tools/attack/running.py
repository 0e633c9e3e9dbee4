"""Start ``devicemanager run`` as a user does, in a shell with limits."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

Record = dict[str, Any]
# exec replaces the shell, so that signals reach the command and limits apply to it.
_WITH_LIMITS: Final = '{limits}; exec "$@"'
_END: Final = 90.0


class Running:
    """Process of ``devicemanager run``. ``lines`` and ``errors`` are the lines on standard output
    and standard error so far."""

    def __init__(
        self, root: Path, *arguments: object, limits: str = "true", reads: bool = True
    ) -> None:
        """``limits`` are shell commands to run before the command, such as ``ulimit -n 8``. If
        ``reads`` is false, standard output is not read."""
        command = [sys.executable, "-m", "tools.attack.command", "run", "--root", root, *arguments]
        shell = ["sh", "-c", _WITH_LIMITS.format(limits=limits), "sh", *map(str, command)]
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self.stop: float | None = None
        """Seconds from SIGTERM to the exit; None if it was not sent or had no effect."""
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._lines_read: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._threads = [_follow(self.process.stderr, self.errors, self._lines_read)]
        if reads:
            self._threads.append(_follow(self.process.stdout, self.lines, self._lines_read))

    def until(self, found: Callable[[], bool], timeout: float) -> float | None:
        """Wait until ``found()`` is true or the process exits. Return the seconds since the start,
        or None on timeout."""
        limit = time.monotonic() + timeout
        while not found():
            if (rest := limit - time.monotonic()) <= 0:
                return None
            with contextlib.suppress(queue.Empty):
                self._lines_read.get(timeout=min(rest, 0.1))
            # The last lines are read after the exit. They can make the condition true.
            if self.process.poll() is not None:
                self._drain()
                return time.monotonic() - self.begin
        return time.monotonic() - self.begin

    def records(self, kind: str) -> list[Record]:
        """Return the command's JSON records of one kind. The command needs ``--output json``."""
        records = []
        # Iterate over a copy, because a thread appends lines. The last line can be incomplete.
        for line in list(self.lines):
            with contextlib.suppress(ValueError):
                records.append(json.loads(line))
        return [record for record in records if record.get("kind") == kind]

    def is_ready(self) -> bool:
        return bool(self.records("ready"))

    def end(self) -> Iterator[str]:
        """Send SIGTERM to the process, and yield problems of its exit."""
        if self.process.poll() is None:
            begin = time.monotonic()
            self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(_END)
            except subprocess.TimeoutExpired:
                yield f"SIGTERM had no effect for {_END:g} s"
                return
            self.stop = time.monotonic() - begin
            if code:
                yield f"exited with {code} after SIGTERM"
        self._drain()

    def noise(self) -> Iterator[str]:
        """Yield unexpected errors on standard error."""
        for line in list(self.errors):
            if "Traceback" in line or "Error:" in line:
                yield f"on standard error: {line.strip()[:200]}"

    def _drain(self) -> None:
        for thread in self._threads:
            thread.join(5.0)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._drain()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None, "the process was started with pipes"
            stream.close()


def _follow(
    stream: IO[str] | None, lines: list[str], read: queue.SimpleQueue[None]
) -> threading.Thread:
    assert stream is not None, "the process was started with pipes"

    def follow() -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                lines.append(line)
                read.put(None)

    # A daemon thread: a forked child of the command can keep the pipe open.
    thread = threading.Thread(target=follow, name="follow", daemon=True)
    thread.start()
    return thread


@contextmanager
def running(root: Path, *arguments: object, **options: Any) -> Iterator[Running]:
    """Run the command during a ``with`` block, and kill it at the end."""
    process = Running(root, *arguments, **options)
    try:
        yield process
    finally:
        process.close()
