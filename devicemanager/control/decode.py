"""From a request's query and body to what handlers are given, or to one line of why not."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from devicemanager.control.errors import HttpError
from devicemanager.control.operation import Body, Operation

__all__ = ["decode_body", "decode_query"]


class Query(Protocol):
    """Names and values in the order in which they were given."""

    def multi_items(self) -> list[tuple[str, str]]: ...


def decode_query(operation: Operation, query: Query) -> Any:
    """An instance of the operation's query. Raises HttpError."""
    given: dict[str, Any] = {}
    if operation.query is None:
        for name, _ in query.multi_items():
            raise _bad(f"query: there is no parameter {name!r} here")
        return None
    fields = {each.name: each for each in msgspec.structs.fields(operation.query)}
    for name, value in query.multi_items():
        field = fields.get(name)
        if field is None:
            names = ", ".join(fields)
            raise _bad(f"query: there is no parameter {name!r} here: choose from {names}")
        if _is_list(field):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise _bad(f"query: {name} is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"query: {_where(error)}") from None


def decode_body(operation: Operation, body: bytes) -> Any:
    """An instance of the operation's body, or a text. Raises HttpError."""
    if operation.body is None:
        return None
    if isinstance(operation.body, Body):
        return _text(body, operation.body)
    try:
        return msgspec.json.decode(body or b"{}", type=operation.body)
    except msgspec.ValidationError as error:
        raise _bad(f"body: {_where(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"body: not JSON: {error}") from None


def _text(body: bytes, kind: Body) -> str:
    if not body.strip():
        raise _bad(f"body: empty: give {kind.value}")
    try:
        # With a line end: a text of one line could be taken for a file's name.
        return body.decode("utf-8-sig") + "\n"
    except UnicodeDecodeError as error:
        raise _bad(f"body: not UTF-8 text (byte {error.start})") from None


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    info = msgspec.inspect.type_info(field.type)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    return isinstance(info, msgspec.inspect.ListType)


def _where(error: Exception) -> str:
    """``field timeout: Expected `float`, got `str```."""
    what, _, path = str(error).partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _bad(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
