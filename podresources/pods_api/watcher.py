"""The queue of a client of WatchPods, and the events in it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum

CHANNEL_SIZE = 100
"""Number of unread events below which a queue is never full (``WatchPods``,
pkg/kubelet/apis/pods/server.go, v1.37). With this number or more, the queue is full if its client
is slow (``PATIENCE``) or its events have too many bytes (``LIMIT_BYTES``)."""

PATIENCE = 1.0
"""Seconds after which a client that has not read any event counts as slow."""

LIMIT_BYTES = 32 << 20
"""Total size of unread events, in bytes. From this size on, a queue with at least ``CHANNEL_SIZE``
events is full even if its client is not slow."""


class EventType(StrEnum):
    """What an event of WatchPods reports, such as a pod that was added."""

    UNSPECIFIED = "UNSPECIFIED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    """The pod has ended or was deleted."""
    INITIAL_SYNC_COMPLETE = "INITIAL_SYNC_COMPLETE"
    """All pods that existed when the watch began were sent."""


class Watcher:
    """Bounded queue of events; thread-safe. ``put`` never waits for the reader.

    A full queue closes itself. The reader still gets the events in it.
    """

    # The kubelet closes a queue at the 101st event. Here a test can admit pods a hundred times
    # faster than a kubelet does, and no client would keep up. So the reader must also be stalled,
    # unless the queue needs too much memory.

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns the time in seconds."""
        self._clock = clock
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._events: deque[tuple[EventType, bytes]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._stalled_since = 0.0  # the last progress, while there are events

    def put(self, event: EventType, pod: bytes) -> bool:
        """Append an event and return True. If the queue is full, close the queue instead and return
        False. If the queue is already closed, drop the event and return True."""
        with self._changed:
            if self._is_closed:
                return True
            if self._is_full():
                self._is_closed = True
            else:
                if not self._events:
                    self._stalled_since = self._clock()
                self._events.append((event, pod))
                self._bytes += len(pod)
            self._changed.notify()
            return not self._is_closed

    def _is_full(self) -> bool:
        if len(self._events) < CHANNEL_SIZE:
            return False
        return self._bytes >= LIMIT_BYTES or self._clock() - self._stalled_since >= PATIENCE

    def close(self) -> None:
        """Accept no more events. The reader still gets the events in the queue. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def __iter__(self) -> Iterator[tuple[EventType, bytes]]:
        """Yield each event with its pod. Wait for events until the queue is closed and empty."""
        while True:
            with self._changed:
                while not self._events:
                    if self._is_closed:
                        return
                    self._changed.wait()
                event = self._events.popleft()
                self._bytes -= len(event[1])
                self._stalled_since = self._clock()
            yield event
