"""Kubernetes events of the kubelet (core/v1), with the rate limits of client-go
(``tools/record``, v0.32)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

import attrs

from devicemanager.client.errors import ApiError
from devicemanager.client.protocol import Api, JsonObject
from devicemanager.client.work_queue import Priority, Queue
from devicemanager.io.clock import Clock
from devicemanager.objects.status.times import timestamp

__all__ = ["EventRecorder", "EventType", "ObjectReference"]

_BURST: Final = 25
"""Number of events about one object that can be written without a pause."""
_REFILL: Final = 300.0
"""Seconds after which one more event about the object can be written."""
_SIMILAR: Final = 10
"""Number of different messages in ``_WINDOW`` seconds after which further messages are combined."""
_WINDOW: Final = 600.0
"""Period in seconds for which the messages of similar events are stored."""
# client-go stores 4096 events per process, but this process can have thousands of nodes.
_REMEMBERED: Final = 64
"""Number of stored events per node. A repetition of a stored event increases its count."""

EventType = Literal["Normal", "Warning"]
"""Value of the field ``type`` of a Kubernetes event."""


@attrs.frozen
class ObjectReference:
    """Reference to the object that a Kubernetes event is about."""

    kind: str
    name: str
    uid: str
    namespace: str = ""

    def as_object(self) -> JsonObject:
        """Return the reference as the field ``involvedObject`` of an event."""
        found = {"apiVersion": "v1", "kind": self.kind, "name": self.name, "uid": self.uid}
        return {**found, "namespace": self.namespace} if self.namespace else found


@attrs.define(eq=False)
class _Bucket:
    """Token bucket that limits the events about one object."""

    left: float
    at: float

    def take(self, now: float) -> bool:
        self.left = min(_BURST, self.left + (now - self.at) / _REFILL)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@attrs.define(eq=False)
class _Similar:
    """Stored messages of similar events: events that differ only in their message."""

    first: float
    messages: tuple[str, ...] = ()


@attrs.define(eq=False)
class _Written:
    """An event on the API server, with its path and count.

    Only the queued work with the event's key changes this object.
    """

    path: str = ""
    count: int = 0


class EventRecorder:
    """Writer of the Kubernetes events of one node.

    Thread-safe, except that only one thread at a time may record events about the same object.
    """

    # Plain dicts, because an OrderedDict takes three times as much memory and every node has
    # three of them.
    __slots__ = (
        "_api",
        "_buckets",
        "_clock",
        "_node",
        "_number",
        "_similar",
        "_user",
        "_work_queue",
        "_written",
    )

    def __init__(
        self, node: str, api: Api, work_queue: Queue, clock: Clock, user: str | None = None
    ) -> None:
        """Create a writer for the events of ``node``.

        ``user``: the node to impersonate in requests; None for no impersonation.
        """
        self._node = node
        self._api = api
        self._work_queue = work_queue
        self._clock = clock
        self._user = user
        self._buckets: dict[ObjectReference, _Bucket] = {}
        self._similar: dict[tuple[ObjectReference, str, str], _Similar] = {}
        self._written: dict[tuple[ObjectReference, str, str, str], _Written] = {}
        self._number = 0

    def record(self, about: ObjectReference, kind: EventType, reason: str, message: str) -> None:
        """Queue a write of an event: create it, or increase the count of an equal event.

        The event is dropped if too many events about the same object were recorded recently.
        """
        now = self._clock.monotonic()
        message, same = self._aggregate((about, kind, reason), message, now)
        if not _get_or_add(self._buckets, about, lambda: _Bucket(_BURST, now)).take(now):
            return
        # All repetitions share this object: the thread that creates the event stores its path in
        # it.
        written = _get_or_add(self._written, (about, kind, reason, same), _Written)
        # The write can be later than the event.
        made = partial(self._object, about, kind, reason, message, self._clock.time())
        # Events about one object stay in order and do not wait for events about others.
        key = f"event/{self._node}/{about.name}"
        self._work_queue.put(Priority.EVENT, key, lambda: self._write(about, written, made))

    def _aggregate(
        self, similar: tuple[ObjectReference, str, str], message: str, now: float
    ) -> tuple[str, str]:
        """Return the message to write, and a text that is the same for equal events.

        If there are too many similar events, all new ones become one combined event
        (``EventAggregator.EventAggregate``).
        """
        seen = _get_or_add(self._similar, similar, lambda: _Similar(now))
        if now - seen.first > _WINDOW:
            seen.first, seen.messages = now, ()
        if len(seen.messages) < _SIMILAR:
            if message not in seen.messages:
                seen.messages += (message,)
            return message, message
        if message in seen.messages:
            return message, message
        return f"(combined from similar events): {message}", ""

    def _write(
        self, about: ObjectReference, written: _Written, made: Callable[[], JsonObject]
    ) -> None:
        event = made()
        namespace = about.namespace or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        try:
            if written.count:
                body = {
                    "count": written.count + 1,
                    "lastTimestamp": event["lastTimestamp"],
                    "message": event["message"],
                }
                self._api.request("PATCH", written.path, body, patch="strategic", user=self._user)
            else:
                self._api.request("POST", path, event, user=self._user)
                written.path = f"{path}/{event['metadata']['name']}"
            written.count += 1
        except ApiError:
            # As in client-go, an event that cannot be written is lost.
            written.count = 0

    def _object(
        self, about: ObjectReference, kind: str, reason: str, message: str, wall: float
    ) -> JsonObject:
        # The number makes the name unique if two events happen at the same time.
        self._number += 1
        when = timestamp(wall)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name}.{int(wall * 1e9) + self._number:x}",
                "namespace": about.namespace or "default",
            },
            "involvedObject": about.as_object(),
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
            "type": kind,
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
        }


def _get_or_add(known: dict[Any, Any], key: Any, new: Callable[[], Any]) -> Any:
    """Return the value of ``key``; add ``new()`` if it is missing.

    If there are then too many keys, the oldest one is removed.
    """
    found = known.get(key)
    if found is None:
        found = known[key] = new()
        if len(known) > _REMEMBERED:
            # Copy the keys: another thread can add one during the iteration.
            known.pop(next(iter(list(known))), None)
    return found
