"""Limit the memory for responses that clients have not read yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

import attrs

LIMIT_BYTES = 64 << 20
LIMIT_ANSWERS = 1024
PATIENCE = 1.0
"""Seconds after which an unread response may be dropped. A client on the same machine reads a
response of any size faster."""


class Call(Protocol):
    """One RPC on the server's side, such as a ``grpc.ServicerContext``."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register a callback for the end of the RPC, and return True. If the RPC has already
        ended, return False without registering the callback."""

    def cancel(self) -> bool:
        """End the RPC and drop the part of its response that the client has not read."""


@attrs.frozen(eq=False, repr=False)
class _Pending:
    call: Call
    size: int
    since: float


class Backlog:
    """Limit on the number of bytes that wait for clients to read them. Thread-safe.

    gRPC accepts every response and stores it until the client has read it. Clients that never read
    would fill the memory. If a new response does not fit, the oldest calls that have waited for at
    least ``patience`` seconds are cancelled. If that does not make enough room, the new response is
    rejected.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_answers: int = LIMIT_ANSWERS,
        patience: float = PATIENCE,
    ) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._limit_answers = limit_answers
        self._patience = patience
        self._numbers = count()
        # Guards ``_pending`` and ``_bytes``.
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}  # oldest first
        self._bytes = 0

    @property
    def size(self) -> int:
        """Number of bytes that clients have not read yet."""
        return self._bytes

    def add(self, call: Call, size: int) -> bool:
        """Count a response of ``size`` bytes until its RPC ends. Return False, without counting it,
        if the response does not fit."""
        now = self._clock()
        with self._lock:
            cancelled = self._make_room(size, now)
            if cancelled is not None:
                number = next(self._numbers)
                self._pending[number] = _Pending(call, size, now)
                self._bytes += size
        # Called without the lock: ``cancel`` runs the callbacks of its RPC, which take the lock.
        for each in cancelled or ():
            each.call.cancel()
        if cancelled is None:
            return False
        if not call.add_callback(lambda: self._remove(number)):
            self._remove(number)
        return True

    def _make_room(self, size: int, now: float) -> list[_Pending] | None:
        """Remove and return the calls to cancel so that ``size`` bytes fit. Return None if too few
        calls are old enough.

        Must be called with the lock held.
        """
        room = self._limit_bytes - self._bytes
        places = self._limit_answers - len(self._pending)
        chosen: list[int] = []
        for number, pending in self._pending.items():
            if room >= size and places > 0:
                break
            if now - pending.since < self._patience:
                return None
            chosen.append(number)
            room, places = room + pending.size, places + 1
        # A response larger than the limit is accepted if no other response is unread.
        return [self._take(number) for number in chosen]

    def _take(self, number: int) -> _Pending:
        pending = self._pending.pop(number)
        self._bytes -= pending.size
        return pending

    def _remove(self, number: int) -> None:
        with self._lock:
            if number in self._pending:
                self._take(number)
