"""Pools of idle background objects, such as threads, so that a process can reuse the objects."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["IdlePool"]

T = TypeVar("T")


class _Idle(Generic[T]):
    """Storage for the idle objects of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Guards the two fields below; not held while an object is disposed of.
        self.lock = threading.Lock()
        self.enablers = 0
        self.objects: list[T] = []


class IdlePool(Generic[T]):
    """Pool of idle objects; empty unless pooling is enabled. Thread-safe.

    The caller of ``take`` owns the object until it calls ``give_back``. A forked child process
    has an empty pool, because threads of its parent do not exist in it.
    """

    def __init__(self, most: int, end: Callable[[T], None]) -> None:
        """Create a pool of at most ``most`` objects; ``end`` disposes of an object."""
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
        """Enable pooling until the end of the ``with`` block."""
        idle = self._here()
        with idle.lock:
            idle.enablers += 1
        try:
            yield
        finally:
            # A child process that was forked inside the block has another pool.
            if idle is self._here():
                self._disable(idle)

    def _disable(self, idle: _Idle[T]) -> None:
        left: list[T] = []
        with idle.lock:
            idle.enablers -= 1
            if not idle.enablers:
                left, idle.objects = idle.objects, left
        # Without the lock, because disposing can take milliseconds.
        for item in left:
            self._end(item)

    def take(self) -> T | None:
        """Return the object that was given back last, and remove it from the pool; return None if
        the pool is empty."""
        idle = self._here()
        with idle.lock:
            return idle.objects.pop() if idle.objects else None

    def give_back(self, item: T) -> None:
        """Put an idle object into the pool, or dispose of it if pooling is disabled or the pool is
        full."""
        idle = self._here()
        with idle.lock:
            if idle.enablers and len(idle.objects) < self._most:
                idle.objects.append(item)
                return
        self._end(item)
