"""A control API that another process serves: its operations, asked by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import attrs
import msgspec

from devicemanager.control import shapes
from devicemanager.control.errors import ControlError, error_of
from devicemanager.control.operation import Operation
from devicemanager.control.transport import Transport, quoted, with_query

__all__ = ["ServedApi", "served_paths"]


@attrs.frozen
class ServedApi:
    """Answers operations, and raises the errors that the same call raises in the server's
    process; besides them ControlError. May be used from any thread."""

    transport: Transport
    operation: Callable[[str], Operation]
    """The row of an ``operationId``."""
    timeout: float = 60.0
    """Seconds for an answer."""

    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = 0.0,
    ) -> Any:
        """The answer of an operation: an instance of its type, None where it has none.
        ``body`` is bytes or a shape; ``timeout`` is seconds besides ours."""
        row = self.operation(name)
        target = row.path
        for parameter, value in zip(row.parameters, path, strict=True):
            target = target.replace(f"{{{parameter}}}", quoted(value))
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        reply = self.transport.ask(
            row.method,
            with_query(target, query or {}),
            data,
            "application/yaml" if isinstance(body, bytes) else "application/json",
            self.timeout + timeout,
        )
        try:
            if reply.status >= HTTPStatus.BAD_REQUEST:
                raise error_of(msgspec.json.decode(reply.body, type=shapes.Problem))
            if row.answer is None:
                return None
            return msgspec.json.decode(reply.body, type=row.answer)
        except msgspec.DecodeError as error:
            raise ControlError(
                f"{row.method} {target}: the answer with status {reply.status} is not what the "
                f"control API promises: {error}"
            ) from None

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """The lines of a stream. Raises ControlError if they end in the midst of one."""
        row = self.operation(name)
        timeout = None if query.get("follow") else self.timeout
        with self.transport.stream(with_query(row.path, query), timeout) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise error_of(msgspec.json.decode(response.read(), type=shapes.Problem))
            for line in self.transport.lines(response):
                yield msgspec.json.decode(line, type=row.answer)


def served_paths(transport: Transport) -> frozenset[str]:
    """Paths of the operations that are served there, of whatever API they are; none if that
    cannot be found out."""
    try:
        reply = transport.ask("GET", "/openapi.json")
        return frozenset(msgspec.json.decode(reply.body, type=_Document).paths)
    except (ControlError, msgspec.DecodeError):
        return frozenset()


class _Document(msgspec.Struct):
    paths: dict[str, msgspec.Raw] = {}
