"""A control API as an ASGI application, made of a table of operations."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from devicemanager.control.access import Gate
from devicemanager.control.answering import Answering
from devicemanager.control.decode import decode_body, decode_query
from devicemanager.control.errors import HttpError
from devicemanager.control.limits import WORKERS, Account
from devicemanager.control.operation import Operation, Request
from devicemanager.control.receiving import read_body
from devicemanager.control.sending import Answer
from devicemanager.control.shapes import Problem

__all__ = ["TableApplication"]

_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"


class TableApplication(Answering):
    """Answers the requests of one server. To be made on the server's loop."""

    def __init__(
        self,
        steered: Any,
        gate: Gate,
        operations: Sequence[Operation],
        document: Callable[[], Mapping[str, Any]],
    ) -> None:
        """``steered`` is what handlers get. ``gate`` has the rules for requests over TCP.
        ``document`` is served at ``/openapi.json``."""
        super().__init__()
        self._steered = steered
        self._gate = gate
        self._operations = operations
        self._document = document
        self._workers = CapacityLimiter(WORKERS)
        by_path: dict[str, dict[str, Operation]] = {}
        for each in operations:
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

    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        if isinstance(error, HTTPException):
            status = HTTPStatus(error.status_code)
            error = HttpError(status, _word(status), self._unrouted(scope, status))
        problem = self._problem(error, scope)
        # The rest of a body that was not read would be taken for the next request.
        headers = [(b"connection", b"close")]
        body = msgspec.json.encode(problem)
        return Answer(HTTPStatus(problem.status), _PROBLEM, body, headers=headers)

    @abc.abstractmethod
    def _problem(self, error: Exception, scope: Scope) -> Problem:
        """What is answered instead; a mistake of ours is to be told elsewhere, too."""

    def close(self) -> None:
        """The server ends: let streams and waits come to their ends."""

    async def _openapi(self, request: HttpRequest) -> Any:
        body = msgspec.json.encode(self._document())
        return Answer(HTTPStatus.OK, _JSON, body, request.scope["account"])

    def _unrouted(self, scope: Scope, status: HTTPStatus) -> str:
        method, path = scope["method"], scope["path"]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            methods = sorted({each.method for each in self._operations if _fits(each, path)})
            return f"{method} is not possible on {path}: {', '.join(methods)} is"
        return f"nothing is at {path[:200]!r}: /openapi.json lists what there is"

    # -- operations ----------------------------------------------------------------------

    async def carry_out(self, operation: Operation, request: HttpRequest) -> Any:
        """The answer, as an ASGI application."""
        # The body first: a client that is still sending would not hear what is wrong.
        data = await read_body(request)
        if data and operation.body is None:
            text = f"{operation.method} {operation.path} takes no body"
            raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
        query = decode_query(operation, request.query_params)
        body = decode_body(operation, data)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        return await self._made(operation, Request(path, query, body), request.scope["account"])

    async def _made(self, operation: Operation, asked: Request, account: Account) -> Any:
        """The answer, as an ASGI application, to a request that was read."""
        answer = await self._call(operation, asked)
        if operation.answer is None:
            return Answer(operation.status, "", b"", account)
        encoded = await self._on_worker(lambda: msgspec.json.encode(answer, enc_hook=str))
        return Answer(operation.status, _JSON, encoded, account)

    async def _call(self, operation: Operation, asked: Request) -> Any:
        return await self._on_worker(lambda: operation.handler(self._steered, asked))

    async def _on_worker(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._workers)


class _Endpoint:
    """The operations of one path."""

    def __init__(self, application: TableApplication, methods: Mapping[str, Operation]) -> None:
        self._application = application
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request = HttpRequest(scope, receive, send)
        answer = await self._application.carry_out(self._methods[method], request)
        await answer(scope, receive, send)


def _word(status: HTTPStatus) -> str:
    return status.phrase.lower().replace(" ", "-")


def _fits(operation: Operation, path: str) -> bool:
    parts, given = operation.path.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        a == b or a.startswith("{") for a, b in zip(parts, given, strict=True)
    )
