"""Server side of SPDY/3.1, the protocol of ``kubectl exec`` and ``port-forward`` to a kubelet.

``Connection`` parses the frames of a client and writes those of the server. It has no socket: the
caller passes received bytes to ``receive``. Streams have no flow control, as in spdystream, the
library of Kubernetes. Instead, the caller pauses the connection while the client does not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

__all__ = ["Connection", "ProtocolError", "Stream", "Streams"]

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN: Final = 1
_CONTROL: Final = 0x80030000
"""First word of a control frame before its type is added: the control bit and version 3."""
_MAX_FRAME: Final = 1 << 17
"""Maximum number of bytes in a frame of a client. kubectl sends frames of up to 32 KiB."""
_MAX_HEADERS: Final = 1 << 12
"""Maximum number of bytes in unpacked headers. kubectl sends headers of about 100 bytes."""
_MAX_STREAMS: Final = 256
"""Maximum number of streams that a client has open."""
_LONGEST_TYPE: Final = 16
# By default, zlib would use 256 KiB for each connection. The server sends only empty headers.
_WINDOW_BITS: Final = 11
"""Size of the compression window for headers, as the ``wbits`` of zlib."""
_LEAST_MEMORY: Final = 1
"""Memory for the compression of headers, as the ``memLevel`` of zlib."""
_PART: Final = 1 << 15
"""Maximum number of bytes in a data frame that the server writes."""

_NAMES: Final = (
    "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|"
    "accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|"
    "content-language|content-length|content-location|content-md5|content-range|content-type|date|"
    "etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|"
    "if-unmodified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|"
    "proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|"
    "user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|"
    "public|set-cookie|keep-alive|origin"
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _text(value: str) -> bytes:
    return struct.pack(">I", len(value)) + value.encode("latin-1")


_DICTIONARY: Final = b"".join(map(_text, _NAMES.split("|"))) + _REST.encode()
"""Dictionary with which SPDY/3 compresses headers, as the protocol defines it."""


class ProtocolError(Exception):
    """Error for a client that violates SPDY/3.1 or exceeds a limit."""


class Streams(Protocol):
    """Interface of the code that handles the streams of an SPDY connection."""

    def opened(self, stream: Stream) -> None:
        """Called for a new stream, before its data."""

    def received(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        """Called with data of a stream. ``is_last``: the client sends no more on this stream."""


class Stream:
    """A stream that the client has opened."""

    def __init__(self, id_: int, kind: str, connection: Connection) -> None:
        self.id = id_
        self.kind = kind
        """Value of the header ``streamType``, such as "stdout"; empty without this header."""
        self.has_ended = False
        """True if the server has ended its part of the stream."""
        self.client_has_ended = False
        self._connection = connection

    def end(self, data: bytes = b"") -> None:
        """Send data, and end the server's part of the stream. Does nothing if that part has
        ended."""
        if self.has_ended:
            return
        self.has_ended = True
        # Without data, an empty frame is still necessary: it carries the flag for the end.
        parts = [data[at : at + _PART] for at in range(0, len(data), _PART)] or [b""]
        for part in parts[:-1]:
            self._connection.send_data(self.id, part)
        self._connection.send_data(self.id, parts[-1], is_last=True)
        self._connection.drop_ended(self)


class Connection:
    """Server side of one SPDY/3.1 connection. ``streams`` gets the data of the client."""

    def __init__(self, streams: Streams, write: Callable[[bytes], object]) -> None:
        self._streams = streams
        self._write = write
        self._open: dict[int, Stream] = {}
        self._waiting = bytearray()
        self._is_paused = self._is_handling = False
        self._packer = zlib.compressobj(
            wbits=_WINDOW_BITS, memLevel=_LEAST_MEMORY, zdict=_DICTIONARY
        )
        self._unpacker = zlib.decompressobj(zdict=_DICTIONARY)
        self.is_over = False
        """True if the client has ended the connection."""

    def receive(self, data: bytes) -> bool:
        """Process bytes from the client. Return True if these bytes have completed a frame. Raises
        ProtocolError for an invalid frame."""
        self._waiting += data
        return self._handle()

    def pause(self) -> None:
        """Process no more frames until ``resume``, because the client does not read responses."""
        self._is_paused = True

    def resume(self) -> bool:
        """Process the frames that have arrived since ``pause``. Return True if any have arrived.
        Raises ProtocolError for an invalid frame."""
        self._is_paused = False
        return self._handle()

    def _handle(self) -> bool:
        # A response that is written can pause and resume the connection.
        if self._is_handling:
            return False
        self._is_handling, waiting, at = True, self._waiting, 0
        try:
            while not self._is_paused and len(waiting) >= at + 8:
                first, second = struct.unpack_from(">II", waiting, at)
                flags, size = second >> 24, second & 0xFFFFFF
                if size > _MAX_FRAME:
                    raise ProtocolError(f"frame of {size} bytes, limit {_MAX_FRAME}")
                end = at + 8 + size
                if len(waiting) < end:
                    break
                body, at = bytes(waiting[at + 8 : end]), end
                if first >> 31:
                    self._control(first, flags, body)
                elif (stream := self._open.get(first)) is not None:
                    # Data of a stream that was reset can still be in flight.
                    self._received(stream, body, flags)
        finally:
            # Once for all frames: a copy for each would take long if many small ones arrive.
            del waiting[:at]
            self._is_handling = False
        return at > 0

    def _control(self, first: int, flags: int, body: bytes) -> None:
        kind = first - _CONTROL
        try:
            if kind == _SYN_STREAM:
                self._opened(_word(body), flags, body[10:])
            elif kind == _RST_STREAM:
                self._open.pop(_word(body), None)
            elif kind == _PING:
                self._send_control(_PING, struct.pack(">I", _word(body)))
            elif kind == _GOAWAY:
                self.is_over = True
        except (struct.error, zlib.error) as error:
            raise ProtocolError(str(error)) from None

    def _opened(self, id_: int, flags: int, packed: bytes) -> None:
        if id_ in self._open or len(self._open) >= _MAX_STREAMS:
            raise ProtocolError(f"stream {id_} is already open, or {_MAX_STREAMS} streams are open")
        # Limited, because a frame of 128 KiB could otherwise unpack to more than 100 MiB.
        raw = self._unpacker.decompress(packed, _MAX_HEADERS)
        if self._unpacker.unconsumed_tail:
            raise ProtocolError(f"headers of more than {_MAX_HEADERS} bytes")
        # The other headers are not stored: an open stream must use little memory.
        kind = dict(_headers(raw)).get("streamtype", "")[:_LONGEST_TYPE]
        stream = self._open[id_] = Stream(id_, kind, self)
        # All headers of a connection form one zlib stream, so it is flushed but never finished.
        none = self._packer.compress(struct.pack(">I", 0)) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._send_control(_SYN_REPLY, struct.pack(">I", id_) + none)
        self._streams.opened(stream)
        if flags & _FIN:
            self._received(stream, b"", flags)

    def _received(self, stream: Stream, data: bytes, flags: int) -> None:
        stream.client_has_ended |= bool(flags & _FIN)
        self._streams.received(stream, data, is_last=stream.client_has_ended)
        self.drop_ended(stream)

    def drop_ended(self, stream: Stream) -> None:
        """Drop the stream if both sides have ended it."""
        if stream.has_ended and stream.client_has_ended:
            self._open.pop(stream.id, None)

    def send_data(self, id_: int, data: bytes, *, is_last: bool = False) -> None:
        """Send data of a stream. Does nothing if the client has reset the stream."""
        if id_ in self._open:
            flags = _FIN if is_last else 0
            self._write(struct.pack(">II", id_, flags << 24 | len(data)) + data)

    def _send_control(self, kind: int, body: bytes) -> None:
        self._write(struct.pack(">II", _CONTROL + kind, len(body)) + body)


def _word(data: bytes, at: int = 0) -> int:
    word: int = struct.unpack_from(">I", data, at)[0]
    return word


def _headers(raw: bytes) -> Iterator[tuple[str, str]]:
    count, at = _word(raw), 4

    def text() -> str:
        nonlocal at
        size = _word(raw, at)
        at += 4 + size
        return raw[at - size : at].decode("latin-1")

    for _ in range(count):
        yield text().lower(), text()
