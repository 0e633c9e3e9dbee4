"""The kubelet's events: core/v1, with the limits of client-go (``tools/record``, v0.32)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

import attrs

from devicemanager.cluster.client.errors import ApiError
from devicemanager.cluster.client.protocol import Api, JsonObject, Lane, Priority
from devicemanager.io.clock import Clock
from devicemanager.objects.status.times import timestamp

__all__ = ["EventType", "Recorder", "Subject"]

_BURST: Final = 25
_REFILL: Final = 300.0
"""Events about one object at once, and seconds until one more may come."""
_SIMILAR: Final = 10
_WINDOW: Final = 600.0
"""So many events that differ in their message alone come within so many seconds before they are
combined."""
_REMEMBERED: Final = 64
"""Events that are remembered of one node, so that an equal one is counted."""

EventType = Literal["Normal", "Warning"]


@attrs.frozen
class Subject:
    """What an event is about."""

    kind: str
    name: str
    uid: str
    namespace: str = ""

    def as_object(self) -> JsonObject:
        """``involvedObject``."""
        found = {"apiVersion": "v1", "kind": self.kind, "name": self.name, "uid": self.uid}
        return {**found, "namespace": self.namespace} if self.namespace else found


@attrs.define(eq=False)
class _Bucket:
    """Who may still be talked about."""

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
    """Messages about the same thing."""

    first: float
    messages: tuple[str, ...] = ()


@attrs.define(eq=False)
class _Written:
    """An event in the API. Only the lane's thread for its key changes it."""

    path: str = ""
    count: int = 0


class Recorder:
    """Writes the events of one node. May be used from any thread, one call at a time for each
    subject."""

    # Dicts: an OrderedDict takes three times as much, and every node has some.
    __slots__ = (
        "_api",
        "_buckets",
        "_clock",
        "_lane",
        "_node",
        "_number",
        "_similar",
        "_user",
        "_written",
    )

    def __init__(
        self, node: str, api: Api, lane: Lane, clock: Clock, user: str | None = None
    ) -> None:
        self._node = node
        self._api = api
        self._lane = lane
        self._clock = clock
        self._user = user
        self._buckets: dict[Subject, _Bucket] = {}
        self._similar: dict[tuple[Subject, str, str], _Similar] = {}
        self._written: dict[tuple[Subject, str, str, str], _Written] = {}
        self._number = 0

    def record(self, subject: Subject, kind: EventType, reason: str, message: str) -> None:
        """Write an event, or count one more, or drop it if there are too many."""
        now = self._clock.monotonic()
        message, same = self._combined((subject, kind, reason), message, now)
        if not _of(self._buckets, subject, lambda: _Bucket(_BURST, now)).take(now):
            return
        written = _of(self._written, (subject, kind, reason, same), _Written)
        made = partial(self._object, subject, kind, reason, message)
        key = f"event/{self._node}/{subject.name}"
        self._lane.put(Priority.EVENT, key, lambda: self._write(subject, written, made))

    def _combined(
        self, similar: tuple[Subject, str, str], message: str, now: float
    ) -> tuple[str, str]:
        """The message to write, and what equal events have in common
        (``EventAggregator.EventAggregate``)."""
        seen = _of(self._similar, similar, lambda: _Similar(now))
        if now - seen.first > _WINDOW:
            seen.first, seen.messages = now, ()
        if len(seen.messages) < _SIMILAR:
            if message not in seen.messages:
                seen.messages += (message,)
            return message, message
        if message in seen.messages:
            return message, message
        return f"(combined from similar events): {message}", ""

    def _write(self, subject: Subject, written: _Written, made: Callable[[], JsonObject]) -> None:
        event = made()
        namespace = subject.namespace or "default"
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
            # As client-go does: an event that cannot be written is lost, and nobody waits.
            written.count = 0

    def _object(self, subject: Subject, kind: str, reason: str, message: str) -> JsonObject:
        self._number += 1
        wall = self._clock.time()
        when = timestamp(wall)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{subject.name}.{int(wall * 1e9) + self._number:x}",
                "namespace": subject.namespace or "default",
            },
            "involvedObject": subject.as_object(),
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


def _of(known: dict[Any, Any], key: Any, new: Callable[[], Any]) -> Any:
    """What is remembered under a key, or new; the oldest goes when there are too many."""
    found = known.get(key)
    if found is None:
        found = known[key] = new()
        if len(known) > _REMEMBERED:
            known.pop(next(iter(list(known))), None)  # in a list: others may add meanwhile
    return found
