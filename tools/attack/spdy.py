"""Attack the server of ``kubectl exec`` and ``port-forward``: SPDY connections that are silent,
slow or never read, and frames that are too many or too large.

The good client requests the pods of a node from the same server in each round of the probe.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Final

from devicemanager.control.http_server import IDLE_SECONDS, STALLED_SECONDS
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import FORWARDED, Limits, Target

_SYN_STREAM, _RST_STREAM, _PING = 1, 3, 6
_SECONDS: Final = 8.0
_CLIENTS: Final = 500
_FEW: Final = 20
_STREAMS: Final = 2000
_TEXTS: Final = 200
"""Texts that a client requests. A server that stores all of them uses 20 MB for each client."""
_READERS: Final = 2
_HEADERS: Final = 100 << 20
"""Bytes of the headers of one stream. Compressed, they are 100 KiB."""
_PINGS: Final = 8 << 20
"""Bytes of pings: more than the buffers of both sockets."""
_LONGEST: Final = (1 << 24) - 1
"""Bytes of the longest frame of SPDY."""
_BUFFER: Final = 1 << 14
_CHUNK: Final = 1 << 16
_MANY = Limits(registration=100.0, admission=600.0, kept=100.0, descriptors=_CLIENTS + 100)
_spdy = partial(beside, serves="nodes")


def _control(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, len(body)) + body


def _data(stream: int, data: bytes = b"") -> bytes:
    return struct.pack(">II", stream, len(data)) + data


class _Packer:
    """Encoder of the frames that open streams. The headers of a connection are one zlib stream."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj()

    def open(self, stream: int, headers: bytes) -> bytes:
        packed = self._packer.compress(headers) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + packed)


def _headers(**headers: str) -> bytes:
    words = [text.encode() for pair in headers.items() for text in pair]
    pairs = b"".join(struct.pack(">I", len(word)) + word for word in words)
    return struct.pack(">I", len(headers)) + pairs


_TYPE: Final = _headers(streamType="data")


def _upgrade(target: Target, buffer: int | None = None) -> socket.socket:
    """Connect and switch to SPDY. Raises OSError or EOFError if the server does not."""
    host, port = target.nodes.read_text().rsplit(":", 1)
    connection = socket.socket()
    if buffer is not None:
        for each in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.setsockopt(socket.SOL_SOCKET, each, buffer)
    connection.settimeout(60.0)
    connection.connect((host, int(port)))
    lines = (
        f"POST /portForward/default/{FORWARDED} HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: portforward.k8s.io",
    )
    connection.sendall("\r\n".join((*lines, "", "")).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := connection.recv(1)):
            raise EOFError(f"the server closed the connection after {head!r}")
        head += byte
    if b" 101 " not in head:
        raise EOFError(f"the server responded with {head!r}")
    return connection


@contextlib.contextmanager
def _clients(target: Target, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_upgrade(target)) for _ in range(count)]


def _send(connection: socket.socket, data: bytes) -> None:
    # The server may close the connection before it has received everything.
    with contextlib.suppress(OSError):
        connection.sendall(data)


@_spdy("spdy-silent", f"{_CLIENTS} SPDY clients that send nothing", _MANY)
def _silent(target: Target) -> None:
    with _clients(target, _CLIENTS) as connections:
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_spdy("spdy-slow", f"{_CLIENTS} SPDY clients that send one byte a second", _MANY)
def _slow(target: Target) -> None:
    with _clients(target, _CLIENTS) as connections:
        for byte in _control(_PING, bytes(4))[: int(_SECONDS)]:
            for connection in connections:
                _send(connection, bytes([byte]))
            time.sleep(1)
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_spdy("spdy-streams", f"{_FEW} SPDY clients that open {_STREAMS} streams each, and end none")
def _streams(target: Target) -> None:
    with _clients(target, _FEW) as connections:
        for connection in connections:
            packer = _Packer()
            for number in range(_STREAMS):
                _send(connection, packer.open(2 * number + 1, _TYPE))
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_spdy("spdy-headers", f"{_FEW} SPDY clients that send headers of 100 MiB, 100 KiB after deflate")
def _large_headers(target: Target) -> None:
    frame = _Packer().open(1, bytes(_HEADERS))
    with _clients(target, _FEW) as connections:
        for connection in connections:
            _send(connection, frame)
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_spdy("spdy-unread", f"{_FEW} SPDY clients that request {_TEXTS} texts, and do not read")
def _unread(target: Target) -> None:
    with _clients(target, _FEW) as connections:
        for connection in connections:
            packer = _Packer()
            for stream in range(1, 2 * _TEXTS, 2):
                reset = _control(_RST_STREAM, struct.pack(">II", stream, 5))
                _send(connection, packer.open(stream, _TYPE) + _data(stream, b"x") + reset)
        # When the server accepts another client, it has received these frames.
        with _clients(target, 2):
            time.sleep(1)


@_spdy("spdy-pings", "an SPDY client that sends pings as fast as it can, and does not read")
def _pings(target: Target) -> None:
    pings = _control(_PING, bytes(4)) * (_CHUNK // 12)
    with _upgrade(target, _BUFFER) as connection:
        connection.settimeout(2 * STALLED_SECONDS)
        # The server closes the connection, because nothing is read.
        with contextlib.suppress(ConnectionError):
            for _ in range(_PINGS // len(pings)):
                connection.sendall(pings)
            raise ValueError("the server reads pings of a client that does not read")


@_spdy("spdy-long-pings", f"{_FEW} SPDY clients that send a ping of 16 MiB without its last byte")
def _long_pings(target: Target) -> None:
    ping = _control(_PING, bytes(_LONGEST))[:-1]
    with _clients(target, _FEW) as connections:
        for connection in connections:
            _send(connection, ping)
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_spdy("spdy-frames", f"{_READERS} SPDY clients that send empty frames as fast as they can")
def _frames(target: Target) -> None:
    frames = _data(1) * (_CHUNK // 8)
    with _clients(target, _READERS) as connections:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            for connection in connections:
                connection.sendall(frames)
