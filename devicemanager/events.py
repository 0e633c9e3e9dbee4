"""Everything that happens, as one stream.

The log, the waiters of tests, the command's output and later the metrics all read the
same events. Publishing never runs a callback under the publisher's lock: shells
publish after they have let theirs go.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import attrs

from devicemanager.clock import Clock, SystemClock
from devicemanager.core.printable import printable

_LOG = logging.getLogger("devicemanager")

T = TypeVar("T")


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
    ALLOCATION_SUSPECT = "allocation-suspect"
    CONFLICT = "conflict"
    CONTAINER_STARTED = "container-started"
    CONTAINER_FAILED = "container-failed"
    CONTAINER_EXITED = "container-exited"
    CONTAINER_BACK_OFF = "container-back-off"
    DELETING = "deleting"
    FINISHED = "finished"
    TERMINATED = "terminated"
    DEVICE_HEALTH = "device-health"
    HEALTH_DROPPED = "health-dropped"
    UNKNOWN_RESOURCE = "unknown-resource"
    CHECKPOINT_LOADED = "checkpoint-loaded"
    CHECKPOINT_WRITTEN = "checkpoint-written"
    CHECKPOINT_FAILED = "checkpoint-failed"
    CHECKPOINT_SET_ASIDE = "checkpoint-set-aside"
    PROCESS_STARTED = "process-started"
    PROCESS_ENDED = "process-ended"
    POOL_PUBLISHED = "pool-published"
    CLAIM_ALLOCATED = "claim-allocated"
    CLAIM_RELEASED = "claim-released"
    CLAIM_DELETION_WAITS = "claim-deletion-waits"
    CLAIM_DEVICE_GONE = "claim-device-gone"
    CLAIM_UNKNOWN = "claim-unknown"
    CLAIMS_LOADED = "claims-loaded"
    CLAIMS_FAILED = "claims-failed"
    CLAIMS_SET_ASIDE = "claims-set-aside"
    FAULT = "fault"
    SERVER_ERROR = "server-error"


_WARNINGS = frozenset(
    {
        EventKind.REGISTRATION_REFUSED,
        EventKind.LIST_SUSPECT,
        EventKind.ALLOCATION_SUSPECT,
        EventKind.STREAM_ENDED,
        EventKind.REFUSED,
        EventKind.CONFLICT,
        EventKind.CONTAINER_FAILED,
        EventKind.CONTAINER_BACK_OFF,
        EventKind.HEALTH_DROPPED,
        EventKind.UNKNOWN_RESOURCE,
        EventKind.CHECKPOINT_FAILED,
        EventKind.CHECKPOINT_SET_ASIDE,
        EventKind.CLAIM_DEVICE_GONE,
        EventKind.CLAIM_UNKNOWN,
        EventKind.CLAIMS_FAILED,
        EventKind.CLAIMS_SET_ASIDE,
        EventKind.SERVER_ERROR,
    }
)


@attrs.frozen
class Event:
    """One thing that happened."""

    time: float
    """Seconds since the epoch, by the kubelet's clock."""
    kind: EventKind
    message: str
    """One line for people, safe to print: control characters of device ids and of plugins'
    errors are shown as escapes, and very long texts are cut."""
    resource: str | None = None
    """The resource concerned, as its plugin wrote it; cut if it is too long for a name."""
    pod: str | None = None
    """The UID of the pod concerned."""
    details: Mapping[str, object] = attrs.field(factory=dict)
    number: int = attrs.field(default=0, eq=False)
    """Events of one stream are numbered from 1."""

    @property
    def is_warning(self) -> bool:
        return self.kind in _WARNINGS

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


Callback = Callable[[Event], None]

_LONGEST_NAME = 512
"""Characters of a resource's name that an event keeps: a valid one has 317 at most
(DNS subdomain, slash, label), so only names that were refused are cut."""
_POLL_SECONDS = 0.25


def notify(callbacks: Iterable[Callable[[T], None]], value: T, what: str) -> None:
    """Call each with ``value``. One that raises is logged as ``what``, and the next is called."""
    for callback in callbacks:
        try:
            callback(value)
        except KeyboardInterrupt:
            raise  # nobody's mistake: the program is to end
        except BaseException:
            # SystemExit and a test's outcome, too: threads of ours call this.
            _LOG.exception("%s failed on %s", what, value)


class EventStream:
    """Publishes events to subscribers, keeps the latest, wakes waiters.

    ``keep`` is how many events ``recent`` remembers at most.
    """

    def __init__(self, clock: Clock | None = None, keep: int = 1000) -> None:
        self._clock = clock or SystemClock()
        # Guards everything below; no callback runs under it. May be taken again by the
        # thread that has it: a signal handler may publish at any moment.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._recent: deque[Event] = deque(maxlen=keep)
        self._subscribers: tuple[Callback, ...] = ()
        self._latest = 0
        self._delivering = threading.local()

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._latest

    def now(self) -> float:
        """The time that an event would have now."""
        return self._clock.time()

    @property
    def is_delivering(self) -> bool:
        """Whether the calling thread is inside a callback of this stream."""
        return getattr(self._delivering, "depth", 0) > 0

    def publish(
        self,
        kind: EventKind,
        message: str,
        *,
        resource: str | None = None,
        pod: str | None = None,
        **details: object,
    ) -> None:
        """Something happened now. A callback that raises is logged and costs nobody else.

        ``message`` is made safe to print here, whatever it contains.
        """
        message = printable(message)
        if resource is not None and len(resource) > _LONGEST_NAME:
            resource = resource[:_LONGEST_NAME]
        now = self._clock.time()
        with self._lock:
            self._latest += 1
            event = Event(now, kind, message, resource, pod, details, self._latest)
            self._recent.append(event)
            subscribers = self._subscribers
            if self._waiting:
                self._changed.notify_all()
        if subscribers:
            self._deliver(event, subscribers)

    def _deliver(self, event: Event, subscribers: tuple[Callback, ...]) -> None:
        depth = getattr(self._delivering, "depth", 0)
        self._delivering.depth = depth + 1
        try:
            notify(subscribers, event, "an event callback")
        finally:
            self._delivering.depth = depth

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` for every event from now on, on the thread that publishes it.
        Returns a function that ends the subscription."""
        with self._lock:
            self._subscribers = (*self._subscribers, callback)

        return lambda: self._unsubscribe(callback)

    def _unsubscribe(self, callback: Callback) -> None:
        with self._lock:
            self._subscribers = tuple(c for c in self._subscribers if c is not callback)

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The latest events, oldest first; of the given kinds only, if any are given."""
        with self._lock:
            events = tuple(self._recent)
        return tuple(e for e in events if not kinds or e.kind in kinds)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition()`` holds, looking again after every event.

        Returns whether it did within ``timeout`` seconds. The condition runs without
        the stream's lock, so it may ask anything of the kubelet.
        """
        limit = SystemClock().monotonic() + timeout
        while True:
            with self._lock:
                seen = self._latest
            if condition():
                return True
            with self._lock:
                rest = limit - SystemClock().monotonic()
                if rest <= 0:
                    return False
                if self._latest == seen:
                    # Bounded, so that conditions which time alone fulfils are seen too.
                    self._waiting += 1
                    try:
                        self._changed.wait(min(rest, _POLL_SECONDS))
                    finally:
                        self._waiting -= 1
