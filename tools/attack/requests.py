"""Requests to a helper process, by lines of JSON; answered in any order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, Self

import attrs

Handlers = Mapping[str, Callable[..., Any]]

_WORKERS = 16
_PATIENCE = 20.0
_MOST_NOISE = 1 << 20


class RequestFailed(Exception):
    """The helper could not do what it was asked for, or did not answer; the text says why."""


@attrs.frozen
class Answer:
    """What a helper answered, and after how many seconds."""

    value: Any
    seconds: float


def serve(handlers: Handlers) -> None:
    """The helper's side: answer until stdin ends. Handlers run side by side."""
    lock = threading.Lock()

    def say(*words: object) -> None:
        with lock:
            print(json.dumps(words), flush=True)

    def answer(number: int, name: str, arguments: list[Any]) -> None:
        try:
            say(number, None, handlers[name](*arguments))
        except Exception as error:
            say(number, f"{type(error).__name__}: {str(error)[:500]}", None)

    pool = ThreadPoolExecutor(_WORKERS)
    say(0, None, "ready")
    for line in sys.stdin:
        number, name, *arguments = json.loads(line)
        pool.submit(answer, number, name, arguments)


class Helper:
    """A module of ours that runs in a process of its own and answers requests."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._errors = os.memfd_create("errors")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        # Guards _waiting and the writing end.
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._number = 0
        ready = self._waiting[0]
        self._reader = threading.Thread(target=self._read, name=f"answers of {module}")
        self._reader.start()
        ready.result(_PATIENCE * 3)

    def ask(self, name: str, *arguments: object, timeout: float = _PATIENCE) -> Answer:
        """Ask for something and wait. Raises RequestFailed."""
        begin = time.monotonic()
        future = self.begin(name, *arguments)
        try:
            value = future.result(timeout)
        except FutureTimeout:
            raise RequestFailed(f"{name}: no answer within {timeout:g} s") from None
        return Answer(value, time.monotonic() - begin)

    def begin(self, name: str, *arguments: object) -> Future[Any]:
        """Ask for something; the future ends with the answer, or with RequestFailed."""
        future: Future[Any] = Future()
        assert self.process.stdin is not None, "the process was started with pipes"
        with self._lock:
            self._number += 1
            self._waiting[self._number] = future
            try:
                self.process.stdin.write(json.dumps([self._number, name, *arguments]) + "\n")
                self.process.stdin.flush()
            except OSError as error:
                raise RequestFailed(f"{name}: the process is gone: {error.strerror}") from error
        return future

    def noise(self) -> list[str]:
        """What the process said on standard error so far, line by line."""
        # Not by seek and read: the process shares the position at which it writes.
        said = os.pread(self._errors, _MOST_NOISE, 0)
        return said.decode(errors="replace").splitlines()

    def _read(self) -> None:
        assert self.process.stdout is not None, "the process was started with pipes"
        with self.process.stdout as lines:
            for line in lines:
                self._take(*json.loads(line))
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
        for future in left:
            future.set_exception(RequestFailed("the process has ended"))

    def _take(self, number: int, error: str | None, value: Any) -> None:
        with self._lock:
            future = self._waiting.pop(number)
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(RequestFailed(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None, "the process was started with pipes"
        try:
            self.process.stdin.close()
            self.process.wait(_PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.join()
        os.close(self._errors)


def leave() -> None:
    """End a helper at once: threads that an attack has left waiting must not keep it."""
    sys.stdout.flush()
    os._exit(0)
