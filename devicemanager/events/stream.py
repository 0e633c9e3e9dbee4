"""The event stream: publish, store and read events, and wait for them.

Theory of operation. ``publish`` creates a numbered ``Event`` under the stream's lock, stores
it, wakes waiting threads and releases the lock. After that, it calls the subscribers on the
publishing thread. A callback may therefore publish, subscribe or read the stream, but a slow
callback delays its publisher. Publishers must not hold a lock of the kubelet, because a callback
may call the kubelet.

``wait_for`` evaluates an arbitrary condition after each event. It notes the latest event number
before it evaluates the condition and sleeps only if that number has not changed. An event
published in between is therefore not missed. ``wait_for`` also wakes up four times a second,
because a condition can become true without an event.

The lock is reentrant: a signal handler can publish while the same thread is publishing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import TypeVar

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
from devicemanager.io.clock import Clock, SystemClock

_LOG = logging.getLogger("devicemanager")

T = TypeVar("T")


class EventKind(StrEnum):
    """What an event reports, such as a registration or a rejected pod.

    A *structured claim* is a request for devices in the API ``devmgmtproto.k8s.io``, the
    predecessor of DRA (docs/claims.md). It is not a ResourceClaim.
    """

    STARTED = "started"
    """The kubelet started to serve its sockets."""
    STOPPED = "stopped"
    """The kubelet stopped serving."""
    REGISTERED = "registered"
    """A plugin registered for a resource; its first device list can still be missing."""
    REGISTRATION_REJECTED = "registration-rejected"
    """A plugin that called Register, or that the plugin watcher found, was not registered."""
    REPLACED = "replaced"
    """A new registration for a resource replaced an older one, of the same or another plugin."""
    PROMOTED = "promoted"
    """The plugin that served a resource disconnected, and another registered plugin serves it
    now."""
    DEVICES_UPDATED = "devices-updated"
    """A plugin sent a device list, and the kubelet applied the list."""
    LIST_SUSPECT = "list-suspect"
    """A device list was applied, but part of it is probably a mistake of the plugin."""
    STREAM_ENDED = "stream-ended"
    """A plugin's ListAndWatch stream ended: its devices are not allocatable."""
    ENDPOINT_EXPIRED = "endpoint-expired"
    """No plugin re-registered within the grace period: the resource was removed."""
    ADMITTED = "admitted"
    """A pod was admitted."""
    REJECTED = "rejected"
    """A pod was rejected."""
    ALLOCATED = "allocated"
    """Devices of a resource were allocated to a container."""
    ALLOCATION_SUSPECT = "allocation-suspect"
    """A response to Allocate was accepted, but something in it looks wrong."""
    CONFLICT = "conflict"
    """Settings from several Allocate responses or CDI devices conflict. Also: a container's CDI
    devices cannot be passed as annotations, or an Allocate response in the checkpoint cannot be
    read."""
    CONTAINER_STARTED = "container-started"
    """A container was started."""
    CONTAINER_FAILED = "container-failed"
    """A container could not be started."""
    CONTAINER_EXITED = "container-exited"
    """A container exited."""
    CONTAINER_BACK_OFF = "container-back-off"
    """A container that exited repeatedly waits before its restart."""
    RESIZE_STARTED = "resize-started"
    """New CPU and memory were allocated to a running pod."""
    RESIZE_PENDING = "resize-pending"
    """The node cannot resize a pod now, or the pending resize of a pod was withdrawn."""
    RESIZE_COMPLETED = "resize-completed"
    """The containers of a pod have their new CPU and memory."""
    DELETING = "deleting"
    """A pod is being deleted; its containers have time to exit."""
    FINISHED = "finished"
    """All containers of a pod have exited for good; its devices are free."""
    TERMINATED = "terminated"
    """A pod was deleted; its devices are free."""
    DEVICE_HEALTH = "device-health"
    """The health of an allocated device changed."""
    HEALTH_DROPPED = "health-dropped"
    """A report of changed device health was dropped, because the queue ``health_updates`` is full.
    Also: devices in a DRA driver's report were ignored."""
    UNKNOWN_RESOURCE = "unknown-resource"
    """A pod requests a resource that no plugin has registered, and runs without the resource."""
    CHECKPOINT_LOADED = "checkpoint-loaded"
    """The checkpoint was read at startup."""
    CHECKPOINT_WRITTEN = "checkpoint-written"
    """The checkpoint was written to disk."""
    CHECKPOINT_FAILED = "checkpoint-failed"
    """The checkpoint could not be written or read."""
    CHECKPOINT_SET_ASIDE = "checkpoint-set-aside"
    """A corrupt checkpoint was renamed, and the kubelet starts without it."""
    PROCESS_STARTED = "process-started"
    """A test's plugin process was started."""
    PROCESS_ENDED = "process-ended"
    """A test's plugin process exited."""
    POOL_PUBLISHED = "pool-published"
    """A driver published a pool of devices for structured claims (see ``EventKind``)."""
    CLAIM_ALLOCATED = "claim-allocated"
    """Devices were allocated to a structured claim (see ``EventKind``)."""
    CLAIM_RELEASED = "claim-released"
    """A structured claim (see ``EventKind``) released its devices."""
    CLAIM_DELETION_WAITS = "claim-deletion-waits"
    """The deletion of a structured claim (see ``EventKind``) waits for a pod that uses it."""
    CLAIM_DEVICE_GONE = "claim-device-gone"
    """A device of a structured claim (see ``EventKind``) is no longer in any pool."""
    CLAIM_UNKNOWN = "claim-unknown"
    """A pod refers to structured claims, but the node has no structured claims, device pools or
    device classes. The pod runs without its claims."""
    CLAIMS_LOADED = "claims-loaded"
    """The file of structured claims (see ``EventKind``) was read at startup."""
    CLAIMS_FAILED = "claims-failed"
    """The file of structured claims could not be written, or a driver could not unprepare the
    devices of a claim."""
    CLAIMS_SET_ASIDE = "claims-set-aside"
    """A corrupt file of structured claims was renamed, and all their allocations are lost."""
    DRIVER_REGISTERED = "driver-registered"
    """An instance of a DRA driver registered."""
    DRIVER_CONNECTED = "driver-connected"
    """The kubelet connected to the service socket of a DRA driver."""
    DRIVER_DISCONNECTED = "driver-disconnected"
    """The connection to the service socket of a DRA driver was lost."""
    DRIVER_DEREGISTERED = "driver-deregistered"
    """The registration socket of a DRA driver vanished."""
    CLAIMS_PREPARED = "claims-prepared"
    """DRA drivers prepared the ResourceClaims of a pod."""
    PREPARE_FAILED = "prepare-failed"
    """The ResourceClaims of a pod could not be prepared: the pod stays Pending."""
    CLAIMS_UNPREPARED = "claims-unprepared"
    """DRA drivers unprepared the ResourceClaims of a pod."""
    UNPREPARE_FAILED = "unprepare-failed"
    """The ResourceClaims of a pod could not be unprepared: the pod cannot end."""
    SLICES_WIPED = "slices-wiped"
    """The kubelet deleted ResourceSlices, or could not delete them."""
    DRA_STATE_LOADED = "dra-state-loaded"
    """The file ``dra_manager_state`` was read at startup."""
    DRA_STATE_FAILED = "dra-state-failed"
    """The file ``dra_manager_state`` or ``dra_health_state`` could not be written."""
    DRA_STATE_SET_ASIDE = "dra-state-set-aside"
    """A corrupt file ``dra_manager_state`` was renamed, and the kubelet starts without it."""
    POD_UNSCHEDULABLE = "pod-unschedulable"
    """The scheduler of a test's API server (``ApiNode``) finds no node for a pod."""
    DRA_OBJECTS_CHANGED = "dra-objects-changed"
    """A DRA object was created, changed or deleted. With an API server, this event reports only
    ResourceSlices of the node. Without one, it reports the ResourceClaims, ResourceSlices,
    DeviceClasses and ResourceClaimTemplates in the kubelet's memory."""
    WATCH_DROPPED = "watch-dropped"
    """A watch of the Pods API ended, because its client read too slowly."""
    FAULT = "fault"
    """An injected fault fired."""
    SERVER_ERROR = "server-error"
    """A thread or server of the kubelet failed: a bug of devicemanager."""


