"""Start, stop and replace a kubelet's ``KubeletProcess``, one change at a time.

A ``KubeletProcess`` is not an operating-system process. It has the device manager and the servers
of one run of the kubelet.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.limits import as_start_error, check_address_space, check_descriptors
from devicemanager.kubelet.process import KubeletProcess

__all__ = ["Lifecycle"]

_NOT_RUNNING = "the kubelet is not running: call start, or use it in a with block"


def _nothing() -> None:
    pass


class Lifecycle:
    """Owner of the kubelet's current ``KubeletProcess``, if any. Thread-safe.

    ``start``, ``stop`` and ``replace`` hold one lock from beginning to end, so no caller sees a
    process that is only half started.

    After a fork, the kubelet's threads and files belong to the parent. In the forked child,
    ``stop`` does nothing, and ``start`` and ``replace`` raise RequestError.
    """

    def __init__(
        self,
        events: EventStream,
        new_process: Callable[[], KubeletProcess],
        started: Callable[[KubeletProcess], None],
    ) -> None:
        """``new_process`` creates a ``KubeletProcess``. ``started`` is called with each started
        process, before other threads can use the process."""
        self._events = events
        self._new_process = new_process
        self._started = started
        self._pid = os.getpid()
        # Held during a whole start or stop; guards _process. No code that runs with this lock
        # waits for a plugin, so a plugin that hangs cannot block a stop.
        self._turn = threading.Lock()
        self._process: KubeletProcess | None = None

    @property
    def process(self) -> KubeletProcess | None:
        """The running process; None if the kubelet is stopped or this is a forked child."""
        return None if self.is_forked else self._process

    @property
    def is_forked(self) -> bool:
        """True in a forked child of the process that created the kubelet."""
        return os.getpid() != self._pid

    def serving(self) -> KubeletProcess:
        """Return the running process. Raises RequestError if the kubelet is stopped."""
        self._check_not_forked()
        process = self._process
        if process is None:
            raise RequestError(_NOT_RUNNING)
        return process

    def start(self) -> KubeletProcess:
        """Start a process and return it.

        Raises StartError if the process cannot start, and RequestError if a process is already
        running.
        """
        with self._changing():
            if self._process is not None:
                raise RequestError("the kubelet is already running: stop it first")
            return self._start()

    def stop(self) -> None:
        """Stop the process. Idempotent.

        Raises StopError if something could not be cleaned up; the process has stopped even then.
        """
        if self.is_forked:
            return  # the servers and files are the parent's, which still uses them
        with self._changing():
            self._stop()

    def replace(
        self, between: Callable[[], None] = _nothing, *, first: Callable[[], None] = _nothing
    ) -> KubeletProcess:
        """Call ``first``, stop the process if one runs, call ``between``, and start a new process.

        If ``first`` raises an error, nothing changes. If the stop, ``between`` or the start raises
        an error, no process runs afterwards.
        """
        with self._changing():
            first()
            self._stop()
            between()
            return self._start()

    def _start(self) -> KubeletProcess:
        check_descriptors()
        check_address_space()
        # Both checks come before gRPC is used: it aborts the program if it gets no descriptors or
        # threads.
        with as_start_error():
            process = self._new_process()
            process.start()
        # Called before other threads can see the process: after a start without a checkpoint, it
        # resets the node status.
        self._started(process)
        self._process = process
        # Published with the lock held, so that starts and stops alternate in the event stream.
        self._events.publish(EventKind.STARTED, f"kubelet serves {process.socket}")
        return process

    def _stop(self) -> None:
        # Hide the process before stopping it: requests are rejected instead of failing halfway.
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stop()
        finally:
            self._events.publish(EventKind.STOPPED, "kubelet stopped")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock during one start, stop or replacement of the process.

        Raises RequestError in an event callback. A callback runs on one of the kubelet's threads,
        and a stop waits for that thread: if the callback waited for the lock, both would deadlock.
        """
        self._check_not_forked()
        if self._events.is_delivering:
            raise RequestError(
                "cannot start or stop the kubelet in an event callback: use another thread"
            )
        with self._turn:
            yield

    def _check_not_forked(self) -> None:
        if self.is_forked:
            raise RequestError(
                f"this kubelet belongs to process {self._pid}, not to its forked child "
                f"{os.getpid()}: create another kubelet in the child"
            )
