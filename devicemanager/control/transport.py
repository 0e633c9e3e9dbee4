"""HTTP over the control socket or TCP, one connection a request: on a unix socket that costs
less than everything a kept one would have to be checked for."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from devicemanager.control.errors import ControlError, ServerGone

__all__ = ["Reply", "Transport", "transport_to"]

_SOCKET: Final = "control.sock"
_START_KUBELET: Final = "start the kubelet with `devicemanager run --control`"


@attrs.frozen
class Reply:
    """An answer, whatever its status is."""

    status: int
    kind: str
    """Its media type."""
    body: bytes


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
    """Where a control API is, and how to ask there. May be used from any thread."""

    address: str
    """A socket's path, or ``http://HOST:PORT``."""
    token: str | None = attrs.field(default=None, repr=False)
    start: str = _START_KUBELET
    """What to do if nobody serves there."""

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "application/json",
        timeout: float | None = 60.0,
    ) -> Reply:
        """The answer to one request. Raises ControlError if there is none."""
        with self._asked(method, path, body, kind, timeout) as response:
            try:
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from error
            return Reply(response.status, response.headers.get_content_type(), answer)

    @contextlib.contextmanager
    def stream(self, path: str, timeout: float | None) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read as it comes. ``timeout`` is for each piece."""
        with self._asked("GET", path, None, "", timeout) as response:
            yield response

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """The lines of a stream. Raises ControlError if it breaks off."""
        rest = b""
        while True:
            try:
                # Not readline: that takes a stream that broke off for one that ended.
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
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = kind
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = self._connection(timeout)
        try:
            try:
                with contextlib.suppress(BrokenPipeError):  # rejected before all was sent
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
            return ServerGone(f"nobody serves the control API on {self.address}: {self.start}")
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            # Its text is what came, which may be anything. Nothing at all is an OSError, too.
            return ControlError(f"what answers on {self.address} is no control API")
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        kind = ServerGone if isinstance(error, ConnectionError) else ControlError
        return kind(f"the control API on {self.address} cannot be asked: {what}")


def transport_to(
    address: str | os.PathLike[str], token: str | None = None, start: str = _START_KUBELET
) -> Transport:
    """``address``: the control socket, the directory that has it, or ``http://HOST:PORT``, which
    needs the ``token``. ``start`` is as in ``Transport``. Raises ValueError for anything else."""
    text = os.fspath(address)
    if "://" in text:
        return Transport(_url(text), token, start)
    path = Path(text).absolute()
    return Transport(str(path / _SOCKET if path.is_dir() else path), token, start)


def _url(text: str) -> str:
    try:
        where = urllib.parse.urlsplit(text)
        is_one = where.scheme == "http" and where.hostname and where.path in ("", "/")
        _ = where.port
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(f"{text!r} is no control API: write it as http://127.0.0.1:8001")
    return text.rstrip("/")


def quoted(part: str) -> str:
    """A name as a part of a path."""
    return urllib.parse.quote(part, safe="")


def with_query(path: str, query: Mapping[str, object]) -> str:
    """A path with a query; lists are repeated, None is left out."""
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, given in query.items()
        for value in (given if isinstance(given, list) else [given])
        if value is not None
    ]
    return f"{path}?{urllib.parse.urlencode(pairs)}" if pairs else path
