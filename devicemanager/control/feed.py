"""Events for any number of readers: one subscription, each event made into JSON once.

Everything here runs on the server's loop, but for the callback of the subscription, which
runs on the thread that publishes and costs it next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

import attrs
import msgspec

from devicemanager.control import convert, shapes
from devicemanager.events import EventStream

__all__ = ["EventFeed"]

_KEPT: Final = 1000
"""As many as an event stream remembers."""
_AT_ONCE: Final = 100
"""Lines that a reader is given at a time."""


@attrs.frozen
class _Line:
    number: int
    kind: str
    json: bytes


class EventFeed:
    """The events of one kubelet."""

    def __init__(self, events: EventStream) -> None:
        """To be made on the loop."""
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._readers = 0
        self._unsubscribe: Callable[[], None] | None = None
        self._lines: deque[_Line] = deque(maxlen=_KEPT)
        self._latest = 0
        self.closed = False
        # Set from an event until the loop has looked: a burst of events wakes it once.
        self._is_waking = threading.Event()

    def close(self) -> None:
        """Let every reader come to its end."""
        self.closed = True
        self._wake()

    async def lines(
        self, since: int, *, follow: bool, kinds: frozenset[str] = frozenset()
    ) -> AsyncIterator[bytes]:
        """Events later than ``since``, some lines at a time; with ``follow`` until the feed
        closes. What the kubelet does not remember any more is one line that counts it."""
        self._enter()
        try:
            last = since
            while True:
                changed = self._changed
                batch = self._after(last)
                if batch:
                    if missing := batch[0].number - last - 1:
                        yield _dropped(missing, last)
                    last = batch[-1].number
                    if wanted := [x.json for x in batch if not kinds or x.kind in kinds]:
                        yield b"".join(wanted)
                elif not follow or self.closed:
                    return
                else:
                    await changed.wait()
        finally:
            self._leave()

    async def changes(self, since: int, seconds: float) -> None:
        """Wait for an event later than ``since``, but not longer."""
        self._enter()
        try:
            changed = self._changed
            if self._events.latest > since or self.closed:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()
        finally:
            self._leave()

    # -- inside --------------------------------------------------------------------------

    def _enter(self) -> None:
        self._readers += 1
        if self._unsubscribe is None:
            self._unsubscribe = self._events.subscribe(self._published)

    def _leave(self) -> None:
        self._readers -= 1
        if not self._readers and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._lines.clear()
            self._latest = 0

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

    def _after(self, number: int) -> list[_Line]:
        """The oldest lines later than that number."""
        if self._latest < self._events.latest:
            for event in self._events.recent():
                if event.number > self._latest:
                    line = msgspec.json.encode(convert.event(event), enc_hook=str) + b"\n"
                    self._lines.append(_Line(event.number, event.kind.value, line))
                    self._latest = event.number
        if not self._lines or number >= self._latest:
            return []
        first = max(0, number + 1 - self._lines[0].number)
        return list(islice(self._lines, first, first + _AT_ONCE))


def _dropped(count: int, after: int) -> bytes:
    event = shapes.Event(
        number=after + count,
        time=0.0,
        kind="events-dropped",
        message=f"{count} events are missing here: they are not remembered any more",
        warning=True,
        resource=None,
        pod=None,
        details={"dropped": count},
    )
    return msgspec.json.encode(event) + b"\n"