def event_kind(kind: EventKind | str) -> EventKind:
    """Return the event kind with this name. Raises RequestError for an unknown name."""
    try:
        return EventKind(kind)
    except ValueError:
        known = ", ".join(each.value for each in EventKind)
        raise RequestError(f"unknown event {kind!r}: use one of {known}") from None


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
        EventKind.DRIVER_DISCONNECTED,
        EventKind.PREPARE_FAILED,
        EventKind.UNPREPARE_FAILED,
        EventKind.DRA_STATE_FAILED,
        EventKind.DRA_STATE_SET_ASIDE,
        EventKind.POD_UNSCHEDULABLE,
        EventKind.WATCH_DROPPED,
        EventKind.SERVER_ERROR,
    }
)


@attrs.frozen
class Event:
    """Something that happened in a kubelet: its kind, its time and a message for people."""

    time: float
    """Seconds since the epoch, by the kubelet's clock."""
    kind: EventKind
    message: str
    """One line for people, safe to print: control characters are escaped and very long texts
    are cut."""
    resource: str | None = None
    """Name of the resource or DRA driver that the event is about, as the plugin wrote it. None if
    the event is about neither. A name that is too long is cut."""
    pod: str | None = None
    """UID of the pod that the event is about; None if it is not about a pod."""
    details: Mapping[str, object] = attrs.field(factory=dict)
    number: int = attrs.field(default=0, eq=False)
    """Number of the event in its stream. The first event has the number 1."""

    @property
    def is_warning(self) -> bool:
        return self.kind in _WARNINGS

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


Callback = Callable[[Event], None]

