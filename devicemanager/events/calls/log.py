"""The log of all calls between a kubelet and its plugins.

Theory of operation. Every connection to a plugin, and the Registration service, has a
``CallRecorder``, which creates a ``CallInProgress`` for each RPC. When the RPC ends, the
code that handles it calls ``answered`` or ``failed`` on this object. Then an immutable ``Call`` is
appended to the log. Call numbers therefore follow the order in which calls end. A ListAndWatch
stream adds one ``Call`` for each list and one for its end.

Three decisions make recording fast and limit its memory:

* Messages are stored as bytes. They are decoded when a caller reads ``Call.request``.
* The log is bounded by number and by size; the oldest calls are dropped first.
* Calls made for pods are stored apart from all others. A plugin that floods the kubelet with
  lists or registrations cannot push an Allocate call out of the log.

One lock guards the log. Callbacks of subscribers run without it, on the thread that recorded
the end of the call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import merge
from itertools import takewhile
from operator import attrgetter

import attrs

from devicemanager.events.calls.call import OK, Call, Direction
from devicemanager.events.calls.matching import CallQueries, Mark
from devicemanager.events.stream import EventStream, notify

# A plugin can cause any number of other calls, but each of these needs a pod.
_FOR_PODS = frozenset(
    {
        "Allocate",
        "GetPreferredAllocation",
        "PreStartContainer",
        "NodePrepareResources",
        "NodeUnprepareResources",
    }
)
_LONGEST_NAME = 512
"""Maximum number of characters of a resource or endpoint name that a call stores. The longest valid
name has 317."""

Callback = Callable[[Call], None]


@attrs.define(eq=False, repr=False)
class _Stored:
    """Queue of the latest calls, oldest first, limited in number and in bytes."""

    keep: int
    keep_bytes: int
    calls: deque[Call] = attrs.field(factory=deque)
    size: int = 0
    dropped: int = 0

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.size += _size(call)
        while len(self.calls) > self.keep or self.size > self.keep_bytes:
            # A single call that is larger than the limit is dropped as well.
            self.size -= _size(self.calls.popleft())
            self.dropped += 1


def _size(call: Call) -> int:
    # Names are cut when they are recorded, so only these parts can be large.
    return len(call.request_bytes) + len(call.response_bytes or b"") + len(call.message)


class CallLog(CallQueries):
    """Log of a kubelet's calls, over all restarts; thread-safe.

    Calls made for pods are stored apart from all other calls. Each part stores up to ``keep``
    calls and ``keep_bytes`` bytes. With ``keep`` 0 nothing is recorded.
    """

    def __init__(self, events: EventStream, keep: int, keep_bytes: int) -> None:
        self._events = events
        self._is_off = keep == 0
        # Guards all fields below; not held during callbacks.
        self._lock = threading.Lock()
        self._for_pods = _Stored(keep, keep_bytes)
        self._others = _Stored(keep, keep_bytes)
        self._latest = 0
        self._in_progress: dict[int, CallInProgress] = {}
        self._subscribers: tuple[Callback, ...] = ()

    # -- recording -------------------------------------------------------------------

    def recorder(self, resource: str | None, plugin: str) -> CallRecorder | None:
        """Return a recorder for one connection; None if the log records nothing (``keep`` 0)."""
        if self._is_off:
            return None
        # Plugins choose these names, and the limit of bytes does not count them.
        return CallRecorder(self, resource and resource[:_LONGEST_NAME], plugin[:_LONGEST_NAME])

    def begun(self, call: CallInProgress) -> None:
        """Start to list a call in ``in_progress``. When the call ends, ``add`` removes it there."""
        with self._lock:
            # By identity: two concurrent calls can be equal.
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
        """Append an ended call to the log, unless the log already has it.

        If ``is_over`` is False, append one message of a stream instead. The stream stays in
        progress.
        """
        now, rpc = time.monotonic(), call.rpc
        # The end of a stream has no response: it is not a device list and has no position.
        part = call.received or None if response is not None else None
        with self._lock:
            # Both sides can end a call at the same time.
            if is_over and self._in_progress.pop(id(call), None) is None:
                return
            # Numbered under the lock, so that numbers follow the order in the log.
            self._latest += 1
            # The number of the latest event lets waits put events and calls in one order.
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
            # The tuple is replaced, never changed, so it can be read after the lock is released.
            subscribers = self._subscribers
        if subscribers:
            notify(subscribers, ended, "a callback")

    def now(self) -> float:
        """Return the kubelet clock's time, in seconds since the epoch."""
        return self._events.now()

    # -- reading ---------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """Number of the latest call; 0 before the first."""
        return self._latest

    @property
    def dropped(self) -> int:
        """Number of calls that are no longer stored."""
        with self._lock:
            return self._for_pods.dropped + self._others.dropped

    @property
    def in_progress(self) -> tuple[CallInProgress, ...]:
        """Calls without a response yet, and open ListAndWatch streams."""
        with self._lock:
            return tuple(self._in_progress.values())

    def unanswered(self) -> list[str]:
        """Return one line of text for each call without a response, except open streams."""
        # An open ListAndWatch stream is normal and would only hide the calls that hang.
        now = time.monotonic()
        return [
            f"{call.rpc} {call.resource or call.plugin}, since {now - call.started:.3f} s"
            for call in self.in_progress
            if call.rpc != "ListAndWatch"
        ]

    def mark(self) -> Mark:
        """Return a mark of the current moment; searches accept it as ``since``."""
        with self._lock:
            # Under the lock, so that no call ends between the reading of the two numbers.
            return Mark(self._events.latest, self._latest)

    def all(self) -> list[Call]:
        """Return every stored call, in the order of their numbers."""
        with self._lock:
            for_pods, others = tuple(self._for_pods.calls), tuple(self._others.calls)
        return list(merge(for_pods, others, key=attrgetter("number")))

    def later(self, number: int) -> list[Call]:
        """Return the stored calls later than the call with this number, in order."""

        def tail(stored: _Stored) -> list[Call]:
            # From the end: callers want the few latest of thousands of calls.
            return [*takewhile(lambda call: call.number > number, reversed(stored.calls))][::-1]

        with self._lock:
            for_pods, others = tail(self._for_pods), tail(self._others)
        return list(merge(for_pods, others, key=attrgetter("number")))

    def _later(self, since: Mark | int) -> list[Call]:
        # Loops that wait for a call search again and again, so the old calls are not read.
        return self.later(since.call if isinstance(since, Mark) else since)

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with each call that ends from now on.

        The callback must not block. It runs on the thread that records the end of the call. Returns
        a function that ends the subscription.
        """
        # An object of its own: a callback can have several subscriptions, which end separately.
        subscription = partial(callback)
        with self._lock:
            self._subscribers = (*self._subscribers, subscription)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not subscription)

        return unsubscribe

    def _missing(self) -> str:
        if self._is_off:
            return "no calls are recorded: Settings.calls_kept is 0"
        dropped = self.dropped
        return f"earlier calls that are no longer stored: {dropped}" if dropped else ""


@attrs.define(eq=False)
class CallInProgress:
    """Record of a call in progress.

    The code that called ``CallRecorder.begin`` ends it with ``answered`` or ``failed``. For a
    stream, this code first reports each message with ``received_message``.
    """

    log: CallLog = attrs.field(repr=False)
    resource: str | None
    plugin: str
    direction: Direction
    rpc: str
    request: bytes = attrs.field(repr=False)
    time: float
    """Start time by the kubelet's clock."""
    started: float
    """Start time by ``time.monotonic``."""
    received: int = 0
    """Number of messages received on the stream so far; 0 for a call that is not a stream."""
    fault: str = ""
    """The injected faults that affected the call so far, in the form of ``Call.fault``."""

    def answered(self, response: bytes) -> None:
        """Record the end of the call with status ``OK`` and the response."""
        self.log.add(self, response, OK, "")

    def failed(self, code: str, message: str, response: bytes | None = None) -> None:
        """Record the end of the call or stream with a status code and message.

        A stream can also end with ``OK``.
        """
        self.log.add(self, response, code, message)

    def received_message(self, message: bytes) -> None:
        """Record the next message of a stream as a ``Call``."""
        self.received += 1
        self.log.add(self, message, OK, "", is_over=False)


@attrs.frozen(eq=False)
class CallRecorder:
    """Recorder for the calls on one connection to a plugin, or for one plugin's calls to the
    kubelet."""

    log: CallLog
    resource: str | None
    plugin: str

    def begin(
        self, rpc: str, request: bytes = b"", direction: Direction = Direction.TO_PLUGIN
    ) -> CallInProgress:
        """Record the start of a call and return its record.

        Call this method before a call to a plugin is made, or when a call to the kubelet has
        arrived.
        """
        log = self.log
        call = CallInProgress(
            log,
            self.resource,
            self.plugin,
            direction,
            rpc,
            request,
            # Two times: the kubelet's clock can stand still in a test, but a duration is real time.
            log.now(),
            time.monotonic(),
        )
        log.begun(call)
        return call
