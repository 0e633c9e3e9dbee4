"""The control API of a mock kubelet: what its table of operations needs besides."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.types import Receive, Scope, Send

from devicemanager.control import shapes
from devicemanager.control.access import Gate
from devicemanager.control.callwaits import CallWait
from devicemanager.control.errors import problem_of
from devicemanager.control.feed import Feed, call_source, event_source
from devicemanager.control.limits import Account
from devicemanager.control.operation import Kind, Operation, Request
from devicemanager.control.operations import OPERATIONS, document
from devicemanager.control.receiving import disconnected
from devicemanager.control.router import TableApplication
from devicemanager.control.sending import send_pieces
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.waits import WaitTimeout

__all__ = ["Application"]

_LINES: Final = "application/x-ndjson"
_LOOK_SECONDS: Final = 0.25
"""Between two looks at what a wait is for, if nothing happens: time alone may fulfil it."""


class Application(TableApplication):
    """Answers the requests of one server. To be made on the server's loop."""

    def __init__(self, kubelet: MockKubelet, gate: Gate) -> None:
        """``gate`` has the rules for requests over TCP."""
        super().__init__(kubelet, gate, OPERATIONS, document)
        self._kubelet = kubelet
        workers = self._workers
        self._events = Feed(event_source(kubelet.events), workers)
        self._calls = Feed(call_source(kubelet.calls, with_bytes=False), workers)
        self._calls_with_bytes = Feed(call_source(kubelet.calls, with_bytes=True), workers)

    def close(self) -> None:
        """The server ends: let streams and waits come to their ends."""
        for feed in (self._events, self._calls, self._calls_with_bytes):
            feed.close()

    def _feed_of(self, operation: Operation, query: Any) -> Feed[Any]:
        if operation.answer is shapes.Event:
            return self._events
        return self._calls_with_bytes if query.bytes else self._calls

    def _problem(self, error: Exception, scope: Scope) -> shapes.Problem:
        problem = problem_of(error, missing=self._is_missing(error, scope))
        if problem.reason == "internal":
            self._kubelet.events.publish(EventKind.SERVER_ERROR, f"control API: {problem.detail}")
        return problem

    def _is_missing(self, error: Exception, scope: Scope) -> bool:
        """Whether the pod or fault that the path names is not there."""
        named = {name: unquote(text) for name, text in scope.get("path_params", {}).items()}
        if not isinstance(error, RequestError) or not named:
            return False
        if "id" in named:
            return True  # all that can be wrong with it
        return self._kubelet.is_serving and not self._kubelet.has_pod(named["uid"])

    # -- waits and streams -----------------------------------------------------------

    async def _made(self, operation: Operation, asked: Request, account: Account) -> Any:
        if operation.kind is Kind.STREAM:
            return self._stream(operation, asked)
        return await super()._made(operation, asked, account)

    async def _call(self, operation: Operation, asked: Request) -> Any:
        if operation.kind is Kind.WAIT:
            return await self._wait(operation, asked)
        return await super()._call(operation, asked)

    async def _wait(self, operation: Operation, asked: Request) -> Any:
        """Look, wait for an event or call, look again. A wait has no thread while nothing
        happens."""
        timeout = asked.body.timeout
        asked = Request(asked.path, asked.query, self._from_now(asked.body))
        feed: Feed[Any] = self._calls if isinstance(asked.body, CallWait) else self._events
        end = time.monotonic() + timeout
        while True:
            seen = feed.latest
            try:
                return await super()._call(operation, asked)
            except WaitTimeout as error:
                rest = end - time.monotonic()
                if rest <= 0 or feed.closed:
                    text = str(error).replace("waited 0 s", f"waited {timeout:g} s", 1)
                    raise WaitTimeout(text) from None
                await feed.changes(seen, min(rest, _LOOK_SECONDS))

    def _from_now(self, body: Any) -> Any:
        """A wait's body with the present moment where it names none."""
        match body:
            case shapes.EventWait(after=None):
                return msgspec.structs.replace(body, after=self._kubelet.events.latest)
            case CallWait(since=None):
                return msgspec.structs.replace(body, since=self._kubelet.mark())
        return body

    def _stream(self, operation: Operation, asked: Request) -> Any:
        query = asked.query
        wanted = operation.handler(self._kubelet, asked)
        feed = self._feed_of(operation, query)
        lines = feed.lines(query.since, follow=query.follow, wanted=wanted)

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [(b"content-type", _LINES.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            # So that the client has the headers before the first event.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            gone = asyncio.create_task(disconnected(receive))
            try:
                async for some in _until(lines, gone):
                    await send_pieces(some, send)
                if not gone.done():
                    await send({"type": "http.response.body", "body": b""})
            finally:
                gone.cancel()

        return stream


async def _until(lines: Any, gone: asyncio.Task[None]) -> Any:
    """The stream's parts until it ends or the client has gone."""
    while True:
        following = asyncio.ensure_future(anext(lines, None))
        await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await lines.aclose()
            return
        some = following.result()
        if some is None:
            return
        yield some
