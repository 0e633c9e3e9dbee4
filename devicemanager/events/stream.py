"""Everything that happens, as one stream.

The log, the waiters of tests, the command's output, the live views and the metrics all read
the same events. Publishing never runs a callback under the publisher's lock: shells
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

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
from devicemanager.io.clock import Clock, SystemClock

_LOG = logging.getLogger("devicemanager")

T = TypeVar("T")


class EventKind(StrEnum):
    """What happened."""

    STARTED = "started"
    """The kubelet serves its sockets."""
    STOPPED = "stopped"
    """The kubelet serves no more."""
    REGISTERED = "registered"
    """A plugin is registered for a resource; its first list may still come."""
    REGISTRATION_REJECTED = "registration-rejected"
    """A plugin asked to be registered, or was found by the plugin watcher, and is not."""
    REPLACED = "replaced"
    """A plugin took the place of another one, or of its own older connection."""
    PROMOTED = "promoted"
    """The plugin that serves a resource went, and another that had stayed serves it now."""
    DEVICES_UPDATED = "devices-updated"
    """A plugin sent a device list that was taken in."""
    LIST_SUSPECT = "list-suspect"
    """A device list was taken in, but something in it looks wrong."""
    STREAM_ENDED = "stream-ended"
    """A plugin's ListAndWatch stream ended: none of its devices is allocatable."""
    ENDPOINT_EXPIRED = "endpoint-expired"
    """No plugin came within the grace period, and the resource is gone."""
    ADMITTED = "admitted"
    """A pod was admitted."""
    REJECTED = "rejected"
    """A pod was rejected."""
    ALLOCATED = "allocated"
    """A container got devices of a resource."""
    ALLOCATION_SUSPECT = "allocation-suspect"
    """An answer to Allocate was taken, but something in it looks wrong."""
    CONFLICT = "conflict"
    """Parts of what a container gets do not go together, or saved parts cannot be read."""
    CONTAINER_STARTED = "container-started"
    """A container was started."""
    CONTAINER_FAILED = "container-failed"
    """A container could not be started."""
    CONTAINER_EXITED = "container-exited"
    """A container ended."""
    CONTAINER_BACK_OFF = "container-back-off"
    """A container that ended again waits before its restart."""
    DELETING = "deleting"
    """A pod is to be deleted, and its containers have time to end."""
    FINISHED = "finished"
    """All containers of a pod have ended for good; its devices are free."""
    TERMINATED = "terminated"
    """A pod is gone; its devices are free."""
    DEVICE_HEALTH = "device-health"
    """The health of a device changed while a pod holds it."""
    HEALTH_DROPPED = "health-dropped"
    """Such a report was dropped, since too many wait for a reader."""
    UNKNOWN_RESOURCE = "unknown-resource"
    """A pod was admitted without a resource that no plugin has registered."""
    CHECKPOINT_LOADED = "checkpoint-loaded"
    """The checkpoint was read at the start."""
    CHECKPOINT_WRITTEN = "checkpoint-written"
    """The checkpoint is on disk."""
    CHECKPOINT_FAILED = "checkpoint-failed"
    """The checkpoint could not be written, or not be read."""
    CHECKPOINT_SET_ASIDE = "checkpoint-set-aside"
    """A damaged checkpoint was renamed, and the kubelet starts without one."""
    PROCESS_STARTED = "process-started"
    """A plugin that a test supervises was started."""
    PROCESS_ENDED = "process-ended"
    """A plugin that a test supervises ended."""
    POOL_PUBLISHED = "pool-published"
    """A driver published a pool of devices for structured claims."""
    CLAIM_ALLOCATED = "claim-allocated"
    """A structured claim got its devices."""
    CLAIM_RELEASED = "claim-released"
    """A structured claim gave its devices back."""
    CLAIM_DELETION_WAITS = "claim-deletion-waits"
    """A structured claim is to be deleted, and a pod still uses it."""
    CLAIM_DEVICE_GONE = "claim-device-gone"
    """A device that a structured claim holds is in no pool any more."""
    CLAIM_UNKNOWN = "claim-unknown"
    """A pod names structured claims where nobody published any: it runs without."""
    CLAIMS_LOADED = "claims-loaded"
    """The file of structured claims was read at the start."""
    CLAIMS_FAILED = "claims-failed"
    """The file of structured claims could not be written, or a driver failed at a claim."""
    CLAIMS_SET_ASIDE = "claims-set-aside"
    """A damaged file of structured claims was renamed, and all start free."""
    FAULT = "fault"
    """A fault on purpose fired."""
    SERVER_ERROR = "server-error"
    """A thread or server of the kubelet failed: a bug here."""


def event_kind(kind: EventKind | str) -> EventKind:
    """The kind of this name. Raises RequestError if there is none."""
    try:
        return EventKind(kind)
    except ValueError:
        known = ", ".join(each.value for each in EventKind)
        raise RequestError(f"there is no event {kind!r}: choose from {known}") from None


_WARNINGS = frozenset(
    {
        EventKind.REGISTRATION_REJECTED,
        EventKind.LIST_SUSPECT,
        EventKind.ALLOCATION_SUSPECT,
        EventKind.STREAM_ENDED,
        EventKind.REJECTED,
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
(DNS subdomain, slash, label), so only names that were rejected are cut."""
_POLL_SECONDS = 0.25
_FEW = 16
_DELIVERING = threading.local()
"""``streams``: those whose callbacks the thread is inside of. One for all: each would take more
than all else in a stream."""


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
        # Made for the first who waits: it is most of what a stream takes, and few are waited for.
        self._changed: threading.Condition | None = None
        self._waiting = 0
        # A deque takes more than a few events do.
        self._recent: deque[Event] | list[Event] = [] if keep <= _FEW else deque(maxlen=keep)
        self._keep = keep
        self._subscribers: tuple[Callback, ...] = ()
        self._latest = 0

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
        return self in getattr(_DELIVERING, "streams", ())

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
            if len(self._recent) > self._keep:
                del self._recent[0]
            subscribers = self._subscribers
            if self._waiting and self._changed is not None:
                self._changed.notify_all()
        if subscribers:
            self._deliver(event, subscribers)

    def _deliver(self, event: Event, subscribers: tuple[Callback, ...]) -> None:
        streams = getattr(_DELIVERING, "streams", ())
        _DELIVERING.streams = (*streams, self)
        try:
            notify(subscribers, event, "an event callback")
        finally:
            _DELIVERING.streams = streams

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` for every event from now on, on the thread that publishes it.
        Returns a function that ends the subscription. Raises TypeError for what cannot be
        called."""
        if not callable(callback):
            raise TypeError(f"a callback is called with each event: {callback!r} cannot be")
        with self._lock:
            self._subscribers = (*self._subscribers, callback)

        return lambda: self._unsubscribe(callback)

    def _unsubscribe(self, callback: Callback) -> None:
        with self._lock:
            self._subscribers = tuple(c for c in self._subscribers if c is not callback)

    def recent(self, *kinds: EventKind | str) -> tuple[Event, ...]:
        """The latest events, oldest first; of the given kinds only, if any are given. Raises
        RequestError for a kind that there is not."""
        wanted = frozenset(map(event_kind, kinds))
        with self._lock:
            events = tuple(self._recent)
        return tuple(e for e in events if e.kind in wanted) if wanted else events

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
                if self._changed is None:
                    self._changed = threading.Condition(self._lock)
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
