"""Wait for the next change without missing a change."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Notifier"]


class Notifier:
    """Counter of notifications. Threads wait until the count changes.

    Read ``count``, check the state, then call ``wait(count)``. A notification between the check
    and the wait is not lost, because it changes the count.
    """

    def __init__(self) -> None:
        # Guards _count.
        self._changed = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def notify(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> None:
        """Wait until ``count`` differs from ``seen``, or until ``timeout`` seconds have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != seen, timeout)

    def wait_for(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``done`` returns True; call ``done`` after each notification.

        Return False after ``timeout`` seconds.
        """
        with self._changed:
            return self._changed.wait_for(done, timeout)
