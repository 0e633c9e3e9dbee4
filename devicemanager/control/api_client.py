"""HTTP client for a control API that another process serves.

Each request opens a connection of its own. On a unix socket that is cheaper than checking whether
a stored connection still works.
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
from devicemanager.io import typed_json
from devicemanager.kubelet.arguments import check_seconds

__all__ = ["Reply", "ServedApi", "Transport", "served_paths", "transport_to"]

T = TypeVar("T")

_SOCKET: Final = "control.sock"
_START_KUBELET: Final = "start the kubelet with `devicemanager run --control`"


@attrs.frozen
class Reply:
    """An HTTP response of any status."""

    status: int
    kind: str
    """The media type of the body."""
    body: bytes


# http.client supports only TCP. The server does not check the header Host on a unix socket.
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
    """HTTP client for one address of a control API. Thread-safe."""

    address: str
    """The path of a unix socket, or ``http://HOST:PORT``."""
    token: str | None = attrs.field(default=None, repr=False)
    start: str = _START_KUBELET
    """Advice on how to start the server, for the text of the error if no process serves the API."""

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "application/json",
        timeout: float | None = 60.0,
    ) -> Reply:
        """Send a request and return its response. Raises ControlError if no response arrives within
        ``timeout`` seconds."""
        with self._asked(method, path, body, kind, timeout) as response:
            try:
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            return Reply(response.status, response.headers.get_content_type(), answer)

    @contextlib.contextmanager
    def stream(self, path: str, timeout: float | None) -> Iterator[http.client.HTTPResponse]:
        """Send a GET request, and yield its response, which the caller reads as it arrives.
        ``timeout`` is the time limit of each read, in seconds."""
        with self._asked("GET", path, None, "", timeout) as response:
            yield response

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines of a streamed response. Raises ControlError if the connection breaks."""
        incomplete = b""
        while True:
            try:
                # readline would treat a broken connection as the end of the stream.
                read = response.read1(1 << 16)
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            if not read:
                return
            *lines, incomplete = (incomplete + read).split(b"\n")
            yield from lines

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: bytes | None, kind: str, timeout: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        # Without this header the server keeps each connection open until its idle timeout.
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = kind
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = self._connection(timeout)
        try:
            try:
                # A server can reject a large body and close the connection before the client has
                # sent all of it. The response with the reason can still be read.
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
            return ControlError(f"timeout: no response from the control API at {self.address}")
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return ServerGone(f"cannot connect to the control API at {self.address}: {self.start}")
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            # The error's text can contain any bytes, so it is not shown. An empty response is also
            # an OSError, and means that the server has stopped.
            return ControlError(f"the server at {self.address} does not serve the control API")
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        # A reset connection means that the server stopped during the request. `ctl -w` then exits.
        kind = ServerGone if isinstance(error, ConnectionError) else ControlError
        return kind(f"request to the control API at {self.address} failed: {what}")


def transport_to(
    address: str | os.PathLike[str], token: str | None = None, start: str = _START_KUBELET
) -> Transport:
    """Return the client for an address: a control socket, the directory that contains it, or
    ``http://HOST:PORT`` with its ``token``. Raises ValueError for any other URL."""
    text = os.fspath(address)
    if "://" in text:
        return Transport(_url(text), token, start)
    # An absolute path stays valid if a test changes its working directory.
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
    """Client for the operations of a control API. It raises the errors that an operation raises in
    the server's process. It raises ControlError if no valid response arrives. Thread-safe."""

    transport: Transport
    table: OperationTable
    timeout: float = 60.0
    """Seconds to wait for a response."""

    def call(self, operation: Operation[T], *path: str, **fields: Any) -> T:
        """Call an operation and return its result. ``path`` has the values of the parameters in the
        operation's path.

        If the operation defines a class for the request body, ``fields`` are the arguments of this
        class. If they include ``timeout``, the client waits that many seconds longer for the
        response.

        If the operation defines no such class, the field ``body`` is the request body, as bytes.
        All other fields are query parameters.
        """
        body = fields.pop("body", None)
        if isinstance(operation.body, type):
            body, fields = operation.body(**fields), {}
        timeout = getattr(body, "timeout", 0.0)
        check_seconds(timeout)
        # The server may take the whole time of the wait, and then the usual time to respond.
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
        """Call the operation with the operationId ``name``, and return its result. ``body`` is YAML
        or JSON as bytes, or an instance of the operation's class in ``control.shapes``. The client
        waits ``timeout`` seconds longer than usual for the response."""
        operation = self.table[name]
        target = operation.path
        for parameter, value in zip(operation.parameters, path, strict=True):
            # A slash in a name must not become a separator of the path.
            target = target.replace(f"{{{parameter}}}", urllib.parse.quote(value, safe=""))
        # Bytes are the user's text, in YAML or JSON. JSON is valid YAML.
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
                raise error_of(typed_json.decode(reply.body, shapes.Problem))
            if operation.answer is None:
                return None
            return typed_json.decode(reply.body, operation.answer)
        except msgspec.DecodeError as error:
            raise ControlError(
                f"{operation.method} {target}: invalid response of the control API with status "
                f"{reply.status}: {error}"
            ) from None

    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]:
        """Call the operation ``name``, which returns a stream. Yield each line as an object of the
        operation's result type. Raises ControlError if the connection breaks before the end of the
        stream."""
        operation = self.table[name]
        # While following, hours can pass between two entries.
        timeout = None if query.get("follow") else self.timeout
        with self.transport.stream(_with_query(operation.path, query), timeout) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise error_of(typed_json.decode(response.read(), shapes.Problem))
            for line in self.transport.lines(response):
                yield typed_json.decode(line, operation.answer)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    """Return the path with the query appended. A list becomes a repeated parameter; None is left
    out."""
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
    """Return the paths of all operations that the server at ``transport`` offers; empty if they
    cannot be read."""
    try:
        # Every control API serves its OpenAPI document at this path.
        reply = transport.ask("GET", "/openapi.json")
        return frozenset(typed_json.decode(reply.body, _Document).paths)
    except (ControlError, msgspec.DecodeError):
        return frozenset()
