"""Start the programs of the demo, read their output continuously, and wait for lines in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from devicemanager.cli.options import CommandError
from devicemanager.objects.manifests import parse

Record = dict[str, Any]
"""Line of a program's output: its JSON object, or ``{"text": line}``."""

_STOP_TIMEOUT = 10.0
_SHOWN_LINES = 5


class Process:
    """Running program of the demo. As a context manager, it stops the program at the end of the
    block."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """``name`` is the program's name in messages. Standard error is appended to ``log``."""
        self.name = name
        self._log = log
        # Guards _records and _ended, which the reading thread changes.
        self._changed = threading.Condition()
        self._records: list[Record] = []
        self._ended = False
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                command,
                # The pipe stays open. A program that reads it exits when this process does.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                # Only this process receives Ctrl-C, so that it can stop the programs in order.
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_for(self, what: str, match: Callable[[Record], bool], timeout: float) -> Record:
        """Return the first line for which ``match`` is true. Wait for it if needed.

        Raises CommandError with ``what`` after ``timeout`` seconds, or if the program exits.
        """

        def first() -> Record | None:
            return next((record for record in self._records if match(record)), None)

        with self._changed:
            self._changed.wait_for(lambda: first() is not None or self._ended, timeout)
            found = first()
        if found is None:
            raise CommandError(f"{self.name} did not print {what}: {self._last_output()}")
        return found

    def wait_ready(self, timeout: float) -> None:
        """Wait for the ``ready`` event of a kubelet."""
        self.wait_for("that it is ready", lambda record: record.get("kind") == "ready", timeout)

    def kill(self) -> None:
        """Send SIGKILL, so that the program cannot clean up."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL if the program does not exit. Return the exit status."""
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

    def _last_output(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        printed = [record.get("message") or record.get("text", "") for record in self._records]
        shown = [line for line in [*printed, *lines] if line][-_SHOWN_LINES:]
        return " | ".join(shown) or "no output"


def _record(line: str) -> Record:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": line.rstrip("\n")}


def run_kubelet(name: str, root: Path, log: Path, *flags: str) -> Process:
    """Start ``devicemanager run`` in the directory ``root``, with static pods from its subdirectory
    ``manifests``."""
    manifests = root / "manifests"
    manifests.mkdir(parents=True, exist_ok=True)
    flags = ("-o", "json", "--root", str(root), "--manifests", str(manifests), *flags)
    return Process(name, [sys.executable, "-m", "devicemanager.cli", "run", *flags], log)


def admit(kubelet: Process, root: Path, example: Path, timeout: float) -> Record:
    """Add a static pod and wait for its admission. Print the result and return the event."""
    pod = parse(example)
    name = f"{pod.namespace}/{pod.name}"
    shutil.copyfile(example, root / "manifests" / example.name)
    wanted = {"kind": "admission", "name": name}
    admission = kubelet.wait_for(
        f"the admission of {name}", lambda record: wanted.items() <= record.items(), timeout
    )
    verdict = "admitted" if admission["admitted"] else f"rejected, {admission['reason']}:"
    print(f"\n  {example.name}: pod {name} is {verdict}")
    return admission
