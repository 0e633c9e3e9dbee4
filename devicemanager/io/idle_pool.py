"""Pools of idle background objects, such as threads, for the next user in the process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["IdlePool"]

T = TypeVar("T")


class _Idle(Generic[T]):
    """The idle objects of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Guards the two fields below; not held while an object is disposed of.
        self.lock = threading.Lock()
        self.enablers = 0
        self.objects: list[T] = []


class IdlePool(Generic[T]):
    """Pool of idle objects; empty unless pooling is enabled. Thread-safe.

    An object that was taken belongs to its user until it is given back. A forked child has an
    empty pool, because threads of the parent do not exist there.
    """

    def __init__(self, most: int, end: Callable[[T], None]) -> None:
        """Keep at most ``most`` objects; dispose of others with ``end``."""
        self._most = most
        self._end = end
        self._idle: _Idle[T] = _Idle()

    def _here(self) -> _Idle[T]:
        # After a fork, a lock of the parent can stay locked.
        if self._idle.pid != os.getpid():
            self._idle = _Idle()
        return self._idle

    @contextlib.contextmanager
    def enabled(self) -> Iterator[None]:
        """Enable pooling until the end of the block."""
        idle = self._here()
        with idle.lock:
            idle.enablers += 1
        try:
            yield
        finally:
            # In a child that was forked inside the block, the pool is another one.
            if idle is self._here():
                self._disable(idle)

    def _disable(self, idle: _Idle[T]) -> None:
        left: list[T] = []
        with idle.lock:
            idle.enablers -= 1
            if not idle.enablers:
                left, idle.objects = idle.objects, left
        # Outside the lock: disposing can take milliseconds.
        for item in left:
            self._end(item)

    def take(self) -> T | None:
        """Take the object that was given back last; None if there is none."""
        idle = self._here()
        with idle.lock:
            return idle.objects.pop() if idle.objects else None

    def give_back(self, item: T) -> None:
        """Give back an object that is idle now; it is pooled or disposed of."""
        idle = self._here()
        with idle.lock:
            if idle.enablers and len(idle.objects) < self._most:
                idle.objects.append(item)
                return
        self._end(item)
