"""The queue of a client of WatchPods, and the events in it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from enum import StrEnum

CHANNEL_SIZE = 100
"""Events that wait for a client (``WatchPods``, pkg/kubelet/apis/pods/server.go, v1.37)."""


class EventType(StrEnum):
    """Type of an event of WatchPods."""

    UNSPECIFIED = "UNSPECIFIED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    """The pod has ended or was deleted."""
    INITIAL_SYNC_COMPLETE = "INITIAL_SYNC_COMPLETE"
    """All pods that existed when the watch began were sent."""


class Watcher:
    """Bounded queue of events; thread-safe. ``put`` never waits for the reader.

    A queue that is full is closed, as a kubelet does. The reader gets the events in it, and then
    the end.
    """

    def __init__(self, size: int = CHANNEL_SIZE) -> None:
        self._size = size
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._events: deque[tuple[EventType, bytes]] = deque()
        self._is_closed = False

    def put(self, event: EventType, pod: bytes) -> bool:
        """Append an event. False if the queue was full: it is closed now."""
        with self._changed:
            if self._is_closed:
                return True
            is_full = len(self._events) >= self._size
            if is_full:
                self._is_closed = True
            else:
                self._events.append((event, pod))
            self._changed.notify()
            return not is_full

    def close(self) -> None:
        """End the queue after the events in it. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def __iter__(self) -> Iterator[tuple[EventType, bytes]]:
        """Wait for events, until the queue is closed and empty."""
        while True:
            with self._changed:
                while not self._events:
                    if self._is_closed:
                        return
                    self._changed.wait()
                event = self._events.popleft()
            yield event
