"""The client's side of HTTP: the operations of a control API that another process serves.

Each request has its own connection. On a unix socket that is cheaper than checking whether a
stored connection still works.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import msgspec

from devicemanager.control import shapes
from devicemanager.control.errors import ControlError, ServerGone, error_of
from devicemanager.control.operation import Operation, OperationTable
from devicemanager.kubelet.arguments import check_seconds

__all__ = ["Reply", "ServedApi", "Transport", "served_paths", "transport_to"]

T = TypeVar("T")

_SOCKET: Final = "control.sock"
_START_KUBELET: Final = "start the kubelet with `devicemanager run --control`"


@attrs.frozen
class Reply:
    """An answer of any status."""

    status: int
    kind: str
    """Its media type."""
    body: bytes


# http.client only knows TCP. The Host that it sends is not checked on a unix socket.
class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@attrs.frozen
class Transport:
    """Client for the requests of a control API. Thread-safe."""

    address: str
    """The path of a socket, or ``http://HOST:PORT``."""
    token: str | None = attrs.field(default=None, repr=False)
    start: str = _START_KUBELET
    """What to do if no process serves the API, for errors."""

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "application/json",
        timeout: float | None = 60.0,
    ) -> Reply:
        """Return the answer to one request. Raises ControlError if there is none."""
        with self._asked(method, path, body, kind, timeout) as response:
            try:
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            return Reply(response.status, response.headers.get_content_type(), answer)

    @contextlib.contextmanager
    def stream(self, path: str, timeout: float | None) -> Iterator[http.client.HTTPResponse]:
        """Return an answer that is read as it comes. ``timeout`` is for each piece."""
        with self._asked("GET", path, None, "", timeout) as response:
            yield response

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines of a stream. Raises ControlError if the connection breaks."""
        rest = b""
        while True:
            try:
                # Not readline, for which a broken connection is the end of the stream.
                read = response.read1(1 << 16)
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from lines

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: bytes | None, kind: str, timeout: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        # Without it the server would keep each connection open until its idle timeout.
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = kind
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = self._connection(timeout)
        try:
            try:
                # A server can reject a large body and close before all of it was sent. The
                # answer with the reason can still be read then.
                with contextlib.suppress(BrokenPipeError):
                    connection.request(method, path, body, headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            with response:
                yield response
        finally:
            connection.close()

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        if self.address.startswith("http://"):
            where = urllib.parse.urlsplit(self.address)
            return http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout)
        return _UnixConnection(self.address, timeout)

    def _broken(self, error: Exception) -> ControlError:
        if isinstance(error, TimeoutError):
            return ControlError(f"no answer from {self.address} in time")
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return ServerGone(f"cannot connect to the control API at {self.address}: {self.start}")
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            # Not with its text, which can be any bytes. An empty answer is an OSError, too, and
            # means that the server has stopped.
            return ControlError(f"{self.address} does not serve the control API")
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        # A reset connection means that the server stopped during the request; `ctl -w` ends then.
        kind = ServerGone if isinstance(error, ConnectionError) else ControlError
        return kind(f"request to the control API at {self.address} failed: {what}")


def transport_to(
    address: str | os.PathLike[str], token: str | None = None, start: str = _START_KUBELET
) -> Transport:
    """Return the transport for an address: a control socket, the directory that contains it, or
    ``http://HOST:PORT``. Only HTTP needs the ``token``. Raises ValueError for other forms."""
    text = os.fspath(address)
    if "://" in text:
        return Transport(_url(text), token, start)
    # Absolute, because a test can change its working directory later.
    path = Path(text).absolute()
    return Transport(str(path / _SOCKET if path.is_dir() else path), token, start)


def _url(text: str) -> str:
    try:
        where = urllib.parse.urlsplit(text)
        is_valid = where.scheme == "http" and where.hostname and where.path in ("", "/")
        _ = where.port
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"invalid address {text!r}: use a form such as http://127.0.0.1:8001")
    return text.rstrip("/")


@attrs.frozen
class ServedApi:
    """The operations of a table on a server. They raise the errors that the same call raises in
    the server's process, and ControlError. Thread-safe."""

    transport: Transport
    table: OperationTable
    timeout: float = 60.0
    """Seconds for an answer."""

    def call(self, operation: Operation[T], *path: str, **fields: Any) -> T:
        """Send the request of an operation. ``fields`` are those of its body, or ``body`` for
        a text, and the parameters of its query. The time of a wait is its ``timeout``."""
        body = fields.pop("body", None)
        if isinstance(operation.body, type):
            body, fields = operation.body(**fields), {}
        timeout = getattr(body, "timeout", 0.0)
        check_seconds(timeout)
        # The server may take as long as the wait itself, and then as long as for other answers.
        found: T = self.ask(operation.name, *path, query=fields, body=body, timeout=timeout)
        return found

    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = 0.0,
    ) -> Any:
        """Return the answer of an operation by its operationId: an instance of its type, or
        None. ``body`` is bytes or a shape; ``timeout`` is in addition to the API's."""
        operation = self.table[name]
        target = operation.path
        for parameter, value in zip(operation.parameters, path, strict=True):
            # A slash in a name must not become a separator of the path.
            target = target.replace(f"{{{parameter}}}", urllib.parse.quote(value, safe=""))
        # Bytes are text of the user's, in YAML or JSON; YAML includes JSON.
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        reply = self.transport.ask(
            operation.method,
            _with_query(target, query or {}),
            data,
            "application/yaml" if isinstance(body, bytes) else "application/json",
            self.timeout + timeout,
        )
        try:
            if reply.status >= HTTPStatus.BAD_REQUEST:
                raise error_of(msgspec.json.decode(reply.body, type=shapes.Problem))
            if operation.answer is None:
                return None
            return msgspec.json.decode(reply.body, type=operation.answer)
        except msgspec.DecodeError as error:
            raise ControlError(
                f"{operation.method} {target}: the answer with status {reply.status} is not one "
                f"of the control API: {error}"
            ) from None

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """Yield the lines of a stream. Raises ControlError if the last one is incomplete."""
        operation = self.table[name]
        # While following, hours can pass between two entries.
        timeout = None if query.get("follow") else self.timeout
        with self.transport.stream(_with_query(operation.path, query), timeout) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise error_of(msgspec.json.decode(response.read(), type=shapes.Problem))
            for line in self.transport.lines(response):
                yield msgspec.json.decode(line, type=operation.answer)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    """Lists are repeated, None is left out."""
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, given in query.items()
        for value in (given if isinstance(given, list) else [given])
        if value is not None
    ]
    return f"{path}?{urllib.parse.urlencode(pairs)}" if pairs else path


class _Document(msgspec.Struct):
    paths: dict[str, msgspec.Raw] = {}


def served_paths(transport: Transport) -> frozenset[str]:
    """Return the paths of the operations that are served there, of any API; none if that cannot
    be read."""
    try:
        # Every control API serves its document there, with any operations.
        reply = transport.ask("GET", "/openapi.json")
        return frozenset(msgspec.json.decode(reply.body, type=_Document).paths)
    except (ControlError, msgspec.DecodeError):
        return frozenset()
