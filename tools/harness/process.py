"""Run helper processes that respond to requests. Requests and responses are JSON lines.

A request is ``[number, name, arguments...]`` on standard input. Its response is ``[number, error,
value]`` on standard output. Responses can come in any order, because the helper handles several
requests concurrently. The helper exits when its standard input is closed, so it exits with the
tool.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs

_WORKERS = 16
_TIMEOUT = 20.0
_READY_TIMEOUT = 60.0
_MAX_ERRORS = 1 << 20


class RequestFailed(Exception):
    """Error for a request that the helper could not carry out, or to which it did not respond."""


@attrs.frozen
class Answer:
    """Response of a helper, and the seconds until it came."""

    value: Any
    seconds: float


def serve(handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Respond to requests with ``handlers`` until standard input is closed. Used in the helper.
    Handlers run concurrently."""
    lock = threading.Lock()

    def send(*words: object) -> None:
        with lock:
            print(json.dumps(words), flush=True)

    def answer(number: int, name: str, arguments: list[Any]) -> None:
        try:
            send(number, None, handlers[name](*arguments))
        except Exception as error:
            send(number, f"{type(error).__name__}: {str(error)[:500]}", None)

    pool = ThreadPoolExecutor(_WORKERS)
    send(0, None, "ready")
    for line in sys.stdin:
        number, name, *arguments = json.loads(line)
        pool.submit(answer, number, name, arguments)


class HelperProcess:
    """Module that runs in another process and responds to requests. For use as a context
    manager."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        # Use a file in memory, not a pipe: then standard error need not be read while the process
        # writes.
        self._errors = os.memfd_create("errors")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        # Guards _waiting and writes to the process.
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._number = 0
        ready = self._waiting[0]
        self._reader = threading.Thread(target=self._read, name=f"answers of {module}")
        self._reader.start()
        try:
            try:
                ready.result(_READY_TIMEOUT)
            except FutureTimeout:
                text = f"{module} was not ready within {_READY_TIMEOUT:g} s"
                raise RequestFailed(text) from None
        except BaseException:
            # Close here: after an exception in the constructor, the caller has no object to close.
            self.__exit__()
            raise

    def ask(self, name: str, *arguments: object, timeout: float = _TIMEOUT) -> Answer:
        """Send a request and wait for the response. Raises RequestFailed if the request fails, or
        on timeout."""
        begin = time.monotonic()
        future = self.begin(name, *arguments)
        try:
            value = future.result(timeout)
        except FutureTimeout:
            raise RequestFailed(f"request {name}: no response within {timeout:g} s") from None
        return Answer(value, time.monotonic() - begin)

    def begin(self, name: str, *arguments: object) -> Future[Any]:
        """Send a request without waiting. The future returned has the response, or raises
        RequestFailed."""
        future: Future[Any] = Future()
        assert self.process.stdin is not None, "the process was started with pipes"
        with self._lock:
            self._number += 1
            self._waiting[self._number] = future
            try:
                self.process.stdin.write(json.dumps([self._number, name, *arguments]) + "\n")
                self.process.stdin.flush()
            except OSError as error:
                raise RequestFailed(
                    f"request {name}: the helper has exited: {error.strerror}"
                ) from error
        return future

    def errors(self) -> list[str]:
        """Return the lines that the process has written to standard error so far."""
        # Do not seek: the process shares the position at which it writes.
        data = os.pread(self._errors, _MAX_ERRORS, 0)
        return data.decode(errors="replace").splitlines()

    def _read(self) -> None:
        assert self.process.stdout is not None, "the process was started with pipes"
        with self.process.stdout as lines:
            for line in lines:
                self._receive(*json.loads(line))
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
        for future in left:
            last = (self.errors() or ["no message"])[-1]
            future.set_exception(RequestFailed(f"the helper has exited: {last}"))

    def _receive(self, number: int, error: str | None, value: Any) -> None:
        with self._lock:
            future = self._waiting.pop(number)
        # Set outside the lock: callbacks of the future may send the next request.
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(RequestFailed(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None, "the process was started with pipes"
        try:
            self.process.stdin.close()
            self.process.wait(_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.join()
        os.close(self._errors)


def exit_now() -> None:
    """Exit a helper immediately. Threads that still wait must not delay the exit."""
    sys.stdout.flush()
    os._exit(0)


@contextmanager
def short_directory() -> Iterator[Path]:
    """Create a temporary directory for a ``with`` block. Its path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="dm-", dir="/tmp"))
    try:
        yield path
    finally:
        # Ignore errors: a process that used the directory may have been killed during an operation.
        shutil.rmtree(path, ignore_errors=True)
