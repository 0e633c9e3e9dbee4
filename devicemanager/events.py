"""Everything that happens, as one stream.

The log, the waiters of tests, the command's output and later the metrics all read the
same events. Publishing never runs a callback under the publisher's lock: shells
publish after they have let theirs go.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum

import attrs

from devicemanager.clock import Clock, SystemClock

_LOG = logging.getLogger("devicemanager")


class EventKind(StrEnum):
    """What happened."""

    STARTED = "started"
    STOPPED = "stopped"
    REGISTERED = "registered"
    REGISTRATION_REFUSED = "registration-refused"
    REPLACED = "replaced"
    PROMOTED = "promoted"
    LISTED = "listed"
    LIST_SUSPECT = "list-suspect"
    STREAM_ENDED = "stream-ended"
    ENDPOINT_EXPIRED = "endpoint-expired"
    ADMITTED = "admitted"
    REFUSED = "refused"
    ALLOCATED = "allocated"
    CONFLICT = "conflict"
    CONTAINER_STARTED = "container-started"
    CONTAINER_FAILED = "container-failed"
    FINISHED = "finished"
    TERMINATED = "terminated"
    DEVICE_HEALTH = "device-health"
    HEALTH_DROPPED = "health-dropped"
    UNKNOWN_RESOURCE = "unknown-resource"
    CHECKPOINT_LOADED = "checkpoint-loaded"
    CHECKPOINT_WRITTEN = "checkpoint-written"
    CHECKPOINT_FAILED = "checkpoint-failed"
    CHECKPOINT_SET_ASIDE = "checkpoint-set-aside"
    SERVER_ERROR = "server-error"


_WARNINGS = frozenset(
    {
        EventKind.REGISTRATION_REFUSED,
        EventKind.LIST_SUSPECT,
        EventKind.STREAM_ENDED,
        EventKind.REFUSED,
        EventKind.CONFLICT,
        EventKind.CONTAINER_FAILED,
        EventKind.HEALTH_DROPPED,
        EventKind.UNKNOWN_RESOURCE,
        EventKind.CHECKPOINT_FAILED,
        EventKind.CHECKPOINT_SET_ASIDE,
        EventKind.SERVER_ERROR,
    }
)


@attrs.frozen
class Event:
    """One thing that happened. ``message`` is one line for people."""

    time: float
    """Seconds since the epoch, by the kubelet's clock."""
    kind: EventKind
    message: str
    resource: str | None = None
    pod: str | None = None
    """The UID of the pod concerned."""
    details: Mapping[str, object] = attrs.field(factory=dict)

    @property
    def is_warning(self) -> bool:
        return self.kind in _WARNINGS

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


Callback = Callable[[Event], None]


class EventStream:
    """Publishes events to subscribers, keeps the latest, wakes waiters.

    ``keep`` is how many events ``recent`` remembers at most.
    """

    def __init__(self, clock: Clock | None = None, keep: int = 1000) -> None:
        self._clock = clock or SystemClock()
        # Guards _recent and _subscribers, and wakes wait_for; no callback runs under it.
        self._changed = threading.Condition()
        self._recent: deque[Event] = deque(maxlen=keep)
        self._subscribers: tuple[Callback, ...] = ()

    def publish(
        self,
        kind: EventKind,
        message: str,
        *,
        resource: str | None = None,
        pod: str | None = None,
        **details: object,
    ) -> None:
        """Something happened now. A callback that raises is logged and costs nobody else."""
        message = " ".join(message.split("\n"))  # a plugin's error may have many lines
        event = Event(self._clock.time(), kind, message, resource, pod, details)
        with self._changed:
            self._recent.append(event)
            subscribers = self._subscribers
            self._changed.notify_all()
        for callback in subscribers:
            try:
                callback(event)
            except Exception:
                _LOG.exception("an event callback failed on %s", event)

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` for every event from now on, on the thread that publishes it.
        Returns a function that ends the subscription."""
        with self._changed:
            self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            with self._changed:
                self._subscribers = tuple(c for c in self._subscribers if c is not callback)

        return unsubscribe

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The latest events, oldest first; of the given kinds only, if any are given."""
        with self._changed:
            events = tuple(self._recent)
        return tuple(e for e in events if not kinds or e.kind in kinds)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition()`` holds, looking again after every event.

        Returns whether it did within ``timeout`` seconds. The condition runs without
        the stream's lock, so it may ask anything of the kubelet.
        """
        limit = SystemClock().monotonic() + timeout
        while True:
            with self._changed:
                seen = self._recent[-1] if self._recent else None
            if condition():
                return True
            with self._changed:
                newest = self._recent[-1] if self._recent else None
                rest = limit - SystemClock().monotonic()
                if rest <= 0:
                    return False
                if newest is seen:
                    # Bounded, so that conditions which time alone fulfils are seen too.
                    self._changed.wait(min(rest, 0.25))
