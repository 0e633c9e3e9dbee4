"""A pool of daemon threads for calls: none of them can keep the process from ending."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

__all__ = ["DaemonThreadPoolExecutor"]

_IDLE = 5.0

_Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreadPoolExecutor:
    """At most ``size`` daemon threads, started when needed, gone after 5 s without work.

    ThreadPoolExecutor's threads are joined when the interpreter ends, so one hook of the
    author that hangs would keep a plugin from ever reacting to SIGTERM.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        # Guards the four below; idle threads wait on it for a job.
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def for_grpc(self) -> ThreadPoolExecutor:
        """This pool under the type that grpc.server asks for: it only ever calls submit."""
        return cast(ThreadPoolExecutor, self)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises RuntimeError, and forgets the call, if there is no thread and none can be
        started."""
        future: Future[Any] = Future()
        job = future, lambda: call(*args, **kwargs)
        with self._changed:
            self._jobs.append(job)
            grow = len(self._jobs) > self._idle and self._threads < self._size
            self._threads += grow
            self._changed.notify()
        if grow:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:
                self._is_not_started(job)
        return future

    def _is_not_started(self, job: _Job) -> None:
        """A thread that was counted is not there. Raises what is being handled if nobody else
        will do the job."""
        with self._changed:
            self._threads -= 1
            if not self._threads and job in self._jobs:
                self._jobs.remove(job)
                raise

    def close(self) -> None:
        """Let idle threads go now. Work that still comes is done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # for the caller, whatever it is
                future.set_exception(error)

    def _next(self) -> _Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed, _IDLE)
            self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self._threads -= 1
            return None
