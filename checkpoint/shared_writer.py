"""Concurrent callers share durable writes of one file.

A caller that arrives while a write is in progress waits for the next write, which covers all
callers that arrived in the meantime. No caller returns before a write that began after its
change has reached the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from checkpoint.errors import CheckpointWriteError
from checkpoint.files import Contents
from checkpoint.store import CHECKPOINT_NAME


class Store(Protocol):
    """Where the file is: ``checkpoint.FileStore``, or memory in tests."""

    def write(self, data: Contents) -> None:
        """Replace the contents, atomically and durably. Raises CheckpointWriteError."""


@attrs.define(eq=False, repr=False)
class MemoryStore:
    """A store without a disk, for tests and replays: keeps the last contents."""

    data: bytes | None = None
    writes: int = 0

    def write(self, data: Contents) -> None:
        self.data = data if isinstance(data, bytes) else b"".join(data)
        self.writes += 1


@attrs.define(eq=False, repr=False)
class _Round:
    """One durable write and those who wait for it."""

    done: bool = False
    error: BaseException | None = None


class Writer:
    """Shares durable writes among callers that ask for one at the same time.

    A caller joins the round that has not begun yet and waits for its turn. The first caller
    of a round writes for all of them; the others find the round done. A caller that is
    interrupted leaves the round to the next one.
    """

    def __init__(
        self,
        store: Store,
        render: Callable[[], Contents],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """``written`` is called after each write that succeeded, once no caller waits for
        that write."""
        self._store = store
        self._render = render
        self._written = written
        # Held while rendering and writing. Guards every round's fields.
        self._turn = threading.Lock()
        self._next = _Round()
        self._closed = False

    def close(self) -> None:
        """Wait for the write under way; every later one fails. A kubelet that stops calls
        this, since its successor owns the file."""
        self._closed = True
        with self._turn:
            pass

    def flush(self) -> None:
        """Return once everything changed before this call is on disk.

        Raises CheckpointWriteError, to everybody who shared the write that failed.
        """
        # Read before taking the turn: a write that has begun may have missed our change.
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
        self._next = _Round()  # later comers need a later write
        try:
            self._store.write(self._render())
        except CheckpointWriteError as error:
            mine.error = error
        mine.done = True
