"""Threads that make requests: the most urgent first, and what belongs together in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import attrs

from devicemanager.cluster.client.errors import ApiError, ClientClosing
from devicemanager.cluster.client.protocol import Priority
from devicemanager.cluster.client.rate_limited_warning import Warn

__all__ = ["WorkQueue", "start_another"]

_Act = Callable[[], None]


@attrs.frozen
class _Work:
    priority: Priority
    do: _Act
    dropped: _Act | None


class WorkQueue:
    """At most so many threads, started as work comes. May be used from any thread.

    What has the same key runs in the order in which it came, one at a time. A key is as
    urgent as the most urgent of what waits under it.
    """

    def __init__(self, threads: int = 32, *, warn: Warn = lambda text: None) -> None:
        self._most = threads
        self._warn = warn
        # Guards the fields below; no work runs under it.
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._over = threading.Condition(lock)
        """Told once nothing waits or runs."""
        self._waiting: dict[str, deque[_Work]] = {}
        self._ready: tuple[deque[str], ...] = tuple(deque() for _ in Priority)
        self._running: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """Threads that wait and were not woken."""
        self._closed = False

    def put(self, priority: Priority, key: str, work: _Act, *, dropped: _Act | None = None) -> None:
        """As in ``protocol.Lane``; never blocks. Once closed, nothing is done any more.
        ``dropped`` is called in place of the work if that is never done. Raises RuntimeError,
        and forgets the work, if there is no thread and none can be started."""
        made = _Work(priority, work, dropped)
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
            waiting.pop()
            if not waiting:
                del self._waiting[key]
            raise

    def _queue(self, key: str) -> None:
        """Line a key up; it may stand in several lines, the first one counts."""
        self._ready[min(work.priority for work in self._waiting[key])].append(key)
        if self._idle:
            # Counted here: until it runs, the next one put in would be told to it as well.
            self._idle -= 1
            self._changed.notify()
        elif len(self._threads) < self._most:
            start_another(self._threads, self._run, "api-lane")

    def _run(self) -> None:
        key: str | None = None
        while (taken := self._next(key)) is not None:
            key, work = taken
            self._do(work.do)

    def _do(self, act: _Act) -> None:
        try:
            act()
        except ClientClosing:
            pass
        except ApiError as error:
            self._warn(str(error))
        except Exception as error:
            self._warn(f"unexpected {type(error).__name__}: {error} (a bug)")

    def _drop(self, work: _Work) -> None:
        if work.dropped is not None:
            self._do(work.dropped)

    def _next(self, done: str | None) -> tuple[str, _Work] | None:
        """What to do next, once there is something; None at the end."""
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
        """Wait until nothing waits or runs; returns whether that came in time."""
        with self._over:
            return self._over.wait_for(lambda: not self._running and not self._waiting, seconds)

    @property
    def load(self) -> int:
        """How many works wait or run."""
        with self._changed:
            return len(self._running) + sum(map(len, self._waiting.values()))

    def close(self, seconds: float = 5.0) -> None:
        """Drop what waits, and wait so long for what runs."""
        with self._changed:
            self._closed = True
            dropped = [work for works in self._waiting.values() for work in works]
            self._waiting.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for work in dropped:
            self._drop(work)
        deadline = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def start_another(threads: list[threading.Thread], target: _Act, name: str) -> None:
    """Start one more of these threads, with their lock held. Raises RuntimeError if it would be
    the first and cannot be started; else those that there are do its work."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if not threads:
            raise
    else:
        threads.append(thread)
