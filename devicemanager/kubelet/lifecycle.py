"""At most one life of the kubelet's process at a time, whoever starts and stops it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.limits import check_address_space, check_descriptors, explained
from devicemanager.kubelet.process import KubeletProcess

_NOT_RUNNING = "the kubelet is not running: start it, or use it in a with block"


def _nothing() -> None:
    pass


class Lifecycle:
    """Starts and stops processes one after another. May be called from any thread.

    Two states: no process, or one that serves. ``start`` leads from the first to the
    second, ``stop`` back, ``replace`` from either to the second. Each holds one lock from
    its beginning to its end, so nobody ever meets a process that is half started.

    A forked child has none of the kubelet's threads, and its files are the parent's: there
    ``stop`` does nothing and everything else is rejected.
    """

    def __init__(
        self,
        events: EventStream,
        new_process: Callable[[], KubeletProcess],
        started: Callable[[KubeletProcess], None],
    ) -> None:
        """``started`` is told of each process that serves, before anybody else."""
        self._events = events
        self._new_process = new_process
        self._started = started
        self._pid = os.getpid()
        # Held over a whole start or stop; guards _process. Nothing that runs under it
        # waits for a plugin.
        self._turn = threading.Lock()
        self._process: KubeletProcess | None = None

    @property
    def process(self) -> KubeletProcess | None:
        """The process that serves; None if there is none."""
        return None if self.is_forked else self._process

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process that made the kubelet."""
        return os.getpid() != self._pid

    def serving(self) -> KubeletProcess:
        """The process that serves. Raises RequestError if there is none."""
        self._check_ours()
        process = self._process
        if process is None:
            raise RequestError(_NOT_RUNNING)
        return process

    def start(self) -> KubeletProcess:
        """Raises StartError if no process can serve here, and RequestError if one does."""
        with self._changing():
            if self._process is not None:
                raise RequestError("the kubelet runs already: stop it first")
            return self._start()

    def stop(self) -> None:
        """Stopping twice does nothing. Raises StopError for what could not be cleaned up;
        the process has ended all the same."""
        if self.is_forked:
            return
        with self._changing():
            self._stop()

    def replace(
        self, between: Callable[[], None] = _nothing, *, first: Callable[[], None] = _nothing
    ) -> KubeletProcess:
        """Call ``first``, stop the process, if there is one, call ``between``, start the next
        one.

        Raises what ``first`` does, which changes nothing, and what ``start`` and ``stop`` do;
        nobody serves then.
        """
        with self._changing():
            first()
            self._stop()
            between()
            return self._start()

    def _start(self) -> KubeletProcess:
        check_descriptors()
        check_address_space()
        with explained():
            process = self._new_process()
            process.start()
        self._started(process)
        self._process = process
        self._events.publish(EventKind.STARTED, f"kubelet serves {process.socket}")
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stop()
        finally:
            self._events.publish(EventKind.STOPPED, "kubelet stopped")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One change at a time. Rejected to event callbacks: one that waited for its turn
        would hold up the very thread that the change under way waits for."""
        self._check_ours()
        if self._events.is_delivering:
            raise RequestError(
                "an event callback cannot start or stop the kubelet: do it on another thread"
            )
        with self._turn:
            yield

    def _check_ours(self) -> None:
        if self.is_forked:
            raise RequestError(
                f"this kubelet belongs to process {self._pid}: "
                "after a fork, make one of your own in the child"
            )
