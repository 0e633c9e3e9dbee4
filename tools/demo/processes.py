"""Programs that the demo starts: what they print is read as it comes, and waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from devicemanager.cli.options import CommandError

Record = dict[str, Any]
"""One line of a program: its JSON object, or ``{"text": line}``."""

_STOP_TIMEOUT = 10.0
_SHOWN_LINES = 5


class Process:
    """A running program. A context manager: leaving it stops the program."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """``name`` is what the user calls it; ``log`` gets what it writes to stderr."""
        self.name = name
        self._log = log
        # Guards the two below.
        self._changed = threading.Condition()
        self._records: list[Record] = []
        self._ended = False
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                command,
                # IdlePool open: a program that reads it ends when we do.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                # Ctrl-C is ours alone, so that everything ends in order.
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_for(self, what: str, match: Callable[[Record], bool], timeout: float) -> Record:
        """The first line for which ``match`` holds, past or to come.

        Raises CommandError, which names ``what``, if there is none in ``timeout`` seconds
        or the program ends before.
        """

        def look() -> Record | None:
            return next((record for record in self._records if match(record)), None)

        with self._changed:
            self._changed.wait_for(lambda: look() is not None or self._ended, timeout)
            found = look()
        if found is None:
            raise CommandError(f"{self.name} did not show {what}: {self._last_words()}")
        return found

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that does not help. Returns the exit status."""
        self._end(signal.SIGTERM)
        return self._popen.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(number)
        try:
            self._popen.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._reader.join(_STOP_TIMEOUT)
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            record = _record(line.decode(errors="replace"))
            with self._changed:
                self._records.append(record)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _last_words(self) -> str:
        """Why, as far as the program itself says."""
        lines = self._log.read_text(errors="replace").split("\n")
        told = [record.get("message") or record.get("text", "") for record in self._records]
        shown = [line for line in [*told, *lines] if line][-_SHOWN_LINES:]
        return " | ".join(shown) or "it said nothing"


def _record(line: str) -> Record:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": line.rstrip("\n")}
