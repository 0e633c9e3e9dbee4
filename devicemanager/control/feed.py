"""Feeds: the events or calls of a kubelet as lines of JSON, for any number of readers.

Each event or call is an entry. The readers are the streams and the waits of the control API. A feed
subscribes once for all readers and encodes each entry once. A wait is woken only by an entry that
can end it. A stream sends its entries in batches, with longer pauses if many streams are open.

A feed runs on the server's event loop, with two exceptions. The thread of the kubelet that
publishes an entry also wakes the loop. Large entries are encoded on worker threads. The kubelet
stores a limited number of entries. A reader that misses entries gets one line with their count.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio.to_thread
import attrs
import msgspec
from anyio import CapacityLimiter

from devicemanager.control import convert
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import Event, EventStream

__all__ = ["Feed", "Numbered", "Source", "call_source", "event_source"]

_BATCH: Final = 200
"""Maximum number of lines in one batch for a reader."""
_BATCH_BYTES: Final = 1 << 20
"""Approximate maximum number of bytes in one batch for a reader. A larger line is sent alone."""
_CACHED: Final = 1000
_CACHED_BYTES: Final = 8 << 20
_SENDING_SECONDS: Final = 1e-3
"""Seconds between two batches, multiplied by the number of open streams. Sending to hundreds of
streams then does not delay the kubelet, and a few streams get entries almost immediately."""
_LONGEST_PAUSE: Final = 1.0
_ANY: Final = "*"
"""Stands for all kinds, for a wait that any entry can end."""


class Numbered(Protocol):
    """An event or a call with its number."""

    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Numbered)


@attrs.frozen
class Source(Generic[T]):
    """The events or calls of a kubelet, numbered from 1; only the latest are stored."""

    latest: Callable[[], int]
    later: Callable[[int], Sequence[T]]
    """Function that returns the stored entries with numbers above its argument, in order."""
    subscribe: Callable[[Callable[[T], None]], Callable[[], None]]
    encode: Callable[[T], bytes]
    size: Callable[[T], int]
    """Function that returns the approximate size of an entry in bytes."""
    dropped: Callable[[int, int], bytes]
    """Function that returns the line in place of missing entries. Its arguments are the count of
    these entries and the number of the last one."""
    kind: Callable[[T], str] = lambda _: ""
    """Function that returns the kind of an event, or the RPC name of a call."""


def event_source(events: EventStream) -> Source[Event]:
    """Return the events of a kubelet as the source of a feed."""

    def later(number: int) -> Sequence[Event]:
        recent = events.recent()
        # Numbers have no gaps, so the position follows from the number of the first event.
        return recent[max(0, number + 1 - recent[0].number) :] if recent else ()

    return Source(
        lambda: events.latest,
        later,
        events.subscribe,
        lambda event: _line(convert.event(event)),
        lambda _: 0,
        lambda count, last: _line(convert.events_dropped(count, last)),
        lambda event: event.kind,
    )


def call_source(calls: CallLog, with_bytes: bool) -> Source[Call]:
    """Return the calls between a kubelet and its plugins as the source of a feed. ``with_bytes``
    adds the encoded requests and responses."""
    return Source(
        lambda: calls.latest,
        calls.later,
        calls.subscribe,
        lambda call: _line(convert.call(call, with_bytes=with_bytes)),
        lambda call: len(call.request_bytes) + len(call.response_bytes or b""),
        lambda count, last: _line(convert.calls_dropped(count, last)),
        lambda call: call.rpc,
    )


def _line(shape: msgspec.Struct) -> bytes:
    return msgspec.json.encode(shape, enc_hook=str) + b"\n"


@attrs.frozen(eq=False)
class _Waiter(Generic[T]):
    """A wait for one entry."""

    woken: asyncio.Future[None]
    wanted: Callable[[T], bool]

    def wake(self) -> None:
        """End the wait. Idempotent."""
        if not self.woken.done():
            self.woken.set_result(None)


class Feed(Generic[T]):
    """The events or calls of one source as lines of JSON, for any number of readers on one event
    loop."""

    def __init__(self, source: Source[T], workers: CapacityLimiter | None = None) -> None:
        """Create a feed. Must be called on the event loop. ``workers`` limits the number of
        threads that encode entries."""
        self._workers = workers
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._readers = 0
        self._unsubscribe: Callable[[], None] | None = None
        # Held while lines are encoded, so that each entry is encoded once for all readers.
        self._encoding = asyncio.Lock()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0
        self.closed = False
        self._tail_key = (0, 0)
        self._tail: Sequence[T] = ()
        self._text_key: tuple[int, ...] = ()
        self._shared_text = b""
        self._streams = 0
        self._woken_at = 0.0
        """Time at which the streams were last woken, on the loop's clock."""
        self._waking_streams: asyncio.TimerHandle | None = None
        self._waiters: dict[str, dict[_Waiter[T], None]] = {}
        """The waits in progress, by the kind of the entries that can end them."""
        self._notified = 0
        """Number of the latest processed entry. When an entry is processed, the waits that it ends
        are woken."""
        # Set from the first entry of a burst until the loop runs, so that a burst wakes it once.
        self._is_waking = threading.Event()

    @property
    def latest(self) -> int:
        """The number of the latest entry; 0 before the first entry."""
        return self._source.latest()

    def close(self) -> None:
        """End all streams and waits that read this feed."""
        self.closed = True
        self._wake()

    async def lines(
        self, since: int, *, follow: bool, wanted: Callable[[Sequence[T]], Sequence[T]]
    ) -> AsyncGenerator[bytes]:
        """Yield the entries with numbers above ``since`` as encoded lines, one line per entry. Each
        yielded item has one or more lines. ``wanted`` gets a batch of entries and returns those to
        send.

        With ``follow``, continue with new entries until the feed closes. In place of entries that
        are no longer stored, yield one line with their count.
        """
        with self._reading(), self._streaming():
            last = since
            while True:
                # Read before the check, so that an entry published in between sets this event.
                changed = self._changed
                batch = self._batch(self._later(last)) if self.latest > last else ()
                if batch:
                    for part in self._parts(batch, last):
                        if isinstance(part, bytes):
                            yield part
                        elif selected := wanted(part):
                            yield await self._text(selected)
                    # Continue after the whole batch, so that entries that are not wanted are not
                    # read again.
                    last = batch[-1].number
                elif not follow or self.closed:
                    return
                else:
                    await changed.wait()

    async def entry(
        self,
        since: int,
        seconds: float,
        kinds: frozenset[str] = frozenset(),
        wanted: Callable[[T], bool] = lambda _: True,
    ) -> None:
        """Wait for an entry after number ``since`` for which ``wanted`` returns True.

        ``kinds``: kinds of the entry; empty for any kind. Return after ``seconds``, or when the
        feed closes, even without such an entry.
        """
        waiter = _Waiter(self._loop.create_future(), wanted)
        with self._reading(), self._waiting(waiter, kinds):
            # Checked after the subscription, so that no entry in between is missed.
            missed = self._later(since) if self.latest > since else ()
            if self.closed or any(
                wanted(each) for each in missed if not kinds or self._source.kind(each) in kinds
            ):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter.woken

    # -- inside --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _streaming(self) -> Iterator[None]:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _later(self, number: int) -> Sequence[T]:
        """Return the stored entries after a number. Readers that ask for the same number share one
        list."""
        # Read before the entries, so that a later entry makes these ones outdated.
        key = (number, self.latest)
        if self._tail_key != key:
            self._tail_key, self._tail = key, self._source.later(number)
        return self._tail

    @contextlib.contextmanager
    def _waiting(self, waiter: _Waiter[T], kinds: frozenset[str]) -> Iterator[None]:
        names = kinds or (_ANY,)
        for name in names:
            self._waiters.setdefault(name, {})[waiter] = None
        try:
            yield
        finally:
            for name in names:
                del self._waiters[name][waiter]
                if not self._waiters[name]:
                    del self._waiters[name]

    def _notify(self, entries: Iterable[T]) -> None:
        """Wake the waiters for these entries. Only waiters for the kind of an entry are checked."""
        for each in entries:
            for name in (self._source.kind(each), _ANY):
                for waiter in self._waiters.get(name, ()):
                    if waiter.wanted(each):
                        waiter.wake()

    def _batch(self, later: Sequence[T]) -> Sequence[T]:
        size = 0
        # A call can have 4 MiB, so fifty calls would use too much memory for one reader.
        for count, each in enumerate(later[:_BATCH]):
            size += self._source.size(each)
            if size > _BATCH_BYTES:
                return later[: max(count, 1)]
        return later[:_BATCH]

    def _parts(self, batch: Sequence[T], last: int) -> list[bytes | Sequence[T]]:
        """Split the batch at gaps in the numbers. Return the pieces in order, with a line as bytes
        in place of each gap."""
        parts: list[bytes | Sequence[T]] = []
        piece: list[T] = []
        for each in batch:
            if missing := each.number - last - 1:
                parts += [piece, self._source.dropped(missing, each.number - 1)]
                piece = []
            piece.append(each)
            last = each.number
        return [part for part in (*parts, piece) if part]

    async def _text(self, selected: Sequence[T]) -> bytes:
        # Most readers want the same entries, and share one copy of the text.
        key = tuple([each.number for each in selected])
        async with self._encoding:
            if key == self._text_key:
                return self._shared_text
            new: dict[int, bytes] = {}
            if missing := [each for each in selected if each.number not in self._cache]:
                lines = await anyio.to_thread.run_sync(
                    lambda: [self._source.encode(each) for each in missing], limiter=self._workers
                )
                new = dict(zip((each.number for each in missing), lines, strict=True))
            text = b"".join(
                new[each.number] if each.number in new else self._cache[each.number]
                for each in selected
            )
            # Added last, because adding can drop older lines that this text needs.
            for number, line in new.items():
                self._add_to_cache(number, line)
            self._text_key, self._shared_text = key, text
        return text

    def _add_to_cache(self, number: int, line: bytes) -> None:
        self._cache[number] = line
        self._cached_bytes += len(line)
        while len(self._cache) > _CACHED or self._cached_bytes > _CACHED_BYTES:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._readers += 1
        # Subscribed only while there are readers. Without readers, publishing costs nothing.
        if self._unsubscribe is None:
            self._unsubscribe = self._source.subscribe(self._published)
            self._notified = self.latest
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None
                self._cache.clear()
                self._cached_bytes = 0
                self._tail_key, self._tail = (0, 0), ()
                self._text_key, self._shared_text = (), b""

    def _published(self, _: object) -> None:
        """Wake the event loop. Runs on the thread that publishes."""
        if not self._is_waking.is_set():
            self._is_waking.set()
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Cleared first, so that an entry published from now on wakes the loop again.
        self._is_waking.clear()
        if not self._waiters:
            self._notified = self.latest
        elif later := self._source.later(self._notified):
            self._notify(later)
            self._notified = later[-1].number
        if self.closed:
            for waiter in [each for waiters in self._waiters.values() for each in waiters]:
                waiter.wake()
        if self._waking_streams is None or self.closed:
            # After a pause, this time is in the past, so the first burst is sent immediately.
            pause = min(self._streams * _SENDING_SECONDS, _LONGEST_PAUSE)
            at = 0.0 if self.closed else self._woken_at + pause
            self._waking_streams = self._loop.call_at(at, self._wake_streams)

    def _wake_streams(self) -> None:
        self._waking_streams = None
        self._woken_at = self._loop.time()
        self._changed.set()
        self._changed = asyncio.Event()


def feeds_of(events: EventStream, calls: CallLog, workers: CapacityLimiter) -> dict[str, Feed[Any]]:
    """Return the feeds of a kubelet by name: ``events``, ``calls`` and ``calls-with-bytes``."""
    return {
        "events": Feed(event_source(events), workers),
        "calls": Feed(call_source(calls, with_bytes=False), workers),
        "calls-with-bytes": Feed(call_source(calls, with_bytes=True), workers),
    }
