"""What arrives with a request: reading it within limits, and checking it.

Second of the three files that a request passes: router, request, answer. The limits keep one
client from using the memory of all others: on the size of a body, on the time that it takes to
arrive, and on the bytes of all requests and answers in progress together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from devicemanager.control.errors import HttpError
from devicemanager.control.operation import Operation, Text

__all__ = [
    "Account",
    "Budget",
    "decode_body",
    "decode_query",
    "disconnected",
    "read_arguments",
    "read_body",
]

MAX_BODY: Final = 4 << 20
"""Most bytes of a body."""
BODY_SECONDS: Final = 30.0
"""Most seconds for a body to arrive."""
_IN_PROGRESS: Final = 128 << 20
"""Most bytes of requests and answers in progress, all clients together."""


# -- limits ------------------------------------------------------------------------------


class Budget:
    """Memory limit for bodies and responses in progress, all clients together."""

    def __init__(self, limit: int = _IN_PROGRESS) -> None:
        self._limit = limit
        self.used = 0

    @contextlib.contextmanager
    def account(self) -> Iterator[Account]:
        """Yield an account for one request; its bytes are subtracted at the end."""
        account = Account(self)
        try:
            yield account
        finally:
            self.used -= account.taken

    def take(self, count: int) -> None:
        """Count the bytes. Raises HttpError if the limit does not allow it."""
        if self.used + count > self._limit:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too-much",
                "requests and answers of other clients use all the memory for them: try again",
            )
        self.used += count


class Account:
    """The bytes of one request."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Count the bytes. Raises HttpError if the limit does not allow it."""
        self._budget.take(count)
        self.taken += count

    @contextlib.contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Count the bytes while a with block runs. Raises HttpError."""
        self.take(count)
        try:
            yield
        finally:
            self._budget.used -= count
            self.taken -= count


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Read the whole body, at most ``most`` bytes, in the time for it. Raises HttpError."""
    account: Account = request.scope["account"]
    # Counted as it arrives: a Content-Length can be missing or wrong.
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
        text = f"the body did not arrive within {BODY_SECONDS:g} s"
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "too-slow", text) from None
    return b"".join(parts)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


# -- the arguments of an operation -------------------------------------------------------


async def read_arguments(operation: Operation[Any], request: Request) -> dict[str, Any]:
    """Return what the operation's function is called with: names in the path, the parameters
    of the query, and ``body``. Raises HttpError."""
    # The body first: a client reads no answer while it is still sending.
    data = await read_body(request)
    if data and operation.body is None:
        raise _bad(f"{operation.method} {operation.path} takes no body")
    arguments: dict[str, Any] = {
        name: unquote(value) for name, value in request.path_params.items()
    }
    arguments |= decode_query(operation, request.query_params)
    if operation.body is not None:
        arguments["body"] = decode_body(operation, data)
    return arguments


class Query(Protocol):
    """Names and values, in the order of the query."""

    def multi_items(self) -> list[tuple[str, str]]: ...


def decode_query(operation: Operation[Any], query: Query) -> dict[str, Any]:
    """Return the parameters by name, with their defaults. Raises HttpError."""
    given: dict[str, Any] = {}
    if operation.query is None:
        for name, _ in query.multi_items():
            raise _bad(f"query: unknown parameter {name!r}: this operation has none")
        return given
    # msgspec would ignore a repeated parameter and report an unknown one without the others.
    fields = {each.name: each for each in msgspec.structs.fields(operation.query)}
    for name, value in query.multi_items():
        field = fields.get(name)
        if field is None:
            names = ", ".join(fields)
            raise _bad(f"query: unknown parameter {name!r}: use one of {names}")
        if _is_list(field):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise _bad(f"query: {name} is given twice")
        else:
            given[name] = value
    try:
        # Not strict: in a query, numbers and booleans are text.
        return msgspec.structs.asdict(msgspec.convert(given, operation.query, strict=False))
    except msgspec.ValidationError as error:
        raise _bad(f"query: {_where(error)}") from None


def decode_body(operation: Operation[Any], body: bytes) -> Any:
    """Return an instance of the operation's body, or a text. Raises HttpError."""
    assert operation.body is not None
    if isinstance(operation.body, Text):
        return _text(body, operation.body)
    try:
        return msgspec.json.decode(body or b"{}", type=operation.body)
    except msgspec.ValidationError as error:
        raise _bad(f"body: {_where(error)}") from None
    # msgspec raises RecursionError for deeply nested JSON.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"body: not JSON: {error}") from None


def _text(body: bytes, kind: Text) -> str:
    if not body.strip():
        raise _bad(f"body: empty: expected {kind.value}")
    try:
        # The line end keeps a body of one line from being read as the name of a file.
        # Editors on Windows begin a file with a byte order mark.
        return body.decode("utf-8-sig") + "\n"
    except UnicodeDecodeError as error:
        raise _bad(f"body: not UTF-8 text (byte {error.start})") from None


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    info = msgspec.inspect.type_info(field.type)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    return isinstance(info, msgspec.inspect.VarTupleType)


def _where(error: Exception) -> str:
    """Return ``timeout: Expected `float`, got `str```, from msgspec's text with a JSON path."""
    what, _, path = str(error).partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _bad(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
