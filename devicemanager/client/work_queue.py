"""Work queue with threads for the requests of all nodes.

Requests with the same key are sent one at a time, in order. Among the keys, the one with the most
urgent request comes first. The API server handles only a limited number of requests at the same
time, and a burst of events must not delay deletions.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import attrs

from devicemanager.client.errors import ApiError, ClientClosing
from devicemanager.client.rate_limited_warning import Warn

__all__ = ["PausableQueue", "Priority", "Queue", "WorkQueue", "join_threads", "start_another"]

_Act = Callable[[], None]


class Priority(enum.IntEnum):
    """Urgency of a request; the request with the lowest number is sent first."""

    DELETION = 0
    POD_STATUS = 1
    NODE_STATUS = 2
    EVENT = 3


class Queue(Protocol):
    """Queue of functions that are run later, on another thread. Thread-safe."""

    def put(self, priority: Priority, key: str, work: _Act) -> None:
        """Add a function to run. Functions with the same key run one at a time, in order. Never
        blocks."""


@attrs.frozen
class _Work:
    priority: Priority
    do: _Act
    on_dropped: _Act | None


class WorkQueue:
    """Queue of functions, with a limited number of threads that run them. Thread-safe.

    Functions with the same key run one at a time, in the order in which they were added. All
    waiting functions of a key have the priority of the most urgent one.
    """

    def __init__(self, threads: int = 32, *, warn: Warn = lambda text: None) -> None:
        self._max_threads = threads
        self._warn = warn
        # Guards the fields below; no work runs under it.
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        # ``drain`` has a separate condition on the same lock, so that it does not consume a
        # notification for a thread.
        self._over = threading.Condition(lock)
        """Condition on which ``drain`` waits; notified when no work waits or runs."""
        self._waiting: dict[str, deque[_Work]] = {}
        # One line of keys per priority. If more urgent work is added under a key, the key gets
        # another entry in a more urgent line.
        self._ready: tuple[deque[str], ...] = tuple(deque() for _ in Priority)
        self._running: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """Number of threads that wait for work. A thread that was notified is not counted."""
        self._closed = False

    def put(
        self, priority: Priority, key: str, work: _Act, *, on_dropped: _Act | None = None
    ) -> None:
        """Add the function ``work``. Never blocks.

        Functions with the same key, such as a pod's UID, run one at a time. If the queue is closed
        before ``work`` starts, ``on_dropped`` is called instead. If no thread runs and no thread
        can be started, ``work`` is not added and RuntimeError is raised.
        """
        made = _Work(priority, work, on_dropped)
        with self._changed:
            if not self._closed:
                self._append(key, made)
                return
        self._drop(made)

    def _append(self, key: str, work: _Work) -> None:
        waiting = self._waiting.setdefault(key, deque())
        waiting.append(work)
        try:
            if key not in self._running:
                self._queue(key)
        except RuntimeError:
            # No thread exists to run the work, so the work is removed and the caller gets the
            # error.
            waiting.pop()
            if not waiting:
                del self._waiting[key]
            raise

    def _queue(self, key: str) -> None:
        """Add a key to the line of its priority.

        The key can already be in a line, so it can have several entries. ``_first`` skips an entry
        if the key's work runs, or if no more work waits under the key.
        """
        self._ready[min(work.priority for work in self._waiting[key])].append(key)
        if self._idle:
            # The thread counts as busy now, not when it wakes up. Otherwise the next put would
            # notify the same thread instead of starting another thread.
            self._idle -= 1
            self._changed.notify()
        elif len(self._threads) < self._max_threads:
            start_another(self._threads, self._run, "api-worker")

    def _run(self) -> None:
        key: str | None = None
        while (taken := self._next(key)) is not None:
            key, work = taken
            self._do(work.do)

    def _do(self, act: _Act) -> None:
        try:
            act()
        except ClientClosing:
            pass  # the client was closed on purpose, so this is not reported
        except ApiError as error:
            self._warn(str(error))
        except Exception as error:
            self._warn(f"unexpected {type(error).__name__}: {error} (a bug)")

    def _drop(self, work: _Work) -> None:
        if work.on_dropped is not None:
            self._do(work.on_dropped)

    def _next(self, done: str | None) -> tuple[str, _Work] | None:
        """Wait for work and return its key and the work; return None if the queue is closed.

        ``done`` is the key of the work that the calling thread has just finished.
        """
        with self._changed:
            if done is not None:
                self._running.discard(done)
                if done in self._waiting:
                    self._queue(done)
                if not self._running and not self._waiting:
                    self._over.notify_all()
            while (key := self._first()) is None:
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
            self._running.add(key)
            works = self._waiting[key]
            work = works.popleft()
            if not works:
                del self._waiting[key]
            return key, work

    def _first(self) -> str | None:
        for line in self._ready:
            while line:
                key = line.popleft()
                if key in self._waiting and key not in self._running:
                    return key
        return None

    # -- end -------------------------------------------------------------------------

    def drain(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until no work waits or runs; return False after a timeout."""
        with self._over:
            return self._over.wait_for(lambda: not self._running and not self._waiting, seconds)

    @property
    def pending(self) -> int:
        """Number of pieces of work that wait or run."""
        with self._changed:
            return len(self._running) + sum(map(len, self._waiting.values()))

    def close(self, seconds: float = 5.0) -> None:
        """Drop all work that waits, and wait up to ``seconds`` for work that runs."""
        with self._changed:
            self._closed = True
            dropped = [work for works in self._waiting.values() for work in works]
            self._waiting.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        # The lock is not held, because ``on_dropped`` can take other locks or add work.
        for work in dropped:
            self._drop(work)
        # The current thread is left out, because work can close the queue that runs it.
        join_threads((each for each in threads if each is not threading.current_thread()), seconds)


