"""The control API as an ASGI application, made of the table of operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from devicemanager.control import handlers, shapes
from devicemanager.control.access import Gate
from devicemanager.control.answering import Answering
from devicemanager.control.callwaits import CallWait
from devicemanager.control.decode import decode_body, decode_query
from devicemanager.control.errors import HttpError, problem_of
from devicemanager.control.feed import Feed, call_source, event_source
from devicemanager.control.limits import WORKERS, Account
from devicemanager.control.openapi import document
from devicemanager.control.operations import OPERATIONS, Kind, Operation
from devicemanager.control.receiving import disconnected, read_body
from devicemanager.control.sending import Answer
from devicemanager.core.errors import RequestError
from devicemanager.events import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.waiting import WaitTimeout

__all__ = ["Application"]

_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
_PROBLEM: Final = "application/problem+json"
_LOOK_SECONDS: Final = 0.25
"""Between two looks at what a wait is for, if nothing happens: time alone may fulfil it."""


class Application(Answering):
    """Answers the requests of one server. To be made on the server's loop."""

    def __init__(self, kubelet: MockKubelet, gate: Gate) -> None:
        """``gate`` has the rules for requests over TCP."""
        self._kubelet = kubelet
        self._gate = gate
        super().__init__()
        self._workers = CapacityLimiter(WORKERS)
        workers = self._workers
        self._events = Feed(event_source(kubelet.events), workers)
        self._calls = Feed(call_source(kubelet.calls, with_bytes=False), workers)
        self._calls_with_bytes = Feed(call_source(kubelet.calls, with_bytes=True), workers)
        by_path: dict[str, dict[str, Operation]] = {}
        for each in OPERATIONS:
            by_path.setdefault(each.path, {})[each.method] = each
        self._router = Router(
            [
                *(
                    Route(path, _Endpoint(self, methods), methods=list(methods))
                    for path, methods in by_path.items()
                ),
                Route("/openapi.json", self._openapi),
            ],
            redirect_slashes=False,
        )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # As the path was sent: a slash inside of a name is no other path.
        scope["path"] = scope["raw_path"].decode("ascii")
        self._gate.check(scope)
        await self._router(scope, receive, send)

    def _refusal(self, error: Exception, scope: Scope) -> Answer:
        if isinstance(error, HTTPException):
            status = HTTPStatus(error.status_code)
            error = HttpError(status, _word(status), _unrouted(scope, status))
        problem = self._problem(error, scope)
        # The rest of a body that was not read would be taken for the next request.
        headers = [(b"connection", b"close")]
        body = msgspec.json.encode(problem)
        return Answer(HTTPStatus(problem.status), _PROBLEM, body, headers=headers)

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
        return self._kubelet.is_serving and named["uid"] not in self._kubelet.pods()

    async def _openapi(self, request: Request) -> Any:
        body = msgspec.json.encode(document())
        return Answer(HTTPStatus.OK, _JSON, body, request.scope["account"])

    # -- operations ----------------------------------------------------------------------

    async def carry_out(self, operation: Operation, request: Request) -> Any:
        """The answer, as an ASGI application."""
        account: Account = request.scope["account"]
        # The body first: a client that is still sending would not hear what is wrong.
        data = await read_body(request)
        if data and operation.body is None:
            text = f"{operation.method} {operation.path} takes no body"
            raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
        query = decode_query(operation, request.query_params)
        body = decode_body(operation, data)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        asked = handlers.Request(path, query, body)
        if operation.kind is Kind.STREAM:
            return self._stream(operation, asked)
        if operation.kind is Kind.WAIT:
            answer = await self._wait(operation, asked)
        else:
            answer = await self._call(operation, asked)
        if operation.answer is None:
            return Answer(operation.status, "", b"", account)
        encoded = await self._on_worker(lambda: msgspec.json.encode(answer, enc_hook=str))
        return Answer(operation.status, _JSON, encoded, account)

    async def _call(self, operation: Operation, asked: handlers.Request) -> Any:
        return await self._on_worker(lambda: operation.handler(self._kubelet, asked))

    async def _on_worker(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._workers)

    async def _wait(self, operation: Operation, asked: handlers.Request) -> Any:
        """Look, wait for an event or call, look again. A wait has no thread while nothing
        happens."""
        timeout = asked.body.timeout
        asked = handlers.Request(asked.path, asked.query, self._from_now(asked.body))
        feed: Feed[Any] = self._calls if isinstance(asked.body, CallWait) else self._events
        end = time.monotonic() + timeout
        while True:
            seen = feed.latest
            try:
                return await self._call(operation, asked)
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

    def _stream(self, operation: Operation, asked: handlers.Request) -> Any:
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
                    await send({"type": "http.response.body", "body": some, "more_body": True})
                if not gone.done():
                    await send({"type": "http.response.body", "body": b""})
            finally:
                gone.cancel()

        return stream


class _Endpoint:
    """The operations of one path."""

    def __init__(self, application: Application, methods: Mapping[str, Operation]) -> None:
        self._application = application
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request = Request(scope, receive, send)
        answer = await self._application.carry_out(self._methods[method], request)
        await answer(scope, receive, send)


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


def _word(status: HTTPStatus) -> str:
    return status.phrase.lower().replace(" ", "-")


def _unrouted(scope: Scope, status: HTTPStatus) -> str:
    method, path = scope["method"], scope["path"]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        methods = sorted({each.method for each in OPERATIONS if _fits(each, path)})
        return f"{method} is not possible on {path}: {', '.join(methods)} is"
    return f"nothing is at {path[:200]!r}: /openapi.json lists what there is"


def _fits(operation: Operation, path: str) -> bool:
    parts, given = operation.path.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        a == b or a.startswith("{") for a, b in zip(parts, given, strict=True)
    )
