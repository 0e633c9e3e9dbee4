"""What runs in the background and is idle between two users: kept for the next, or ended."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["IdlePool"]

T = TypeVar("T")


class _Idle(Generic[T]):
    """What is idle in one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Guards the two below; not held while something is ended.
        self.lock = threading.Lock()
        self.keepers = 0
        self.things: list[T] = []


class IdlePool(Generic[T]):
    """Things of one kind that nobody uses now; none unless somebody keeps them.

    Whoever takes one has it alone until it is given back. A forked child finds none: the
    threads of the parent's are not there.
    """

    def __init__(self, most: int, end: Callable[[T], None]) -> None:
        """At most so many are kept; ``end`` ends one that is not."""
        self._most = most
        self._end = end
        self._idle: _Idle[T] = _Idle()

    def _here(self) -> _Idle[T]:
        # After a fork the parent's lock may be held for ever.
        if self._idle.pid != os.getpid():
            self._idle = _Idle()
        return self._idle

    @contextlib.contextmanager
    def enabled(self) -> Iterator[None]:
        """Keep what is given back, until the end of the block."""
        idle = self._here()
        with idle.lock:
            idle.keepers += 1
        try:
            yield
        finally:
            if idle is self._here():
                self._let_go(idle)

    def _let_go(self, idle: _Idle[T]) -> None:
        left: list[T] = []
        with idle.lock:
            idle.keepers -= 1
            if not idle.keepers:
                left, idle.things = idle.things, left
        for thing in left:
            self._end(thing)

    def take(self) -> T | None:
        """One that is idle, the latest that was given back; None if there is none."""
        idle = self._here()
        with idle.lock:
            return idle.things.pop() if idle.things else None

    def give_back(self, thing: T) -> None:
        """It is idle now: kept, or ended."""
        idle = self._here()
        with idle.lock:
            if idle.keepers and len(idle.things) < self._most:
                idle.things.append(thing)
                return
        self._end(thing)
