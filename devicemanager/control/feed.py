"""What happens, for any number of readers: one subscription, each thing made into JSON once.

Everything here runs on the server's loop, but for the callback of the subscription, which
runs on the thread that publishes and costs it next to nothing, and for making JSON of what
may be large.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
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

_AT_ONCE: Final = 50
_BYTES_AT_ONCE: Final = 1 << 20
"""Lines that a reader is given at a time, and what they may have in bytes as they were said;
a longer one is given alone."""
_CACHED: Final = 1000
_CACHED_BYTES: Final = 8 << 20


class Numbered(Protocol):
    """Something that happened."""

    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Numbered)


@attrs.frozen
class Source(Generic[T]):
    """A record of things that are numbered from 1, of which the oldest are forgotten."""

    latest: Callable[[], int]
    later: Callable[[int], Sequence[T]]
    """Those kept that are later than a number, in order."""
    subscribe: Callable[[Callable[[T], None]], Callable[[], None]]
    line: Callable[[T], bytes]
    size: Callable[[T], int]
    """About how many bytes a line is made of."""
    dropped: Callable[[int, int], bytes]
    """The line for things that are missing: how many, and the number of the last of them."""


def event_source(events: EventStream) -> Source[Event]:
    """The events of a kubelet."""

    def later(number: int) -> Sequence[Event]:
        recent = events.recent()
        # Numbered one by one.
        return recent[max(0, number + 1 - recent[0].number) :] if recent else ()

    return Source(
        lambda: events.latest,
        later,
        events.subscribe,
        _event_line,
        lambda _: 0,
        convert.events_dropped,
    )


def call_source(calls: CallLog, with_bytes: bool) -> Source[Call]:
    """The calls of a kubelet's plugins; ``with_bytes`` with their messages as they were."""
    return Source(
        lambda: calls.latest,
        calls.later,
        calls.subscribe,
        partial(_call_line, with_bytes=with_bytes),
        _size_of_call,
        convert.calls_dropped,
    )


def _event_line(event: Event) -> bytes:
    return msgspec.json.encode(convert.event(event), enc_hook=str) + b"\n"


def _call_line(call: Call, *, with_bytes: bool) -> bytes:
    return msgspec.json.encode(convert.call(call, with_bytes=with_bytes), enc_hook=str) + b"\n"


def _size_of_call(call: Call) -> int:
    return len(call.request_bytes) + len(call.response_bytes or b"")


class Feed(Generic[T]):
    """The readers of one source."""

    def __init__(self, source: Source[T], workers: CapacityLimiter | None = None) -> None:
        """To be made on the loop. ``workers`` limits the threads on which JSON is made; None:
        as anyio does."""
        self._workers = workers
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._readers = 0
        self._unsubscribe: Callable[[], None] | None = None
        # Held while lines are made: of many readers of large calls one is enough to make them.
        self._making = asyncio.Lock()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0
        self.closed = False
        # Set from an event until the loop has looked: a burst of events wakes it once.
        self._is_waking = threading.Event()

    @property
    def latest(self) -> int:
        """The number of the latest thing that happened; 0 before the first."""
        return self._source.latest()

    def close(self) -> None:
        """Let every reader come to its end."""
        self.closed = True
        self._wake()

    async def lines(
        self, since: int, *, follow: bool, wanted: Callable[[Sequence[T]], Sequence[T]]
    ) -> AsyncIterator[bytes]:
        """What ``wanted`` chooses of everything later than ``since``, some lines at a time;
        with ``follow`` until the feed closes. Where something is not kept any more stands a
        line that counts it."""
        with self._reading():
            last = since
            while True:
                changed = self._changed
                batch = self._some(self._source.later(last)) if self.latest > last else ()
                if batch:
                    for part in self._parts(batch, last):
                        if isinstance(part, bytes):
                            yield part
                        elif chosen := wanted(part):
                            yield await self._text(chosen)
                    last = batch[-1].number
                elif not follow or self.closed:
                    return
                else:
                    await changed.wait()

    async def changes(self, since: int, seconds: float) -> None:
        """Wait for something later than ``since``, but not longer."""
        with self._reading():
            changed = self._changed
            if self.latest > since or self.closed:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()

    # -- inside --------------------------------------------------------------------------

    def _some(self, later: Sequence[T]) -> Sequence[T]:
        """As many of them as are given at a time."""
        size = 0
        for count, each in enumerate(later[:_AT_ONCE]):
            size += self._source.size(each)
            if size > _BYTES_AT_ONCE:
                return later[: max(count, 1)]
        return later[:_AT_ONCE]

    def _parts(self, batch: Sequence[T], last: int) -> list[bytes | Sequence[T]]:
        """The batch, in pieces without gaps, and lines for the gaps."""
        parts: list[bytes | Sequence[T]] = []
        piece: list[T] = []
        for each in batch:
            if missing := each.number - last - 1:
                parts += [piece, self._source.dropped(missing, each.number - 1)]
                piece = []
            piece.append(each)
            last = each.number
        return [part for part in (*parts, piece) if part]

    async def _text(self, chosen: Sequence[T]) -> bytes:
        async with self._making:
            made: dict[int, bytes] = {}
            if missing := [each for each in chosen if each.number not in self._cache]:
                lines = await anyio.to_thread.run_sync(
                    lambda: [self._source.line(each) for each in missing], limiter=self._workers
                )
                made = dict(zip((each.number for each in missing), lines, strict=True))
            text = b"".join(
                made[each.number] if each.number in made else self._cache[each.number]
                for each in chosen
            )
            for number, line in made.items():
                self._keep(number, line)
        return text

    def _keep(self, number: int, line: bytes) -> None:
        self._cache[number] = line
        self._cached_bytes += len(line)
        while len(self._cache) > _CACHED or self._cached_bytes > _CACHED_BYTES:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])

    @contextlib.contextmanager
    def _reading(self) -> Any:
        self._readers += 1
        if self._unsubscribe is None:
            self._unsubscribe = self._source.subscribe(self._published)
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None
                self._cache.clear()
                self._cached_bytes = 0

    def _published(self, _: object) -> None:
        """On the thread that publishes."""
        if not self._is_waking.is_set():
            self._is_waking.set()
            with contextlib.suppress(RuntimeError):  # the server has just ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_waking.clear()
        self._changed.set()
        self._changed = asyncio.Event()
