"""Read the body and the arguments of a request, within limits, and check them.

This is the second of the three modules that a request passes: router, request, answer. Limits keep
one client from using all memory. They apply to the size of a body, to the time until it has
arrived, and to the bytes of all requests and responses in progress together.
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
from devicemanager.io import typed_json
from devicemanager.io.safe_read import not_utf8

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
"""Maximum size of a request's body, in bytes."""
BODY_SECONDS: Final = 30.0
"""Maximum time in which the body of a request must arrive, in seconds."""
_IN_PROGRESS: Final = 128 << 20
"""Maximum bytes of all requests and responses in progress together."""


# -- limits ------------------------------------------------------------------------------


class Budget:
    """The memory limit for the bodies of all requests and responses that are in progress."""

    def __init__(self, limit: int = _IN_PROGRESS) -> None:
        self._limit = limit
        self.used = 0

    @contextlib.contextmanager
    def account(self) -> Iterator[Account]:
        """Yield an account for the bytes of one request. The end of the with block releases the
        bytes."""
        account = Account(self)
        try:
            yield account
        finally:
            self.used -= account.taken

    def take(self, count: int) -> None:
        """Count bytes as used. Raises HttpError if the memory limit would be exceeded."""
        if self.used + count > self._limit:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too-much",
                "the memory for requests and responses in progress is used up: try again later",
            )
        self.used += count


# An account counts what it has taken, so that the budget gets back exactly this at the end of the
# request, even after an error.
class Account:
    """The bytes that one request and its response use."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Count bytes as used by this request. Raises HttpError if the memory limit would be
        exceeded."""
        self._budget.take(count)
        self.taken += count

    @contextlib.contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Count bytes as used by this request while a with block runs. Raises HttpError if the
        memory limit would be exceeded."""
        self.take(count)
        try:
            yield
        finally:
            self._budget.used -= count
            self.taken -= count


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the body of a request. Raises HttpError if it has more than ``most`` bytes, does not
    arrive in time, or exceeds the memory limit."""
    account: Account = request.scope["account"]
    # Bytes are counted as they arrive, because Content-Length can be missing or wrong.
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    text = f"the body is too large: the limit is {most} bytes"
                    raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", text)
                account.take(len(part))
                parts.append(part)
    except TimeoutError:
        text = f"the body did not arrive within {BODY_SECONDS:g} s"
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "too-slow", text) from None
    return b"".join(parts)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected. ``receive`` is the ASGI function of its request."""
    while (await receive())["type"] != "http.disconnect":
        pass


# -- the arguments of an operation -------------------------------------------------------


async def read_arguments(operation: Operation[Any], request: Request) -> dict[str, Any]:
    """Return the keyword arguments for an operation's function: the names in the path, the
    parameters of the query, and ``body``. Raises HttpError if they are invalid."""
    # The body is read first, because clients read no response while they are still sending.
    data = await read_body(request)
    if data and operation.body is None:
        raise _bad(f"unexpected body: send {operation.method} {operation.path} without one")
    arguments: dict[str, Any] = {
        name: unquote(value) for name, value in request.path_params.items()
    }
    arguments |= decode_query(operation, request.query_params)
    if operation.body is not None:
        arguments["body"] = decode_body(operation, data)
    return arguments


class Query(Protocol):
    """The parameters of a URL query, as names and values."""

    def multi_items(self) -> list[tuple[str, str]]: ...


def decode_query(operation: Operation[Any], query: Query) -> dict[str, Any]:
    """Return the parameters of a query by name, including defaults. Raises HttpError if a parameter
    is invalid."""
    given: dict[str, Any] = {}
    if operation.query is None:
        for name, _ in query.multi_items():
            raise _bad(f"query: unknown parameter {name!r}: this operation has no parameters")
        return given
    # Checked here, because msgspec ignores repeated parameters and does not list the known ones.
    fields = {each.name: each for each in msgspec.structs.fields(operation.query)}
    for name, value in query.multi_items():
        field = fields.get(name)
        if field is None:
            names = ", ".join(fields)
            raise _bad(f"query: unknown parameter {name!r}: use one of {names}")
        if _is_list(field):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise _bad(f"query: duplicate parameter {name}: use it once")
        else:
            given[name] = value
    try:
        # Not strict, because numbers and booleans in a query are text.
        return msgspec.structs.asdict(typed_json.convert(given, operation.query, strict=False))
    except msgspec.ValidationError as error:
        raise _bad(f"query: {_where(error)}") from None


def decode_body(operation: Operation[Any], body: bytes) -> Any:
    """Return the decoded body of a request. It is an instance of the type ``operation.body``, or a
    string if the operation expects YAML or JSON text. Raises HttpError if the body is invalid."""
    assert operation.body is not None
    if isinstance(operation.body, Text):
        return _text(body, operation.body)
    try:
        # Without a body, all fields have their defaults.
        return typed_json.decode(body or b"{}", operation.body)
    except msgspec.ValidationError as error:
        raise _bad(f"body: {_where(error)}") from None
    # msgspec raises RecursionError for deeply nested JSON.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"body: not JSON: {error}") from None


def _text(body: bytes, kind: Text) -> str:
    if not body.strip():
        raise _bad(f"the body is empty: expected {kind.value}")
    try:
        # The added line end keeps a body of one line from being read as a file name.
        # utf-8-sig, because editors on Windows put a byte order mark at the start of a file.
        return body.decode("utf-8-sig") + "\n"
    except UnicodeDecodeError as error:
        raise _bad(f"body: {not_utf8(error)}") from None


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    info = msgspec.inspect.type_info(field.type)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    return isinstance(info, msgspec.inspect.VarTupleType)


def _where(error: Exception) -> str:
    """Return the text of a msgspec error with the JSON path first, as in ``timeout: Expected
    `float`, got `str```."""
    what, _, path = str(error).partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _bad(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
