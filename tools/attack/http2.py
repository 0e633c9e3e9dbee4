"""Encode HTTP/2 frames, to send data that no correct client sends."""

from __future__ import annotations

import contextlib
import gzip
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x8
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
INITIAL_WINDOW_SIZE = 0x4
_FIRST_WINDOW, _LONGEST_FRAME = 65_535, 16_384
"""Initial flow control window of a connection, and maximum length of a frame, in bytes. The server
can change both."""
MOST_WINDOW = (1 << 31) - 1
CANCEL = struct.pack("!I", 8)


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Encode an HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """Encode a SETTINGS frame. ``window`` is the initial flow control window of each stream."""
    pairs = [(INITIAL_WINDOW_SIZE, values["window"])] if "window" in values else []
    return frame(SETTINGS, 0, b"".join(struct.pack("!HI", *pair) for pair in pairs))


def widest_window() -> bytes:
    """Encode frames after which all streams, and the connection, have the widest window."""
    more = struct.pack("!I", MOST_WINDOW - _FIRST_WINDOW)
    return settings(window=MOST_WINDOW) + frame(WINDOW_UPDATE, 0, more)


def _text(text: bytes) -> bytes:
    # RFC 7541, section 5.2, without Huffman coding; section 5.1 for the length.
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, out = len(text) - 127, bytearray(b"\x7f")
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes(out) + bytes([rest]) + text


def request_headers(stream: int, method: str, extra: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Encode the HEADERS frame of a gRPC call, with literal fields that are never indexed.

    ``extra`` are additional header fields.
    """
    # Indexed fields depend on earlier frames. Without them, each frame can be sent alone.
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *extra,
    ]
    block = b"".join(b"\x10" + _text(name) + _text(value) for name, value in fields)
    return frame(HEADERS, stream, block, END_HEADERS)


def message(stream: int, data: bytes) -> bytes:
    """Encode the DATA frame with the only message of a gRPC call."""
    return frame(DATA, stream, b"\0" + struct.pack("!I", len(data)) + data, END_STREAM)


def compressed(stream: int, method: str, data: bytes) -> bytes:
    """Encode all frames of a unary gRPC call with a compressed message.

    The compressed message must fit into the flow control window that each stream has at first.
    """
    packed = gzip.compress(data)
    assert len(packed) + 5 <= _FIRST_WINDOW, f"compressed message too long: {len(packed)} bytes"
    body = b"\1" + struct.pack("!I", len(packed)) + packed
    parts = [body[begin : begin + _LONGEST_FRAME] for begin in range(0, len(body), _LONGEST_FRAME)]
    return b"".join(
        [
            request_headers(stream, method, [(b"grpc-encoding", b"gzip")]),
            *(frame(DATA, stream, part) for part in parts),
            frame(DATA, stream, flags=END_STREAM),
        ]
    )


def wait_for_end(connection: socket.socket) -> None:
    """Read frames until the server ends a stream. Raises EOFError if it closes the connection
    before."""
    with connection.makefile("rb") as frames:
        flags, kind = 0, SETTINGS
        while kind != RST_STREAM and not (kind == HEADERS and flags & END_STREAM):
            head = frames.read(9)
            if len(head) < 9:
                raise EOFError("the server closed the connection before the call ended")
            (length, kind, flags) = (int.from_bytes(head[:3]), head[3], head[4])
            frames.read(length)


def call(stream: int, method: str, data: bytes = b"") -> bytes:
    """Encode all frames of a unary gRPC call."""
    return request_headers(stream, method) + message(stream, data)


def connect(path: Path, first: bytes = b"") -> socket.socket:
    """Connect to a unix socket and send ``first``."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(20.0)
    connection.connect(str(path))
    connection.sendall(first)
    return connection


@contextlib.contextmanager
def connections(
    path: Path, count: int, first: bytes = b"", *, may_fail: bool = False
) -> Iterator[list[socket.socket]]:
    """Open connections for a ``with`` block. If ``may_fail`` is true, failed connections are left
    out."""
    # Servers reject connections if they have no descriptors left.
    errors = (OSError,) if may_fail else ()
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            with contextlib.suppress(*errors):
                found.append(stack.enter_context(connect(path, first)))
        yield found


_CLOSED_WITHIN = 2.0
"""Limit for the time until the server closes a connection, relative to the server's limit."""


def wait_until_closed(connections: Sequence[socket.socket], seconds: float) -> None:
    """Wait until the server has closed all connections, as it must after ``seconds``. Raises
    TimeoutError."""
    poller = select.poll()
    left = {connection.fileno() for connection in connections}
    for descriptor in left:
        poller.register(descriptor, select.POLLRDHUP)
    end = time.monotonic() + _CLOSED_WITHIN * seconds
    while left and (rest := end - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(rest * 1000):
            poller.unregister(descriptor)
            left.discard(descriptor)
    if left:
        raise TimeoutError(f"{len(left)} connections are still open")


def send_garbage(path: Path) -> None:
    """Open 200 connections, one after another, and send data that is not HTTP."""
    # One after another, so that the number of open connections does not depend on the machine.
    for number in range(200):
        with contextlib.suppress(OSError), connect(path) as connection:
            connection.sendall(bytes([number]) * 100_000)
            while connection.recv(1 << 16):
                pass
