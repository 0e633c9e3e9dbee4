"""Answers that were given and have not reached their client yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

import attrs

LIMIT_BYTES = 64 << 20
LIMIT_ANSWERS = 1024
PATIENCE = 1.0
"""Seconds in which a client on the same machine reads an answer of any size."""


class Call(Protocol):
    """One RPC on the server's side, as ``grpc.ServicerContext`` has it."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call back when the RPC has ended, its answer read or not. False if it has already."""

    def cancel(self) -> bool:
        """End the RPC; what its client has not read is dropped."""


@attrs.frozen(eq=False, repr=False)
class _Pending:
    call: Call
    size: int
    since: float


class Backlog:
    """Bounds the bytes that wait for clients to read them. Thread-safe.

    gRPC takes every answer at once and keeps it until its client reads: clients that never
    do would fill the memory. An answer that finds no room ends the oldest calls that are
    unread for longer than a client needs; if all are younger, it is rejected.
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
        # Guards the two below.
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}  # oldest first
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes under way."""
        return self._bytes

    def add(self, call: Call, size: int) -> bool:
        """Count an answer of ``size`` bytes until its RPC ends. False: there is no room."""
        now = self._clock()
        with self._lock:
            given_up = self._make_room(size, now)
            if given_up is not None:
                number = next(self._numbers)
                self._pending[number] = _Pending(call, size, now)
                self._bytes += size
        for each in given_up or ():
            each.call.cancel()
        if given_up is None:
            return False
        if not call.add_callback(lambda: self._remove(number)):
            self._remove(number)
        return True

    def _make_room(self, size: int, now: float) -> list[_Pending] | None:
        """With the lock held: whom to give up; None if that would not be enough."""
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
        # An answer that is larger than the limit goes alone.
        return [self._take(number) for number in chosen]

    def _take(self, number: int) -> _Pending:
        pending = self._pending.pop(number)
        self._bytes -= pending.size
        return pending

    def _remove(self, number: int) -> None:
        with self._lock:
            if number in self._pending:
                self._take(number)
