"""One HTTP connection: uvicorn's, with limits for clients that neither ask nor read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from devicemanager.control.limits import IDLE_SECONDS, STALLED_SECONDS

__all__ = ["Connection"]


class Connection(H11Protocol):
    """Closes itself when the first request does not come, when what was written is not read,
    and at once when there are too many. uvicorn limits the time between two requests."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) >= limit:
            transport.abort()
            return
        self._within(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._end_limit()  # a request has come, and the application limits its body

    def pause_writing(self) -> None:
        super().pause_writing()
        self._within(STALLED_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_limit()

    def _within(self, seconds: float) -> None:
        self._end_limit()
        self._limit = self.loop.call_later(seconds, self.transport.abort)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
