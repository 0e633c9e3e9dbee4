"""Route a request to the function of its operation, and send the response.

This is the first of the three modules that a request passes: router, request, answer.
``OperationRouter`` creates starlette routes from a table of operations. For each request it does
these steps:

1. It opens an account for the bytes of the request and its response.
2. It checks who sent the request (``access.Gate``).
3. It finds the operation by path and method.
4. It reads and checks the arguments (``request``).
5. It calls the operation's function on a worker thread. Operations that call plugins have threads
   of their own (``Workers``), so a hanging plugin does not delay the operations without such calls.
6. It sends the result (``answer``). If a step fails, it sends a ``Problem`` instead.

Waits and streams use no thread while nothing happens. They get the events or calls of the kubelet
from a feed (``feed``). A wait is checked again after each event or call that can end the wait. A
stream sends the events or calls to the client.
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
from devicemanager.control.operation import Operation, OperationTable, Stream, Wait, Workers
from devicemanager.control.request import Budget, read_arguments
from devicemanager.core.errors import RequestError
from devicemanager.kubelet.waits import WaitTimeout

__all__ = ["WORKERS", "HttpApplication", "OperationRouter"]

WORKERS: Final = 16
"""Maximum number of threads in each group of ``operation.Workers`` except ``LONG``."""
LONG_WORKERS: Final = 128
"""Maximum number of threads for the group ``Workers.LONG``. A thread exists only while it is
needed."""

_Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class HttpApplication(abc.ABC):
    """Base class of the project's ASGI applications. It limits memory and turns errors into
    responses."""

    def __init__(self) -> None:
        self._budget = Budget()

    @abc.abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who sent the request, and respond to it. Errors are passed to ``_rejection``."""

    @abc.abstractmethod
    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        """Return the response for an error."""

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
            scope.update(account=account, app=self)  # app makes starlette's router raise errors
            try:
                await self._answer(scope, receive, noting_send)
            except ClientDisconnect:
                return
            except Exception as error:
                # Created even if it cannot be sent, because _rejection also reports bugs.
                answer = self._rejection(error, scope)
                if started:
                    raise  # uvicorn then closes the connection, which the client notices
                await answer(scope, receive, send)


class OperationRouter(HttpApplication):
    """ASGI application that routes requests to the operations of a table. Must be created on the
    server's event loop."""

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
        """Create the routes. ``target`` is the object that the operations control. ``gate`` has the
        rules for requests over TCP. ``report_bug`` is called with the text of an unexpected error.
        ``is_missing`` gets the names in a path, and returns True if the object with these names
        does not exist. ``feeds`` creates the feeds for waits and streams."""
        super().__init__()
        self._table = table
        self._target = target
        self._gate = gate
        self._report_bug = report_bug
        self._is_missing = is_missing
        self._limiters = {
            each: CapacityLimiter(LONG_WORKERS if each is Workers.LONG else WORKERS)
            for each in Workers
        }
        self._feeds = feeds(self._limiters[Workers.QUICK])
        # One route for each path. With several, starlette would return 405 at the first one.
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
            redirect_slashes=False,  # each path has one form, as in the OpenAPI document
        )

    def close(self) -> None:
        """End streams and waits, because the server stops."""
        for feed in self._feeds.values():
            feed.close()

    # -- from the request to the operation -----------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The raw path is still quoted, so a quoted slash stays a part of a name.
        scope["path"] = scope["raw_path"].decode("ascii")
        self._gate.check(scope)
        await self._router(scope, receive, send)

    def _endpoint(self, methods: Mapping[str, Operation[Any]]) -> _Endpoint:
        async def endpoint(request: Request) -> ASGIApp:
            # uvicorn omits the body of a response to HEAD.
            method = "GET" if request.method == "HEAD" else request.method
            operation = methods[method]
            arguments = await read_arguments(operation, request)
            workers = operation.workers(arguments)
            found = await self._on_worker(lambda: self._call(operation, arguments), workers)
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
        """Call an operation's function, and encode its result unless it is a Wait or a Stream. Runs
        on a worker thread."""
        found = operation.handler(self._target, **arguments)
        return found if isinstance(found, Wait | Stream) else encoded(found)

    async def _until(self, wait: Wait[Any]) -> bytes:
        """Repeat the check of a wait until it succeeds: now, and after each relevant feed entry.

        Return the encoded result. Raises WaitTimeout."""
        feed = self._feeds[wait.feed]
        end = time.monotonic() + wait.timeout
        while True:
            seen = feed.latest  # read before the check, so that no entry is missed
            try:
                found: bytes = await self._on_worker(lambda: encoded(wait.check()))
                return found
            except WaitTimeout as error:
                remaining = end - time.monotonic()
                if remaining <= 0 or feed.closed:
                    # Each check waits 0 s, but the client has waited longer.
                    text = str(error).replace("waited 0 s", f"waited {wait.timeout:g} s", 1)
                    raise WaitTimeout(text) from None
                seconds = remaining if wait.recheck is None else min(remaining, wait.recheck)
                await feed.entry(seen, seconds, wait.kinds, wait.may_end)

    async def _on_worker(self, work: Callable[[], Any], workers: Workers = Workers.QUICK) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._limiters[workers])

    # -- errors --------------------------------------------------------------------------

    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        # A RequestError can mean "not found" or "conflict". Only the path shows which one.
        names = {name: unquote(text) for name, text in scope.get("path_params", {}).items()}
        missing = bool(names) and isinstance(error, RequestError) and self._is_missing(names)
        if isinstance(error, HTTPException):  # raised by starlette's router
            status = HTTPStatus(error.status_code)
            word = status.phrase.lower().replace(" ", "-")
            error = HttpError(status, word, self._unrouted(scope, status))
        problem = problem_of(error, missing=missing)
        # A bug is also reported to the owner of the server.
        if problem.reason == "internal":
            self._report_bug(problem.detail)
        return problem_answer(problem)

    def _unrouted(self, scope: Scope, status: HTTPStatus) -> str:
        method, path = scope["method"], scope["path"]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            methods = sorted({each.method for each in self._table if _fits(each, path)})
            return f"{path} does not support {method}: use {' or '.join(methods)}"
        return f"unknown path {path[:200]!r}: /openapi.json lists all paths"


def _fits(operation: Operation[Any], path: str) -> bool:
    parts, given = operation.path.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        a == b or a.startswith("{") for a, b in zip(parts, given, strict=True)
    )
