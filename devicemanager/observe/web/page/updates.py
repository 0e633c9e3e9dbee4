"""What pages are told, for any number of them: one look at the node, each message made once.

Nobody who admits a pod waits for this. Events and calls only set a flag; a look is made on a
worker thread, soon after but not at once, so that a burst costs one look, and less often the
more a look costs. While no page is open nothing is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import anyio.to_thread
import attrs
from anyio import CapacityLimiter

from devicemanager.events.stream import Event
from devicemanager.observe.web.page.deltas import EMPTY, Document, changes
from devicemanager.observe.web.page.frames import Frame, Frames, frame

__all__ = ["KEEP_ALIVE", "Node", "Updates"]

LEAST_PAUSE: Final = 0.1
"""Seconds between two looks."""
_SHARE: Final = 30
"""A look is followed by a pause so many times as long as it and what is sent take: about 3 %
of one processor is the most that pages cost."""
_SENDING: Final = 1e-4
"""About the seconds that it takes to send a message to one page."""
_LONGEST_PAUSE: Final = 5.0
_PATIENCE: Final = 1.0
"""Seconds after which a look is made although nothing has happened: time passes, too."""
KEEP_ALIVE: Final = 10.0
"""Seconds of silence after which a comment is sent, so that a broken connection is noticed."""
_EVENTS: Final = 200
"""The latest events, which a new page is told."""


class Node(Protocol):
    """What is looked at."""

    def refresh(self) -> Document:
        """The node as it is; for one thread at a time. May take its time."""

    def events(self) -> Sequence[Event]:
        """The latest events, oldest first."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called when something happens; returns what ends that."""

    def failed(self, error: Exception) -> None:
        """A look has failed, after one that had not."""


@attrs.frozen
class _Seen:
    """What the latest look has found."""

    version: int = 0
    document: Document = EMPTY
    last_event: int = 0


class Updates:
    """The messages to all pages of one server. To be made on its loop."""

    def __init__(self, node: Node, pause: float = LEAST_PAUSE) -> None:
        self._node = node
        # Threads of its own: the control API's may all wait for a plugin that hangs.
        self._workers = CapacityLimiter(2)
        self._least_pause = pause
        self._epoch = secrets.token_hex(4)
        self._seen = _Seen()
        self._frames = Frames()
        self._whole: Frame | None = None
        self._making = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()
        self._is_waking = threading.Event()
        self._readers = 0
        self._looking: asyncio.Task[None] | None = None
        # Held by the task that looks: one that is cancelled ends only with its thread's work.
        self._one_looks = asyncio.Lock()
        self._is_fresh = False
        self._has_failed = False
        self._closed = False

    def close(self) -> None:
        """The server ends: let every reader come to its end."""
        self._closed = True
        self._tell()
        if self._looking is not None:
            self._looking.cancel()

    async def messages(self, since: str = "") -> AsyncGenerator[bytes]:
        """Server-sent events: ``whole`` with a document, then ``delta`` with changes. ``since``
        is the id of the last one that was read; if what came after it is still known, the
        changes go on from there."""
        with self._reading():
            seen = self._version_of(since)
            while not self._closed:
                changed = self._changed
                if self._is_fresh and self._seen.version != seen:
                    message = await self._after(seen)
                    seen = message.version
                    yield message.data
                    continue
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        await changed.wait()
                except TimeoutError:
                    yield b": \n\n"

    # -- what a reader gets ------------------------------------------------------------

    def _version_of(self, since: str) -> int | None:
        epoch, _, version = since.partition("-")
        if epoch != self._epoch or not version.isascii() or not version.isdigit():
            return None
        return int(version[:18])

    async def _after(self, seen: int | None) -> Frame:
        """All that follows the version, or the whole document if that is not known."""
        if later := self._frames.after(seen):
            return later
        async with self._making:
            if self._whole is None or self._whole.version != self._seen.version:
                self._whole = await self._on_worker(self._make_whole)
            return self._whole

    def _make_whole(self) -> Frame:
        seen = self._seen
        events = [each for each in self._node.events() if each.number <= seen.last_event]
        told = changes(EMPTY, seen.document)
        return frame("whole", self._epoch, seen.version, told, events[-_EVENTS:])

    # -- looking -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._readers += 1
        if self._looking is None:
            self._is_fresh = False  # nobody has looked since the last reader left
            self._looking = asyncio.create_task(self._look_again_and_again())
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_again_and_again(self) -> None:
        async with self._one_looks:
            unsubscribe = self._node.subscribe(self._happened)
            try:
                while not self._closed:
                    cost = await self._looked()
                    if not self._is_fresh:
                        self._is_fresh = True
                        self._tell()
                    await asyncio.sleep(self._pause_after(cost + self._readers * _SENDING))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_PATIENCE):
                            await self._woken.wait()
                    self._woken.clear()
                    self._is_waking.clear()
            finally:
                unsubscribe()

    def _pause_after(self, cost: float) -> float:
        return min(max(self._least_pause, cost * _SHARE), _LONGEST_PAUSE)

    async def _looked(self) -> float:
        """Look, whatever comes of it. Returns the seconds that it computed."""
        try:
            cost: float = await self._on_worker(self._look)
        except Exception as error:  # a mistake of ours: pages show what they have
            if not self._has_failed:
                self._node.failed(error)
            self._has_failed = True
            return _LONGEST_PAUSE
        self._has_failed = False
        return cost

    def _look(self) -> float:
        """On a worker. Returns the seconds that it computed."""
        began = time.thread_time()
        before = self._seen
        events = [event for event in self._node.events() if event.number > before.last_event]
        latest = events[-1].number if events else before.last_event
        document = self._node.refresh()
        told = changes(before.document, document)
        if told or events or not before.version:
            seen = _Seen(before.version + 1, document, latest)
            message = frame("delta", self._epoch, seen.version, told, events[-_EVENTS:])
            self._loop.call_soon_threadsafe(self._take, seen, message)
        return time.thread_time() - began

    def _take(self, seen: _Seen, message: Frame) -> None:
        self._seen = seen
        self._frames.add(message)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _happened(self) -> None:
        """On the thread that publishes. Only the first since the last look wakes the loop: that
        costs a system call, and the publisher its turn with the interpreter."""
        if not self._is_waking.is_set():
            self._is_waking.set()
            with contextlib.suppress(RuntimeError):  # the server has just ended
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _on_worker(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._workers)
