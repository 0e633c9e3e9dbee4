"""Limit the memory for responses that clients have not read yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

import attrs

from podresources.accepted import PATIENCE

LIMIT_BYTES = 64 << 20
LIMIT_ANSWERS = 1024


class Call(Protocol):
    """One RPC on the server's side, such as a ``grpc.ServicerContext``."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register a callback for the end of the RPC, and return True. If the RPC has already
        ended, return False without registering the callback."""

    def cancel(self) -> bool:
        """End the RPC and drop the part of its response that the client has not read."""


def _nothing() -> None:
    pass


@attrs.frozen(eq=False, repr=False)
class _Pending:
    call: Call
    size: int
    since: float


class Backlog:
    """Limits on the number and the total size of responses that clients have not read. Thread-safe.

    gRPC accepts every response and stores it until the client has read it. Clients that never read
    would fill the memory. If a new response does not fit, the oldest stored responses must make
    room:

    1. If one of them has been stored for less than ``patience`` seconds, the new response is
       rejected.
    2. Otherwise, clients that do not read their responses are disconnected.
    3. If the new response still does not fit, the calls of the oldest responses are canceled.
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
        # Held while clients are disconnected.
        self._disconnecting = threading.Lock()
        self.disconnect: Callable[[], object] = _nothing
        """Function that disconnects clients that do not read their responses. It may block."""

    @property
    def size(self) -> int:
        """Total size in bytes of the responses that clients have not read yet."""
        return self._bytes

    def add(self, call: Call, size: int) -> bool:
        """Return True if a response of ``size`` bytes fits within the limits, else False.

        A response that fits counts toward the limits until its RPC ends. To make room for a
        response, the method can block for a second.
        """
        with self._lock:
            old = self._in_the_way(size)
            number = None if old is None or old else self._put(call, size)
        # One thread at a time makes room. Meanwhile, other responses that do not fit are rejected.
        if old and self._disconnecting.acquire(blocking=False):
            try:
                number = self._put_in_place_of_others(call, size)
            finally:
                self._disconnecting.release()
        if number is None:
            return False
        if not call.add_callback(lambda: self._remove(number)):
            self._remove(number)
        return True

    def _put_in_place_of_others(self, call: Call, size: int) -> int | None:
        # Cancelling a call does not free the bytes that wait for a full socket: they are freed when
        # the client is disconnected.
        self.disconnect()
        with self._lock:
            old = self._in_the_way(size)
            cancelled = [self._take(number) for number in old or ()]
            number = None if old is None else self._put(call, size)
        # Called without the lock: ``cancel`` runs the callbacks of its RPC, which take the lock.
        for each in cancelled:
            each.call.cancel()
        return number

    def _in_the_way(self, size: int) -> list[int] | None:
        """Return the numbers of the calls to cancel so that ``size`` bytes fit, or None if too few
        calls are old enough.

        Must be called with the lock held.
        """
        now = self._clock()
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
        return chosen

    def _put(self, call: Call, size: int) -> int:
        number = next(self._numbers)
        self._pending[number] = _Pending(call, size, self._clock())
        self._bytes += size
        return number

    def _take(self, number: int) -> _Pending:
        pending = self._pending.pop(number)
        self._bytes -= pending.size
        return pending

    def _remove(self, number: int) -> None:
        with self._lock:
            if number in self._pending:
                self._take(number)
