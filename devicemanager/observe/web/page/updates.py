"""Messages to all pages of a server.

For all pages together, the node's state is read once, and each message is encoded once.

Theory of operation. Events and calls only set a flag, so an admission never waits. One task,
which runs while a page is open, reads the node's state on a worker thread:

    wait for the flag or a second → read → compare → encode → wake the pages → pause

The pause is proportional to the cost of reading and sending. Therefore a burst of events causes
one read, and a node that is expensive to read is read less often.

Each open page is one call of ``messages``, which handles three cases:
1. The page is new, or was disconnected for too long: send the node's whole state.
2. The page has an older version: send the changes after this version. ``Frames`` stores them.
3. The page has the current version: wait. After ``KEEP_ALIVE`` seconds, send a comment.

Everything except reading and encoding happens on the server's event loop, so the state needs no
lock. Only ``_is_waking`` is shared with publishing threads.
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
"""Minimum pause between two reads of the node's state, in seconds."""
# The pause after a read is this multiple of the time for reading and sending, so that pages use
# at most about 3 % of a CPU.
_SHARE: Final = 30
# Estimated seconds for sending a message to one page.
_SENDING: Final = 1e-4
_LONGEST_PAUSE: Final = 5.0
# Seconds after which the node is read without an event, because the view shows durations.
_PATIENCE: Final = 1.0
KEEP_ALIVE: Final = 10.0
"""Seconds without a message after which an empty event (an SSE comment) is sent, to detect broken
connections."""
# Number of latest events that a new page gets.
_EVENTS: Final = 200


class Node(Protocol):
    """Source of the state and the events that the pages show."""

    def refresh(self) -> Document:
        """Return the current state of the node. Not thread-safe; may be slow."""

    def events(self) -> Sequence[Event]:
        """Return the latest events, oldest first."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after each event of the mock kubelet, and after each of its RPCs.

        Return a function that ends the subscription.
        """

    def failed(self, error: Exception) -> None:
        """Report an error that occurred while the node's state was read.

        Called only for the first of several errors in a row.
        """


@attrs.frozen
class _State:
    """The latest document of the node, with its version and the number of its last event."""

    version: int = 0
    document: Document = EMPTY
    last_event: int = 0


