"""HTTP/1.1 requests on connections that urllib3 opens, with TLS and through proxies.

Each request is sent in one write, and a connection carries one request at a time. This takes a
third of the CPU time of urllib3's own requests. The CPU time matters, because a process with a
thousand nodes renews a hundred leases per second.
"""

from __future__ import annotations

import contextlib
import queue
import re
import select
import socket
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devicemanager.client.credentials import Server

__all__ = ["Connection", "ConnectionPool", "Response"]

_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_CHUNK_SIZE: Final = re.compile(r"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
# Limits for a server that is not an API server. Without them, an endless header would fill the
# memory.
_MAX_LINE: Final = 1 << 16
_MAX_HEADERS: Final = 200
_PIECE: Final = 1 << 16
"""Most bytes of a body that are read at once."""
_MAX_SHOWN: Final = 80


class Response:
    """Status and headers of a response, with its body. The body can be read only once."""

    __slots__ = ("chunks", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], chunks: Iterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        """Headers by lowercase name."""
        self.chunks = chunks
        """Parts of the body as they arrive. Raises the errors of ``Connection.exchange``."""

    def read(self) -> bytes:
        """Read and return the whole body. Raises the errors of ``Connection.exchange``."""
        return b"".join(self.chunks)


class Connection:
    """An open connection to a server. One thread uses it; any thread can call ``shutdown``."""

    def __init__(self, server: Server, silence: float) -> None:
        """Connect. ``silence`` is the longest time in seconds without a byte from the server.

        Raises OSError.
        """
        self._socket = server.connect()
        self._socket.settimeout(silence)
        self._file = self._socket.makefile("rb")
        self._arrivals = select.poll()
        self._arrivals.register(self._socket.fileno(), select.POLLIN)
        self._is_idle = True

    @property
    def is_idle(self) -> bool:
        """True if the connection can send the next request.

        The last response was read to its end, and the server keeps the connection open.
        """
        return self._is_idle

    def was_ended(self) -> bool:
        """True if the server has ended the idle connection."""
        # The server sends nothing without a request, so anything that arrived is the end.
        return bool(self._arrivals.poll(0))

    def exchange(self, request: bytes) -> Response:
        """Send a request. Return the response as soon as its status and headers are read.

        Raises OSError for a broken connection, and ValueError for a malformed response.
        """
        # Set before sending: a connection whose response is not read to its end must not be used
        # again. The next request would get the rest of this response.
        self._is_idle = False
        # Head and body in one write: with two, Nagle's algorithm could delay the second.
        self._socket.sendall(request)
        keeps, status, headers = self._head()
        # Informational responses come before the response itself.
        while status < 200:
            keeps, status, headers = self._head()
        return Response(status, headers, self._body(status, headers, keeps))

    def _head(self) -> tuple[bool, int, dict[str, str]]:
        """Read a head; return whether the server keeps the connection, the status and headers."""
        line = self._line()
        if (found := _STATUS_LINE.fullmatch(line)) is None:
            raise ValueError(f"response is not HTTP/1.1: {line[:_MAX_SHOWN]!r}")
        headers: dict[str, str] = {}
        for _ in range(_MAX_HEADERS):
            if not (line := self._line()):
                # An HTTP/1.0 server closes the connection after each response.
                keeps = found[1] == "1" and headers.get("connection", "").lower() != "close"
                return keeps, int(found[2]), headers
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        raise ValueError(f"response has more than {_MAX_HEADERS} headers")

    def _line(self) -> str:
        line = self._file.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            if len(line) == _MAX_LINE:
                raise ValueError(f"response has a header of more than {_MAX_LINE} bytes")
            raise _ended()
        return line.rstrip(b"\r\n").decode("latin-1")

    def _body(self, status: int, headers: Mapping[str, str], keeps: bool) -> Iterator[bytes]:
        # These responses have no body, even if a header gives a length (RFC 9112, section 6.3).
        if status in (204, 304):
            pass
        # Transfer-Encoding overrides Content-Length (RFC 9112, section 6.3).
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunked()
        elif (length := headers.get("content-length")) is not None:
            if not _LENGTH.fullmatch(length):
                raise ValueError(f"response has the invalid Content-Length {length[:_MAX_SHOWN]!r}")
            yield from self._exactly(int(length))
        else:
            while piece := self._file.read1(_PIECE):
                yield piece
            # Such a body ends with the connection, so the connection cannot be used again.
            keeps = False
        self._is_idle = keeps

    def _chunked(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            if (found := _CHUNK_SIZE.fullmatch(line)) is None:
                raise ValueError(f"response has the invalid chunk size {line[:_MAX_SHOWN]!r}")
            size = int(found[1], 16)
            if not size:
                break
            yield from self._exactly(size)
            if self._line():
                raise ValueError("response has a chunk that is longer than its stated size")
        for _ in range(_MAX_HEADERS):
            if not self._line():
                return
        raise ValueError(f"response has more than {_MAX_HEADERS} trailers")

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            # ``read1`` returns what has arrived. ``read`` would hold an event of a watch back until
            # the rest of its chunk arrives.
            if not (piece := self._file.read1(min(size, _PIECE))):
                raise _ended()
            size -= len(piece)
            yield piece

    def shutdown(self) -> None:
        """End the connection. A thread that reads from it gets an error or the end of the body."""
        # SSLSocket.shutdown would remove the TLS state that the other thread uses. TLS inside a TLS
        # proxy is not a socket.socket: its read ends after the silence.
        with contextlib.suppress(OSError, TypeError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Only the thread that uses it may call this; see ``shutdown``."""
        self._file.close()
        self._socket.close()


class ConnectionPool:
    """Connections for requests: at most ``size``, opened when they are first used. Thread-safe."""

    def __init__(self, server: Server, size: int, silence: float) -> None:
        self._server = server
        self._silence = silence
        # The connection that was used last is used first. The others can expire.
        self._free: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(size):
            self._free.put(None)
        # A client replaces its pool while other threads still use the old one. So no caller knows
        # when the old pool can be closed.
        weakref.finalize(self, _close_all, self._free)

    def exchange(self, request: bytes) -> tuple[Response, bytes]:
        """Send a request; return the response and its body. Wait while all connections are in use.

        Raises the errors of ``Connection.exchange``.
        """
        connection = self._free.get()
        try:
            # Servers close connections that are idle for long. Without this check, a request on
            # such a connection would fail and wait for its retry.
            if connection is not None and connection.was_ended():
                connection.close()
                connection = None
            if connection is None:
                connection = Connection(self._server, self._silence)
            response = connection.exchange(request)
            return response, response.read()
        finally:
            # The place always goes back to the pool, also after an error. Otherwise the pool would
            # shrink until every request waits forever.
            if connection is not None and not connection.is_idle:
                connection.close()
                connection = None
            self._free.put(connection)


def _close_all(free: queue.LifoQueue[Connection | None]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            if (connection := free.get_nowait()) is not None:
                connection.close()


def _ended() -> ConnectionError:
    return ConnectionError("the server ended the connection before the end of the response")