_LONGEST_NAME = 512
"""Maximum number of characters of a resource name that an event stores. A valid name has at most
317 (DNS subdomain, slash, label), so only names that were rejected are cut."""
_POLL_SECONDS = 0.25
_FEW = 16
_DELIVERING = threading.local()
"""``streams`` has the streams whose callbacks are running on the current thread. All streams
share this object: a ``threading.local`` for each would need more memory than a stream itself."""


def notify(callbacks: Iterable[Callable[[T], None]], value: T, what: str) -> None:
    """Call each callback with ``value``; log exceptions, and continue with the next callback.

    ``what`` names the callbacks in the log.
    """
    for callback in callbacks:
        try:
            callback(value)
        except KeyboardInterrupt:
            raise  # not the callback's failure: the user ends the program
        except BaseException:
            # Also SystemExit and pytest outcomes: they must not end a thread of the kubelet.
            _LOG.exception("%s failed on %s", what, value)


class EventStream:
    """Publisher of events. It stores the latest ``keep`` events, and wakes threads that wait for an
    event. Thread-safe."""

    def __init__(self, clock: Clock | None = None, keep: int = 1000) -> None:
        self._clock = clock or SystemClock()
        # Guards all fields below; not held during callbacks. Reentrant: a signal
        # handler may publish while the same thread holds it.
        self._lock = threading.RLock()
        # Created by the first wait: it needs most of a stream's memory, and few streams
        # are waited for.
        self._changed: threading.Condition | None = None
        self._waiting = 0
        # An empty deque needs more memory than a list of a few events.
        self._recent: deque[Event] | list[Event] = [] if keep <= _FEW else deque(maxlen=keep)
        self._keep = keep
        self._subscribers: tuple[Callback, ...] = ()
        self._latest = 0

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._latest

    def now(self) -> float:
        """Return the current time of the kubelet's clock, in seconds since the epoch."""
        return self._clock.time()

    @property
    def is_delivering(self) -> bool:
        """True if the calling thread is inside a callback of this stream."""
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
        """Publish an event. Exceptions in a callback are logged and do not affect other callbacks.

        ``message`` may contain any text: unsafe characters are escaped here. ``details`` are values
        for programs; docs/json.md lists them.
        """
        message = printable(message)
        if resource is not None and len(resource) > _LONGEST_NAME:
            resource = resource[:_LONGEST_NAME]
        # Read before the lock: a test's clock may take its own lock.
        now = self._clock.time()
        with self._lock:
            self._latest += 1
            event = Event(now, kind, message, resource, pod, details, self._latest)
            self._recent.append(event)
            # Only a list needs this: a deque drops its oldest event itself.
            if len(self._recent) > self._keep:
                del self._recent[0]
            # A tuple that is replaced, never changed: it can be used after the lock is released.
            subscribers = self._subscribers
            # notify_all costs time even if no thread waits, and every admission publishes.
            if self._waiting and self._changed is not None:
                self._changed.notify_all()
        if subscribers:
            self._deliver(event, subscribers)

    def _deliver(self, event: Event, subscribers: tuple[Callback, ...]) -> None:
        streams = getattr(_DELIVERING, "streams", ())
        # A stack, because a callback may publish to another stream.
        _DELIVERING.streams = (*streams, self)
        try:
            notify(subscribers, event, "an event callback")
        finally:
            _DELIVERING.streams = streams

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` for every later event, on the thread that publishes it.

        Returns a function that ends the subscription. Raises TypeError if ``callback`` is not
        callable.
        """
        if not callable(callback):
            raise TypeError(f"invalid callback {callback!r}: expected a callable")
        # An object of its own: a callback can have several subscriptions, which end separately.
        subscription = partial(callback)
        with self._lock:
            self._subscribers = (*self._subscribers, subscription)

        return lambda: self._unsubscribe(subscription)

    def _unsubscribe(self, subscription: Callback) -> None:
        with self._lock:
            self._subscribers = tuple(s for s in self._subscribers if s is not subscription)

    def recent(self, *kinds: EventKind | str) -> tuple[Event, ...]:
        """Return the stored events, oldest first; if kinds are given, only events of these kinds.

        Raises RequestError for an unknown kind.
        """
        wanted = frozenset(map(event_kind, kinds))
        with self._lock:
            events = tuple(self._recent)
        return tuple(e for e in events if e.kind in wanted) if wanted else events

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition()`` is true; return True, or False after ``timeout`` seconds.

        The condition is evaluated after every event. It runs without the stream's lock, so it
        may call the kubelet.
        """
        # Real time, also with a ManualClock: a wait in a test must always end.
        limit = SystemClock().monotonic() + timeout
        while True:
            with self._lock:
                seen = self._latest
            if condition():
                return True
            with self._lock:
                if self._changed is None:
                    self._changed = threading.Condition(self._lock)
                remaining = limit - SystemClock().monotonic()
                if remaining <= 0:
                    return False
                # If an event came while the condition was evaluated, do not sleep: evaluate the
                # condition again.
                if self._latest == seen:
                    # Not longer: a condition can become true without an event, just by time.
                    self._waiting += 1
                    try:
                        self._changed.wait(min(remaining, _POLL_SECONDS))
                    finally:
                        self._waiting -= 1
