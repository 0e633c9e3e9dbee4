"""Write a file durably for concurrent callers. Callers that wait at the same time share a write."""

# Theory of operation. Every admission changes the state in memory and must not return before the
# change is on disk. A durable write takes milliseconds. If each of 50 concurrent admissions wrote
# the file itself, each would wait for all writes before it. Instead, one write covers all changes
# made before it began.
#
# A ``_Round`` represents one write and the callers that wait for it. ``flush`` has three cases:
#
# 1. No write is in progress: the caller writes immediately, and only its own change.
# 2. A write is in progress: it may not contain the caller's change, so the caller joins the next
#    round. The first caller of that round to get the lock writes for all of them.
# 3. Another caller has completed the round when this caller gets the lock: this caller returns, or
#    raises the error of the write.
#
# Why a write contains every change of its callers: a caller reads ``_next`` *before* it waits for
# the lock, and a writer replaces ``_next`` *before* it renders. Therefore a caller of a round made
# its change before the write of that round began.
#
# A caller can be interrupted (Ctrl-C) while it waits or writes. An interrupted write does not mark
# its round as done, so the next caller of the round writes.

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from checkpoint.errors import CheckpointWriteError
from checkpoint.files import Contents
from checkpoint.store import CHECKPOINT_NAME


class Store(Protocol):
    """Storage for the contents of a checkpoint: a ``checkpoint.FileStore``, or memory in tests."""

    def write(self, data: Contents) -> None:
        """Replace the stored contents atomically and durably. Raises CheckpointWriteError if that
        fails."""


@attrs.define(eq=False, repr=False)
class MemoryStore:
    """In-memory store for tests and replays. ``writes`` counts the calls of ``write``."""

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
    """Writer that writes a file durably and combines the writes of concurrent callers.
    Thread-safe."""

    def __init__(
        self,
        store: Store,
        render: Callable[[], Contents],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """``render`` returns the contents to write. ``written`` is called after each successful
        write, and does not delay other writes."""
        self._store = store
        self._render = render
        self._written = written
        # Held while rendering and writing. It guards the fields of all rounds.
        self._turn = threading.Lock()
        self._next = _Round()
        self._closed = False

    def close(self) -> None:
        """Wait for the write in progress, and allow no new write. A call of ``flush`` that needs a
        new write raises CheckpointWriteError.

        A mock kubelet calls this when it stops: from then on, only the next kubelet may write.
        """
        # Set before waiting for the lock: callers that already wait must not write any more.
        self._closed = True
        with self._turn:
            pass

    def flush(self) -> None:
        """Write to disk everything that was changed before this call.

        Callers can share one write. If this write fails, ``flush`` raises the same
        CheckpointWriteError in each of these callers.
        """
        # Read before taking the lock: a write in progress may not contain this caller's change.
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
        # Replaced before rendering: what is rendered may lack changes that are made from now on.
        self._next = _Round()
        try:
            self._store.write(self._render())
        except CheckpointWriteError as error:
            mine.error = error
        mine.done = True
