"""A pool of daemon threads for gRPC calls. Daemon threads cannot prevent the process from exiting.

The interpreter joins the threads of a ThreadPoolExecutor at exit. So one hanging method of an
author would prevent a plugin from exiting after SIGTERM.
"""

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
    """Pool of up to ``size`` daemon threads, which start on demand.

    A thread ends after 5 s without work.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        # Guards the four fields below. Idle threads wait here for a job.
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def for_grpc(self) -> ThreadPoolExecutor:
        """Return this pool, declared as the type that ``grpc.server`` requires.

        This is safe, because gRPC calls only the method ``submit``.
        """
        return cast(ThreadPoolExecutor, self)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``call`` on a thread of the pool, and return its future.

        If the pool has no thread and cannot start one, drop the call and raise RuntimeError.
        """
        future: Future[Any] = Future()
        job = future, lambda: call(*args, **kwargs)
        with self._changed:
            self._jobs.append(job)
            # Compare with all waiting jobs: an idle thread may be about to take an earlier one.
            grow = len(self._jobs) > self._idle and self._threads < self._size
            self._threads += grow
            # Wake one idle thread; if there is none, the new thread finds the job.
            self._changed.notify()
        if grow:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:
                self._withdraw_thread(job)
        return future

    def _withdraw_thread(self, job: _Job) -> None:
        """Undo the count of a thread that did not start.

        Must be called in the ``except`` block of the start error. Re-raises this error, and drops
        the job, if the pool has no other thread.
        """
        with self._changed:
            self._threads -= 1
            if not self._threads and job in self._jobs:
                self._jobs.remove(job)
                raise

    def close(self) -> None:
        """End idle threads immediately. Calls that are submitted later still run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, call = job
            # As in ThreadPoolExecutor, a future can be cancelled before its call starts.
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # the reader of the future handles it
                future.set_exception(error)

    def _next(self) -> _Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed, _IDLE)
            self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            # Decrement with the lock held: the next `submit` must not rely on this thread.
            self._threads -= 1
            return None
