"""Concurrent callers share durable writes of one file."""

# Theory of operation. Every admission changes the state in memory and must not return before the
# change is on disk. A durable write takes milliseconds, so 50 concurrent admissions with a write
# each would wait for each other. Instead, a write covers all changes made before it began.
#
# A ``_Round`` is one write and the callers that wait for it. ``flush`` has three cases:
#
# 1. No write is in progress: the caller writes at once, for itself only.
# 2. A write is in progress: it may have missed the caller's change, so the caller joins the next
#    round. The first caller of that round to get the lock writes for all of them.
# 3. The caller's round is done when it gets the lock: it returns, or raises the error of the
#    write.
#
# Why it works: a caller reads ``_next`` *before* it waits for the lock, and a writer replaces
# ``_next`` *before* it renders. A caller that has read a round made its change before the write of
# that round began.
#
# A caller can be interrupted (Ctrl-C) while it waits or writes. Its round is not marked as done
# then, and the next caller of the round writes.

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from checkpoint.errors import CheckpointWriteError
from checkpoint.files import Contents
from checkpoint.store import CHECKPOINT_NAME


class Store(Protocol):
    """A place for the contents: ``checkpoint.FileStore``, or memory in tests."""

    def write(self, data: Contents) -> None:
        """Replace the contents atomically and durably. Raises CheckpointWriteError."""


@attrs.define(eq=False, repr=False)
class MemoryStore:
    """In-memory store for tests and replays."""

    data: bytes | None = None
    writes: int = 0

    def write(self, data: Contents) -> None:
        self.data = data if isinstance(data, bytes) else b"".join(data)
        self.writes += 1


@attrs.define(eq=False, repr=False)
class _Round:
    """One durable write, shared by the callers that wait for it."""

    done: bool = False
    error: BaseException | None = None


class Writer:
    """Durable writer that concurrent callers share. Thread-safe."""

    def __init__(
        self,
        store: Store,
        render: Callable[[], Contents],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """``render`` returns the contents to write. ``written`` is called after each
        successful write, without the lock."""
        self._store = store
        self._render = render
        self._written = written
        # Held while rendering and writing. Guards the fields of all rounds.
        self._turn = threading.Lock()
        self._next = _Round()
        self._closed = False

    def close(self) -> None:
        """Wait for the write in progress; later writes fail.

        A kubelet calls this when it stops, because its successor owns the file.
        """
        # Set before waiting: callers of the next round must not write any more.
        self._closed = True
        with self._turn:
            pass

    def flush(self) -> None:
        """Write to disk everything that was changed before this call.

        Raises CheckpointWriteError in all callers that shared the failed write.
        """
        # Read before taking the lock: a write in progress may have missed this change.
        mine = self._next
        with self._turn:
            wrote = not mine.done
            if wrote:
                self._write(mine)
        if mine.error is not None:
            raise mine.error
        if wrote:
            self._written()

    def _write(self, mine: _Round) -> None:
        if self._closed:
            raise CheckpointWriteError(CHECKPOINT_NAME, "the kubelet is stopping")
        # Before rendering: a change made from now on may be missing in what is rendered.
        self._next = _Round()
        try:
            self._store.write(self._render())
        except CheckpointWriteError as error:
            mine.error = error
        mine.done = True
