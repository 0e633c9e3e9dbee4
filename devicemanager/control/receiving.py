"""What comes with a request, and what limits it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import Receive

from devicemanager.control.errors import HttpError
from devicemanager.control.limits import BODY_SECONDS, MAX_BODY, Account

__all__ = ["disconnected", "read_body"]


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """The whole body, within the limits of size, ``most`` bytes, and of time. Raises
    HttpError."""
    account: Account = request.scope["account"]
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    text = f"the body has more than {most} bytes"
                    raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", text)
                account.take(len(part))
                parts.append(part)
    except TimeoutError:
        text = f"the body did not come within {BODY_SECONDS:g} s"
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "too-slow", text) from None
    return b"".join(parts)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
