"""Send the response to a request: one body, or lines as they become available.

This is the last of the three modules that a request passes: router, request, answer. Responses are
sent in pieces, so the server buffers only one piece for a slow client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from devicemanager.control.request import Account, disconnected
from devicemanager.control.shapes import Problem

__all__ = ["CLOSE", "Answer", "Lines", "encoded", "json_answer", "problem_answer", "send_pieces"]

_PIECE: Final = 1 << 16
"""Number of bytes sent at a time; the next piece is sent when the client has read some."""
CLOSE: Final = ((b"connection", b"close"),)
"""Header that closes the connection after the response to a rejected request. Otherwise the server
would parse the unread body of the request as the next request."""


class Answer:
    """A response with one body, as an ASGI application."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        body: bytes,
        account: Account | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Create a response with the media type ``kind``.

        ``account`` counts the bytes of the request and of ``body`` toward the memory limit for all
        requests. None, for a small body, counts nothing. Raises HttpError if ``body`` would exceed
        the limit.
        """
        if account is not None:
            account.take(len(body))
        self._status = status
        self._kind = kind
        self._body = body
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A response shows the state at one moment, so browsers and proxies must not store it.
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
    """Return a value as JSON. None becomes an empty body."""
    # Event details can be any Python value; values without a JSON type become text.
    return b"" if value is None else msgspec.json.encode(value, enc_hook=str)


def json_answer(status: HTTPStatus, body: bytes, account: Account) -> Answer:
    """Return a JSON response. ``account`` counts its body toward the memory limit for all requests.
    Raises HttpError if the body would exceed the limit."""
    return Answer(status, "application/json", body, account)


def problem_answer(problem: Problem) -> Answer:
    """Return the response that describes why a request failed."""
    body = msgspec.json.encode(problem)
    return Answer(HTTPStatus(problem.status), "application/problem+json", body, headers=CLOSE)


async def send_pieces(body: bytes, send: Send) -> None:
    """Send ``body`` in pieces, as a part of a response. More parts can follow."""
    # Slices of a memoryview copy nothing. Each piece is copied once, when it is sent.
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        piece = bytes(view[at : at + _PIECE])
        await send({"type": "http.response.body", "body": piece, "more_body": True})


class Lines:
    """A response of lines that are sent as they become available, as an ASGI application. It ends
    after the last line, or when the client disconnects."""

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The empty part makes uvicorn send the headers before the first line exists.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        # Ended by the disconnect. Otherwise a disconnected client would stay subscribed until the
        # next line.
        try:
            async with asyncio.timeout(None) as connected:
                disconnect = asyncio.create_task(disconnected(receive))
                disconnect.add_done_callback(lambda _: _end(connected))
                try:
                    async for lines in self._lines:
                        await send_pieces(lines, send)
                    # The last part marks the stream as complete.
                    await send({"type": "http.response.body", "body": b""})
                finally:
                    disconnect.cancel()
                    await self._lines.aclose()
        except TimeoutError:
            if not connected.expired():
                raise


def _end(scope: asyncio.Timeout) -> None:
    with contextlib.suppress(RuntimeError):  # it has ended already
        scope.reschedule(0.0)
