"""Control a program that prints JSON events on stdout and reads commands from stdin."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Event", "GoProcess"]

Event = Mapping[str, Any]

DEADLINE = 15.0
"""Timeout of a wait in seconds. It is long, because only a broken program reaches it."""


class GoProcess:
    """A running program and the events that it has printed.

    A wait consumes the event that it returns: the next wait for the same name needs a later
    one. Other events stay available, so waits can use any order of names.
    """

    def __init__(self, argv: Sequence[str | Path]) -> None:
        self.name = Path(argv[0]).name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in terminate
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._unused: list[Event] = []
        self._all: list[Event] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"{self.name}-events")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # An invalid line must not stop this thread: a failed wait shows the line.
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                event = {"event": "not-json", "line": line}
            with self._changed:
                self._unused.append(event)
                self._all.append(event)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(
        self, event: str, deadline: float = DEADLINE, *, unless: str | None = None, **fields: Any
    ) -> Event:
        """Wait for an event with this name and fields; consume and return the oldest one.

        Raises AssertionError after ``deadline`` seconds, or at once if the program has exited or
        if there is an event ``unless``.
        """
        until = time.monotonic() + deadline
        with self._changed:
            while True:
                found = self._take(event, fields)
                if found is not None:
                    return found
                if unless is not None and self._take(unless, {}) is not None:
                    raise AssertionError(self._report(f"{unless} instead of {event} {fields}"))
                left = until - time.monotonic()
                if self._ended or left <= 0:
                    why = f"{self.name} exited" if self._ended else f"waited {deadline:g} s"
                    raise AssertionError(self._report(f"no {event} {fields}: {why}"))
                self._changed.wait(left)

    def _take(self, name: str, fields: Mapping[str, Any]) -> Event | None:
        for index, event in enumerate(self._unused):
            if event["event"] == name and all(
                key in event and event[key] == value for key, value in fields.items()
            ):
                return self._unused.pop(index)
        return None

    def events(self, name: str) -> list[Event]:
        """Return all events of a name so far, consumed or not."""
        with self._changed:
            return [event for event in self._all if event["event"] == name]

    def forget(self) -> None:
        """Consume all events so far, so that the next wait needs a new one."""
        with self._changed:
            self._unused.clear()

    def send(self, *words: str | int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()

    def call(self, *words: str | int, reply: str, **fields: Any) -> Event:
        """Send a command and wait for the event with its reply."""
        self.send(*words)
        return self.wait_for(reply, **fields)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()

    def terminate(self, deadline: float = DEADLINE) -> int:
        """Send SIGTERM; return the exit code. Raises AssertionError if it had to be killed."""
        if self._process.poll() is None:
            self._process.terminate()
        return self._finish(deadline)

    def finish(self, deadline: float = DEADLINE) -> int:
        """Close stdin, so that the program exits; return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._finish(deadline)

    def _finish(self, deadline: float) -> int:
        try:
            self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                self._report(f"{self.name} did not exit within {deadline:g} s")
            ) from None
        finally:
            self.close()
        return self._process.returncode

    def close(self) -> None:
        """Kill the program if it still runs; release pipes, thread and file."""
        if self._process.poll() is None:
            self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._stderr.close()

    def _report(self, headline: str) -> str:
        """Return a failure's text: exit code, all events and the end of stderr.

        Must be called with the lock held, or after the program has exited.
        """
        lines = [headline, f"  exit code: {self._process.poll()}", "  events:"]
        lines += [f"    {json.dumps(event)}" for event in self._all] or ["    none"]
        lines += ["  stderr:", *(f"    {line}" for line in self._stderr_lines())]
        return "\n".join(lines)

    def _stderr_lines(self) -> list[str]:
        if self._stderr.closed:
            return []
        # A second open file has a separate offset; the program writes at that of the first one.
        with open(f"/proc/self/fd/{self._stderr.fileno()}", "rb") as file:  # noqa: PTH123
            return file.read().decode(errors="replace").splitlines()[-20:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
