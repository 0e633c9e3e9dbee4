"""Sending the answer to a request: one body, or lines as they come.

Last of the three files that a request passes: router, request, answer. Answers go out piece by
piece, so that a slow client holds one piece in the server's buffers and not all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from devicemanager.control.request import Account, disconnected
from devicemanager.control.shapes import Problem

__all__ = ["CLOSE", "Answer", "Lines", "encoded", "json_answer", "problem_answer", "send_pieces"]

_PIECE: Final = 1 << 16
"""Bytes that are sent before the client must have read some."""
CLOSE: Final = ((b"connection", b"close"),)
"""For rejected requests: the rest of an unread body would be read as the next request."""


class Answer:
    """An answer with one body, as an ASGI application."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        body: bytes,
        account: Account | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """``kind`` is the media type. The body is counted in ``account``; small ones need none.
        Raises HttpError if the limit does not allow it."""
        if account is not None:
            account.take(len(body))
        self._status = status
        self._kind = kind
        self._body = body
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An answer is the state of one moment; no browser or proxy may store it.
        headers = [(b"cache-control", b"no-store"), *self._headers]
        if self._status is not HTTPStatus.NO_CONTENT:
            headers.append((b"content-type", self._kind.encode()))
            headers.append((b"content-length", str(len(self._body)).encode()))
        # RFC 9110 requires this header with 401.
        if self._status is HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        start = {"type": "http.response.start", "status": self._status.value, "headers": headers}
        await send(start)
        await send_pieces(self._body, send)
        await send({"type": "http.response.body", "body": b""})


def encoded(value: Any) -> bytes:
    """Return a value as JSON; empty for None, which is sent without a body."""
    # Details of events can be any Python value; those that JSON does not know become text.
    return b"" if value is None else msgspec.json.encode(value, enc_hook=str)


def json_answer(status: HTTPStatus, body: bytes, account: Account) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, "application/json", body, account)


def problem_answer(problem: Problem) -> Answer:
    """Return the answer to a request that failed."""
    body = msgspec.json.encode(problem)
    return Answer(HTTPStatus(problem.status), "application/problem+json", body, headers=CLOSE)


async def send_pieces(body: bytes, send: Send) -> None:
    """Send a part of an answer; more can follow."""
    # Slices of a view copy nothing; each piece is copied once, when it is sent.
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        piece = bytes(view[at : at + _PIECE])
        await send({"type": "http.response.body", "body": piece, "more_body": True})


class Lines:
    """An answer of lines as they come, as an ASGI application. It ends with the lines, or when
    the client disconnects."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # An empty part, so that the client gets the headers before the first line exists.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = asyncio.create_task(disconnected(receive))
        try:
            async for some in self._until(gone):
                await send_pieces(some, send)
            # The last part says that the stream is complete. To a client that has disconnected
            # nothing can be sent.
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()

    async def _until(self, gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
        # Both are awaited together: without entries, a disconnected client would otherwise stay
        # subscribed until the next one.
        while True:
            following = asyncio.ensure_future(anext(self._lines, None))
            await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await self._lines.aclose()  # type: ignore[attr-defined]  # a generator
                return
            some = following.result()
            if some is None:
                return
            yield some
