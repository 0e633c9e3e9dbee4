"""The page's routes: its files, its stream, and what only the page asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from devicemanager.control.answer import send_pieces
from devicemanager.control.request import Account, disconnected, read_body
from devicemanager.observe.web.page import actions
from devicemanager.observe.web.page.headers import HEADERS
from devicemanager.observe.web.page.node import SiteNode
from devicemanager.observe.web.page.updates import Updates
from devicemanager.observe.web.site import Site

__all__ = ["routes"]

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MOST_BODY: Final = 1 << 20


def routes(site: Site) -> Sequence[BaseRoute]:
    """Called once, on the server's loop."""
    updates = Updates(SiteNode(site))
    site.on_close(updates.close)
    return [
        *_files(),
        Route("/page/stream", partial(_stream, updates)),
        Route("/page/device-health", partial(_device_health, site), methods=["POST"]),
        Route("/page/settings", partial(_settings, site), methods=["POST"]),
    ]


def _files() -> list[Route]:
    """A route for each file: nothing else in the directory or outside of it can be asked for."""
    found = []
    for file in sorted(files(__package__).joinpath("static").iterdir(), key=lambda one: one.name):
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            found.append(Route(path, _file(file.read_bytes(), kind)))
    return found


def _file(body: bytes, kind: str) -> Callable[[Request], Any]:
    headers = {**HEADERS, "content-type": kind}

    async def answer(_: Request) -> Response:
        return Response(body, headers=headers)

    return answer


# -- the stream ------------------------------------------------------------------------


async def _stream(updates: Updates, request: Request) -> Any:
    # A browser that connects again by itself says so in the header.
    since = request.headers.get("last-event-id") or request.query_params.get("since", "")
    return _Messages(updates.messages(since), request.scope["account"])


class _Messages:
    """Server-sent events until either side ends."""

    def __init__(self, messages: AsyncGenerator[bytes], account: Account) -> None:
        """``account`` has to have room for a message while it is sent: who does not read
        what he asked for keeps it in memory."""
        self._messages = messages
        self._account = account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**HEADERS, "content-type": "text/event-stream"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._messages) as messages:
            async for message in messages:
                with self._account.holding(len(message)):
                    await send_pieces(message, send)
        await send({"type": "http.response.body", "body": b""})


# -- what is asked for -----------------------------------------------------------------


async def _device_health(site: Site, request: Request) -> Response:
    site.check(request)
    asked = actions.decoded(await read_body(request, _MOST_BODY), actions.DeviceHealth)
    await anyio.to_thread.run_sync(partial(actions.set_health, site, asked), limiter=site.workers)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS)


async def _settings(site: Site, request: Request) -> Response:
    # Needs the token although it changes nothing: variables may be secrets.
    site.check(request)
    asked = actions.decoded(await read_body(request, _MOST_BODY), actions.SettingsOf)
    work = partial(actions.container_settings, site.kubelet, asked)
    found = await anyio.to_thread.run_sync(work, limiter=site.workers)
    headers = {**HEADERS, "content-type": "application/json"}
    return Response(msgspec.json.encode(found), headers=headers)
