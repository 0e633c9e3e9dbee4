"""The record of all calls between a kubelet and its plugins.

What it keeps is bounded by number and by bytes; the oldest go first. The messages stay
bytes, so that recording a call costs little; they become data when somebody looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from heapq import merge
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from devicemanager.events.calls.call import OK, Call, Direction
from devicemanager.events.calls.queries import CallQueries, Mark
from devicemanager.events.stream import EventStream, notify

if TYPE_CHECKING:
    pass

__all__ = ["CallInProgress", "CallLog", "CallRecorder", "Mark"]

_FOR_PODS = frozenset({"Allocate", "GetPreferredAllocation", "PreStartContainer"})
_LONGEST_NAME = 512
"""Characters kept of a resource's or an endpoint's name; the longest valid one has 317."""

Callback = Callable[[Call], None]


@attrs.define(eq=False, repr=False)
class _Kept:
    """The latest calls of one kind, oldest first."""

    keep: int
    keep_bytes: int
    calls: deque[Call] = attrs.field(factory=deque)
    size: int = 0
    dropped: int = 0

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.size += _size(call)
        while len(self.calls) > self.keep or self.size > self.keep_bytes:
            self.size -= _size(self.calls.popleft())
            self.dropped += 1


def _size(call: Call) -> int:
    return len(call.request_bytes) + len(call.response_bytes or b"") + len(call.message)


class CallLog(CallQueries):
    """The calls of a kubelet's plugins, over all restarts; may be asked from any thread.

    ``keep`` calls of at most ``keep_bytes`` stay of those that pods cause, and as many of
    all others: a plugin that floods the kubelet with lists or registrations costs no record
    of an allocation. With ``keep`` 0 nothing is recorded.
    """

    def __init__(self, events: EventStream, keep: int, keep_bytes: int) -> None:
        self._events = events
        self._is_off = keep == 0
        # Guards all below; no callback runs under it.
        self._lock = threading.Lock()
        self._for_pods = _Kept(keep, keep_bytes)
        self._others = _Kept(keep, keep_bytes)
        self._latest = 0
        self._in_progress: dict[int, CallInProgress] = {}
        self._subscribers: tuple[Callback, ...] = ()

    # -- recording -------------------------------------------------------------------

    def tap(self, resource: str | None, plugin: str) -> CallRecorder | None:
        """What records the calls on one connection; None if nothing is recorded."""
        if self._is_off:
            return None
        return CallRecorder(self, resource and resource[:_LONGEST_NAME], plugin[:_LONGEST_NAME])

    def begun(self, call: CallInProgress) -> None:
        """A call begins; ``add`` says once that it is over."""
        with self._lock:
            self._in_progress[id(call)] = call

    def add(
        self,
        call: CallInProgress,
        response: bytes | None,
        code: str,
        message: str,
        *,
        is_over: bool = True,
    ) -> None:
        """Record a call that is over, or a part of a stream. A callback that raises is logged."""
        now, rpc = time.monotonic(), call.rpc
        part = call.received or None if response is not None else None
        with self._lock:
            if is_over:
                self._in_progress.pop(id(call), None)
            self._latest += 1
            ended = Call(
                self._latest,
                call.time if part is None else self._events.now(),
                call.resource,
                call.plugin,
                call.direction,
                rpc,
                call.request,
                response,
                code,
                message,
                now - call.started,
                part,
                self._events.latest,
                call.fault,
            )
            (self._for_pods if rpc in _FOR_PODS else self._others).add(ended)
            subscribers = self._subscribers
        if subscribers:
            notify(subscribers, ended, "a callback")

    def now(self) -> float:
        """The time by the kubelet's clock, in seconds since the epoch."""
        return self._events.now()

    # -- reading ---------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """The number of the latest call; 0 before the first."""
        return self._latest

    @property
    def dropped(self) -> int:
        """How many calls are not kept any more."""
        with self._lock:
            return self._for_pods.dropped + self._others.dropped

    @property
    def in_progress(self) -> tuple[CallInProgress, ...]:
        """Calls that are not answered yet, and the list streams that are open."""
        with self._lock:
            return tuple(self._in_progress.values())

    def unanswered(self) -> list[str]:
        """What is asked at this moment, a line each; open list streams do not count."""
        now = time.monotonic()
        return [
            f"{call.rpc} {call.resource or call.plugin}, since {now - call.started:.3f} s"
            for call in self.in_progress
            if call.rpc != "ListAndWatch"
        ]

    def mark(self) -> Mark:
        """This moment, for ``since=``."""
        with self._lock:
            return Mark(self._events.latest, self._latest)

    def all(self) -> list[Call]:
        """Every call that is kept, in the order of their numbers."""
        with self._lock:
            for_pods, others = tuple(self._for_pods.calls), tuple(self._others.calls)
        return list(merge(for_pods, others, key=attrgetter("number")))

    def later(self, number: int) -> list[Call]:
        """Those that are kept and later than the call of this number, in order."""

        def of(kept: _Kept) -> list[Call]:
            return [*takewhile(lambda call: call.number > number, reversed(kept.calls))][::-1]

        with self._lock:
            for_pods, others = of(self._for_pods), of(self._others)
        return list(merge(for_pods, others, key=attrgetter("number")))

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with every call from now on, when it ends, on the thread that made
        it: it must not block. Returns a function that ends the subscription."""
        with self._lock:
            self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(c for c in self._subscribers if c is not callback)

        return unsubscribe

    def _not_kept(self) -> str:
        if self._is_off:
            return "no calls are recorded: Settings.calls_kept is 0"
        dropped = self.dropped
        return f"{dropped} earlier calls are not kept" if dropped else ""


@attrs.define(eq=False)
class CallInProgress:
    """A call that was begun. ``answered`` or ``failed`` ends it; a stream has any number of
    messages (``received_message``) before."""

    log: CallLog = attrs.field(repr=False)
    resource: str | None
    plugin: str
    direction: Direction
    rpc: str
    request: bytes = attrs.field(repr=False)
    time: float
    """When it began, by the kubelet's clock."""
    started: float
    """The same by ``time.monotonic``."""
    received: int = 0
    """Messages of the stream so far."""
    fault: str = ""
    """Which fault on purpose has a part in it."""

    def answered(self, response: bytes) -> None:
        """The call succeeded."""
        self.log.add(self, response, OK, "")

    def failed(self, code: str, message: str, response: bytes | None = None) -> None:
        """The call, or the stream, ended with this status; a stream may end with ``OK``."""
        self.log.add(self, response, code, message)

    def received_message(self, message: bytes) -> None:
        """A stream's next message came."""
        self.received += 1
        self.log.add(self, message, OK, "", is_over=False)


@attrs.frozen(eq=False)
class CallRecorder:
    """Records the calls on one connection, or of one plugin that calls the kubelet."""

    log: CallLog
    resource: str | None
    plugin: str

    def begin(
        self, rpc: str, request: bytes = b"", direction: Direction = Direction.TO_PLUGIN
    ) -> CallInProgress:
        """A call is about to be made, or has arrived."""
        log = self.log
        call = CallInProgress(
            log,
            self.resource,
            self.plugin,
            direction,
            rpc,
            request,
            log.now(),
            time.monotonic(),
        )
        log.begun(call)
        return call
