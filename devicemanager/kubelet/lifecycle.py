"""Starts and stops of the kubelet's process: one change at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.limits import check_address_space, check_descriptors, explained
from devicemanager.kubelet.process import KubeletProcess

__all__ = ["Lifecycle"]

_NOT_RUNNING = "the kubelet is not running: start it, or use it in a with block"


def _nothing() -> None:
    pass


class Lifecycle:
    """Sequence of processes, started and stopped one after another. Thread-safe.

    There are two states: no process, or one that serves. ``start`` leads from the first to the
    second, ``stop`` back, ``replace`` from either to the second. Each holds one lock from
    beginning to end, so no caller sees a process that is only half started.

    A forked child has none of the kubelet's threads, and the files belong to its parent. In
    the child ``stop`` does nothing, and every other change is rejected.
    """

    def __init__(
        self,
        events: EventStream,
        new_process: Callable[[], KubeletProcess],
        started: Callable[[KubeletProcess], None],
    ) -> None:
        """``started`` is called with each new process before it is published."""
        self._events = events
        self._new_process = new_process
        self._started = started
        self._pid = os.getpid()
        # Held during a whole start or stop; guards _process. Nothing that runs under it waits
        # for a plugin, so a plugin that hangs cannot block a stop.
        self._turn = threading.Lock()
        self._process: KubeletProcess | None = None

    @property
    def process(self) -> KubeletProcess | None:
        """The running process; None if there is none."""
        return None if self.is_forked else self._process

    @property
    def is_forked(self) -> bool:
        """True in a forked child of the process that created the kubelet."""
        return os.getpid() != self._pid

    def serving(self) -> KubeletProcess:
        """Return the running process. Raises RequestError if there is none."""
        self._check_not_forked()
        process = self._process
        if process is None:
            raise RequestError(_NOT_RUNNING)
        return process

    def start(self) -> KubeletProcess:
        """Start a process.

        Raises StartError if it cannot start here, and RequestError if one is running.
        """
        with self._changing():
            if self._process is not None:
                raise RequestError("the kubelet is already running: stop it first")
            return self._start()

    def stop(self) -> None:
        """Stop the process. Idempotent.

        Raises StopError if something could not be cleaned up; the process has ended even then.
        """
        if self.is_forked:
            return  # the servers and files are the parent's, which still uses them
        with self._changing():
            self._stop()

    def replace(
        self, between: Callable[[], None] = _nothing, *, first: Callable[[], None] = _nothing
    ) -> KubeletProcess:
        """Call ``first``, stop the process if there is one, call ``between``, and start another.

        Raises what ``first`` raises, before anything has changed, and what ``start`` and
        ``stop`` raise; no process runs then.
        """
        with self._changing():
            first()
            self._stop()
            between()
            return self._start()

    def _start(self) -> KubeletProcess:
        check_descriptors()
        check_address_space()
        # Both checks come first: gRPC aborts the program without descriptors or threads.
        with explained():
            process = self._new_process()
            process.start()
        # Before the process is visible to others: it resets the node status after a fresh start.
        self._started(process)
        self._process = process
        # With the lock held, so that starts and stops alternate in the event stream.
        self._events.publish(EventKind.STARTED, f"kubelet serves {process.socket}")
        return process

    def _stop(self) -> None:
        # First invisible, then stopped: requests are rejected instead of failing halfway.
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stop()
        finally:
            self._events.publish(EventKind.STOPPED, "kubelet stopped")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock during one change.

        Event callbacks are rejected. A callback runs on one of the kubelet's threads, and the
        change that holds the lock waits for that thread: waiting for the lock would deadlock.
        """
        self._check_not_forked()
        if self._events.is_delivering:
            raise RequestError(
                "an event callback cannot start or stop the kubelet: do it on another thread"
            )
        with self._turn:
            yield

    def _check_not_forked(self) -> None:
        if self.is_forked:
            raise RequestError(
                f"this kubelet belongs to process {self._pid}: "
                "after a fork, create another one in the child"
            )
