"""Answers of one body, and what limits them."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.types import Receive, Scope, Send

from devicemanager.control.limits import Account

__all__ = ["Answer", "send_pieces"]

_PIECE: Final = 1 << 16
"""Bytes that are sent before the client has to have read some."""


class Answer:
    """An answer as an ASGI application, sent piece by piece, so that a slow client has not all
    of it at once."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        body: bytes,
        account: Account | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """``kind`` is the media type. ``account`` has to have room for the body; small ones
        need none. Raises HttpError if it has not."""
        if account is not None:
            account.take(len(body))
        self._status = status
        self._kind = kind
        self._body = body
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"cache-control", b"no-store"), *self._headers]
        if self._status is not HTTPStatus.NO_CONTENT:
            headers.append((b"content-type", self._kind.encode()))
            headers.append((b"content-length", str(len(self._body)).encode()))
        if self._status is HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        start = {"type": "http.response.start", "status": self._status.value, "headers": headers}
        await send(start)
        await send_pieces(self._body, send)
        await send({"type": "http.response.body", "body": b""})


async def send_pieces(body: bytes, send: Send) -> None:
    """Send a part of an answer, after which more may come."""
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        piece = bytes(view[at : at + _PIECE])
        await send({"type": "http.response.body", "body": piece, "more_body": True})
