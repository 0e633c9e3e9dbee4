"""A lock that waiting threads get in the order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lock that threads get in the order in which they request it. Thread-safe, not reentrant."""

    # ``threading.Lock`` has no order: a thread can take it again and again while others wait.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by the lock. The first entry is the thread whose turn it is.
        self._queue: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the thread's turn. The turn ends with the ``with`` statement."""
        mine = threading.Event()
        with self._lock:
            self._queue.append(mine)
            if self._queue[0] is mine:
                mine.set()
        try:
            mine.wait()
            yield
        finally:
            # Also after an interrupt while waiting, such as KeyboardInterrupt.
            with self._lock:
                self._queue.remove(mine)
                if self._queue:
                    self._queue[0].set()