class Updates:
    """Source of the messages to all pages of one server. Create it on the server's event loop."""

    def __init__(self, node: Node, pause: float = LEAST_PAUSE) -> None:
        self._node = node
        # Separate threads, because all threads of the control API may wait for a plugin that hangs.
        self._workers = CapacityLimiter(2)
        self._least_pause = pause
        self._epoch = secrets.token_hex(4)
        self._state = _State()
        self._frames = Frames()
        self._whole: Frame | None = None
        self._making = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()
        self._is_waking = threading.Event()
        self._pages = 0
        self._reading_task: asyncio.Task[None] | None = None
        # A cancelled task ends only when its worker thread has finished, but a new task may start
        # earlier. The lock prevents two threads from reading at the same time.
        self._one_task = asyncio.Lock()
        self._is_fresh = False
        self._has_failed = False
        self._closed = False

    def close(self) -> None:
        """End all streams. Call it when the server stops."""
        self._closed = True
        self._wake_pages()
        if self._reading_task is not None:
            self._reading_task.cancel()

    async def messages(self, since: str = "") -> AsyncGenerator[bytes]:
        """Yield server-sent events: ``whole`` with the node's state, then ``delta`` with changes.

        ``since`` is the ID of the last event that the page received. If all later changes are still
        stored, the stream starts with these changes instead of ``whole``.
        """
        with self._page():
            version = self._version_of(since)
            while not self._closed:
                # Read before the comparison, so that a change in between sets this event.
                changed = self._changed
                if self._is_fresh and self._state.version != version:
                    message = await self._after(version)
                    version = message.version
                    yield message.data
                    continue
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        await changed.wait()
                except TimeoutError:
                    yield b": \n\n"

    # -- what a page gets --------------------------------------------------------------

    def _version_of(self, since: str) -> int | None:
        epoch, _, version = since.partition("-")
        if epoch != self._epoch or not version.isascii() or not version.isdigit():
            return None
        # Limited, because the client chooses it, and many digits would be slow to convert.
        return int(version[:18])

    async def _after(self, version: int | None) -> Frame:
        """Return the changes after a version. If they are no longer stored, return the whole
        document."""
        if later := self._frames.after(version):
            return later
        # Locked, so that the document is encoded once even if many pages open at the same time.
        async with self._making:
            if self._whole is None or self._whole.version != self._state.version:
                self._whole = await self._on_worker(self._make_whole)
            return self._whole

    def _make_whole(self) -> Frame:
        state = self._state
        # Newer events belong to a later version and will be sent with it.
        events = [each for each in self._node.events() if each.number <= state.last_event]
        everything = changes(EMPTY, state.document)
        return frame("whole", self._epoch, state.version, everything, events[-_EVENTS:])

    # -- reading the node --------------------------------------------------------------

    @contextlib.contextmanager
    def _page(self) -> Iterator[None]:
        self._pages += 1
        if self._reading_task is None:
            # The state is from the time of the last open page, so it must be read again.
            self._is_fresh = False
            self._reading_task = asyncio.create_task(self._read_repeatedly())
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages and self._reading_task is not None:
                self._reading_task.cancel()
                self._reading_task = None

    async def _read_repeatedly(self) -> None:
        async with self._one_task:
            unsubscribe = self._node.subscribe(self._happened)
            try:
                while not self._closed:
                    cost = await self._read()
                    if not self._is_fresh:
                        self._is_fresh = True
                        self._wake_pages()
                    await asyncio.sleep(self._pause_after(cost + self._pages * _SENDING))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_PATIENCE):
                            await self._woken.wait()
                    self._woken.clear()
                    # Cleared before the next read, so that an event during the read wakes again.
                    self._is_waking.clear()
            finally:
                unsubscribe()

    def _pause_after(self, cost: float) -> float:
        return min(max(self._least_pause, cost * _SHARE), _LONGEST_PAUSE)

    async def _read(self) -> float:
        """Read the node on a worker thread. Return the CPU seconds used; never raise."""
        try:
            cost: float = await self._on_worker(self._read_node)
        except Exception as error:  # a bug; pages keep the last document
            # Reported once, because a bug that repeats with every read would fill the log.
            if not self._has_failed:
                self._node.failed(error)
            self._has_failed = True
            return _LONGEST_PAUSE
        self._has_failed = False
        return cost

    def _read_node(self) -> float:
        """Read the node, compare it with the last state and encode the changes. Runs on a worker
        thread. Return the CPU seconds used."""
        began = time.thread_time()
        before = self._state
        # Events are read before the document, which then contains their effects.
        events = [event for event in self._node.events() if event.number > before.last_event]
        latest = events[-1].number if events else before.last_event
        document = self._node.refresh()
        difference = changes(before.document, document)
        if difference or events or not before.version:
            state = _State(before.version + 1, document, latest)
            message = frame("delta", self._epoch, state.version, difference, events[-_EVENTS:])
            self._loop.call_soon_threadsafe(self._publish, state, message)
        return time.thread_time() - began

    def _publish(self, state: _State, message: Frame) -> None:
        self._state = state
        self._frames.add(message)
        self._wake_pages()

    def _wake_pages(self) -> None:
        # A new asyncio.Event each time, so that every waiting page sees this one exactly once.
        self._changed.set()
        self._changed = asyncio.Event()

    def _happened(self) -> None:
        """Request a read of the node. Called on the thread that publishes an event."""
        # Only the first call since the last read wakes the loop, because waking needs a system
        # call and passes the interpreter's lock to the loop's thread.
        if not self._is_waking.is_set():
            self._is_waking.set()
            with contextlib.suppress(RuntimeError):  # the server has just ended
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _on_worker(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._workers)
