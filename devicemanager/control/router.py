"""From a request to the function of its operation, and to the answer.

First of the three files that a request passes: router, request, answer. ``OperationRouter``
makes starlette routes from a table of operations. For each request it

1. opens an account for the bytes of the request and its answer,
2. checks who sent it (``access.Gate``),
3. finds the operation by path and method,
4. has ``request`` read and check the arguments,
5. calls the operation's function on a worker thread,
6. has ``answer`` send the result. An error on the way becomes a problem.

Waits and streams use no thread while nothing happens. A wait is checked again after each
entry of its feed; a stream sends the entries of its feed.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from devicemanager.control.access import Gate
from devicemanager.control.answer import Answer, Lines, encoded, json_answer, problem_answer
from devicemanager.control.errors import HttpError, problem_of
from devicemanager.control.feed import Feed
from devicemanager.control.openapi import document
from devicemanager.control.operation import Operation, OperationTable, Stream, Wait
from devicemanager.control.request import Budget, read_arguments
from devicemanager.core.errors import RequestError
from devicemanager.kubelet.waits import WaitTimeout

__all__ = ["WORKERS", "HttpApplication", "OperationRouter"]

WORKERS: Final = 16
"""Threads that run operations."""
_CHECK_SECONDS: Final = 0.25
"""A wait is checked this often without news: time alone can fulfil it."""

_Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class HttpApplication(abc.ABC):
    """An ASGI application: what all our HTTP applications do with a request."""

    def __init__(self) -> None:
        self._budget = Budget()

    @abc.abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who sent the request, and answer it. An error goes to ``_rejection``."""

    @abc.abstractmethod
    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        """Return the answer for an error."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # uvicorn also sends lifespan and websocket scopes if it is configured to.
        if scope["type"] != "http":
            return
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with self._budget.account() as account:
            scope.update(account=account, app=self)  # with an app, starlette's router raises
            try:
                await self._answer(scope, receive, noting_send)
            except ClientDisconnect:
                return
            except Exception as error:
                # Made even if it cannot be sent: it also reports a bug.
                answer = self._rejection(error, scope)
                if started:
                    raise  # uvicorn cuts the connection, so the client sees a broken answer
                await answer(scope, receive, send)


class OperationRouter(HttpApplication):
    """Router of requests to the operations of a table. Must be created on the server's event
    loop."""

    def __init__(
        self,
        table: OperationTable,
        target: Any,
        gate: Gate,
        *,
        report_bug: Callable[[str], object],
        is_missing: Callable[[Mapping[str, str]], bool] = lambda _: False,
        feeds: Callable[[CapacityLimiter], Mapping[str, Feed[Any]]] = lambda _: {},
    ) -> None:
        """``target`` is what the operations control. ``gate`` has the rules for requests over
        TCP. ``is_missing`` returns True if what the names in a path stand for does not exist.
        ``feeds`` makes the feeds of waits and streams."""
        super().__init__()
        self._table = table
        self._target = target
        self._gate = gate
        self._report_bug = report_bug
        self._is_missing = is_missing
        self._workers = CapacityLimiter(WORKERS)
        self._feeds = feeds(self._workers)
        # One route for each path: with several, starlette would answer 405 at the first.
        by_path: dict[str, dict[str, Operation[Any]]] = {}
        for each in table:
            by_path.setdefault(each.path, {})[each.method] = each
        self._router = Router(
            [
                *(
                    Route(path, self._endpoint(methods), methods=list(methods))
                    for path, methods in by_path.items()
                ),
                Route("/openapi.json", self._document),
            ],
            redirect_slashes=False,  # each path has one form, as in the document
        )

    def close(self) -> None:
        """The server stops: end streams and waits."""
        for feed in self._feeds.values():
            feed.close()

    # -- from the request to the operation -----------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not yet unquoted: a quoted slash belongs to a name and separates nothing.
        scope["path"] = scope["raw_path"].decode("ascii")
        self._gate.check(scope)
        await self._router(scope, receive, send)

    def _endpoint(self, methods: Mapping[str, Operation[Any]]) -> _Endpoint:
        async def endpoint(request: Request) -> ASGIApp:
            # uvicorn leaves out the body of the answer to HEAD.
            method = "GET" if request.method == "HEAD" else request.method
            operation = methods[method]
            arguments = await read_arguments(operation, request)
            found = await self._on_worker(lambda: self._call(operation, arguments))
            match found:
                case Stream(feed, since, follow, wanted):
                    return Lines(self._feeds[feed].lines(since, follow=follow, wanted=wanted))
                case Wait():
                    found = await self._until(found)
            return json_answer(operation.status, found, request.scope["account"])

        return endpoint

    async def _document(self, request: Request) -> Answer:
        body = encoded(document(self._table))
        return json_answer(HTTPStatus.OK, body, request.scope["account"])

    # -- from the operation to the answer ------------------------------------------------

    def _call(self, operation: Operation[Any], arguments: dict[str, Any]) -> Any:
        """Runs on a worker. Large answers are encoded there, too."""
        found = operation.handler(self._target, **arguments)
        return found if isinstance(found, Wait | Stream) else encoded(found)

    async def _until(self, wait: Wait[Any]) -> bytes:
        """Check, wait for news, check again. No thread is used while nothing happens."""
        feed = self._feeds[wait.feed]
        end = time.monotonic() + wait.timeout
        while True:
            seen = feed.latest  # before the check, so that no entry is missed
            try:
                found: bytes = await self._on_worker(lambda: encoded(wait.check()))
                return found
            except WaitTimeout as error:
                rest = end - time.monotonic()
                if rest <= 0 or feed.closed:
                    # Each check is a wait of 0 s; the client waited longer.
                    text = str(error).replace("waited 0 s", f"waited {wait.timeout:g} s", 1)
                    raise WaitTimeout(text) from None
                await feed.changes(seen, min(rest, _CHECK_SECONDS))

    async def _on_worker(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._workers)

    # -- errors --------------------------------------------------------------------------

    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        # A RequestError can mean "not found" or "not now"; only the path decides.
        names = {name: unquote(text) for name, text in scope.get("path_params", {}).items()}
        missing = bool(names) and isinstance(error, RequestError) and self._is_missing(names)
        if isinstance(error, HTTPException):  # raised by starlette's router
            status = HTTPStatus(error.status_code)
            word = status.phrase.lower().replace(" ", "-")
            error = HttpError(status, word, self._unrouted(scope, status))
        problem = problem_of(error, missing=missing)
        # The client gets the text, and so does the owner of the server.
        if problem.reason == "internal":
            self._report_bug(problem.detail)
        return problem_answer(problem)

    def _unrouted(self, scope: Scope, status: HTTPStatus) -> str:
        method, path = scope["method"], scope["path"]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            methods = sorted({each.method for each in self._table if _fits(each, path)})
            return f"{path} does not support {method}: use {' or '.join(methods)}"
        return f"nothing is at {path[:200]!r}: /openapi.json lists all paths"


def _fits(operation: Operation[Any], path: str) -> bool:
    parts, given = operation.path.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        a == b or a.startswith("{") for a, b in zip(parts, given, strict=True)
    )
