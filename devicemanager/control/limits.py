"""What clients may take: bytes under way, sizes, times. Nobody else waits for them."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from devicemanager.control.errors import HttpError

__all__ = [
    "BODY_SECONDS",
    "IDLE_SECONDS",
    "MAX_BODY",
    "STALLED_SECONDS",
    "WORKERS",
    "Budget",
    "max_connections",
]

MAX_BODY: Final = 4 << 20
"""Bytes of a request's body."""
BODY_SECONDS: Final = 30.0
"""In which a body has to arrive."""
IDLE_SECONDS: Final = 30.0
"""That a connection may take for its first request, or between two."""
STALLED_SECONDS: Final = 30.0
"""After which a client that does not read what it asked for is let go."""
WORKERS: Final = 16
"""Threads on which operations run."""

_UNDER_WAY: Final = 128 << 20
_MOST_CONNECTIONS: Final = 2048


def max_connections() -> int:
    """As many as leave the kubelet half of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // 2
    return max(4, min(_MOST_CONNECTIONS, limit))


class Budget:
    """Bytes of bodies and answers that are under way, all clients together."""

    def __init__(self, limit: int = _UNDER_WAY) -> None:
        self._limit = limit
        self.used = 0

    @contextlib.contextmanager
    def account(self) -> Iterator[Account]:
        """What one request takes; given back at its end."""
        account = Account(self)
        try:
            yield account
        finally:
            self.used -= account.taken

    def take(self, count: int) -> None:
        """Raises HttpError if that is more than there is."""
        if self.used + count > self._limit:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too-much",
                "other clients' requests and answers take all the memory that there is for "
                "them: try again",
            )
        self.used += count


class Account:
    """One request's part of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Raises HttpError if that is more than there is."""
        self._budget.take(count)
        self.taken += count

    @contextlib.contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """The same for as long as a with block lasts."""
        self.take(count)
        try:
            yield
        finally:
            self._budget.used -= count
            self.taken -= count
