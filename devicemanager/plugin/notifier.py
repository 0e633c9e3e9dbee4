"""A bell that cannot be missed."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Notifier"]


class Notifier:
    """Counts its rings, so that one between a look and the wait is not lost."""

    def __init__(self) -> None:
        self._rung = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def notify(self) -> None:
        with self._rung:
            self._count += 1
            self._rung.notify_all()

    def wait(self, seen: int, timeout: float) -> None:
        """Return once there were more than ``seen`` rings, or after ``timeout`` seconds."""
        with self._rung:
            self._rung.wait_for(lambda: self._count != seen, timeout)

    def wait_for(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``done``, looking at each ring."""
        with self._rung:
            return self._rung.wait_for(done, timeout)