class PausableQueue:
    """Queue that passes its work to an underlying queue, except during a pause. Thread-safe.

    Work with the same key runs in the order in which it was added, also after a pause.
    """

    __slots__ = ("_is_paused", "_lock", "_queue", "_waiting")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        # Guards the fields below; no work runs under it.
        self._lock = threading.Lock()
        self._is_paused = False
        self._waiting: dict[str, deque[tuple[Priority, _Act]]] = {}
        """Mapping from a key to its work that has not started, oldest first."""

    def put(self, priority: Priority, key: str, work: _Act) -> None:
        """Pass the function ``work`` to the underlying queue. During a pause, keep it instead.

        If the underlying queue raises RuntimeError, ``work`` is not added.
        """
        with self._lock:
            # The underlying queue comes first, because ``work`` must not stay here if that queue
            # raises an error. A thread that runs the call at once still waits for the lock.
            if not self._is_paused:
                self._queue.put(priority, key, partial(self._run_oldest, key))
            self._waiting.setdefault(key, deque()).append((priority, work))

    def _run_oldest(self, key: str) -> None:
        with self._lock:
            waiting = self._waiting.get(key)
            # Nothing waits if the view was paused and resumed before this call: each work that
            # waited then got a second call.
            if self._is_paused or not waiting:
                return
            _, work = waiting.popleft()
            if not waiting:
                del self._waiting[key]
        work()

    def pause(self, paused: bool) -> None:
        """Start a pause, or end it if ``paused`` is False. During a pause, no work starts.

        At the end of a pause, all work that has not started is passed to the underlying
        queue. If that queue raises RuntimeError, the pause continues and all work is kept.
        """
        with self._lock:
            if not paused:
                for key, waiting in self._waiting.items():
                    for priority, _ in waiting:
                        self._queue.put(priority, key, partial(self._run_oldest, key))
            self._is_paused = paused


def start_another(threads: list[threading.Thread], target: _Act, name: str) -> None:
    """Start a thread and append it to ``threads``.

    Must be called with the lock of ``threads`` held. If the thread cannot be started, the existing
    threads do the work; RuntimeError is raised if ``threads`` is empty.
    """
    # A daemon thread, so that a request that hangs cannot prevent the process from exiting.
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if not threads:
            raise
    else:
        threads.append(thread)


def join_threads(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait until all threads have ended, for up to ``seconds`` in total."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
