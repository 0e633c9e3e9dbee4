"""Connections of urllib3 for small requests and answers that are read whole, at half the cost.

A request goes out in one piece: head and body together are one call of the kernel and one TLS
record. An answer is read by ``http.client``, without what urllib3 has for decoding, trailers and
answers that stay open, and without a parser of mails for its head: that took more than all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    LineTooLong,
    RemoteDisconnected,
    UnknownProtocol,
)
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import urllib3

__all__ = ["make_quick"]

_LONGEST_LINE: Final = 65536
_MOST_HEADERS: Final = 100
"""As ``http.client`` has both."""
_RETRY_AFTER: Final = "retry-after"


def make_quick(pool: urllib3.HTTPConnectionPool) -> None:
    """Let a pool, which has opened no connection yet, open quick ones."""
    pool.ConnectionCls = _quick(pool.ConnectionCls)


@lru_cache
def _quick(base: Any) -> Any:
    """A subclass of urllib3's connection for HTTP or HTTPS."""
    import urllib3

    class QuickConnection(base):  # type: ignore[misc]
        response_class = _Answer
        _pieces: list[bytes] | None = None

        def request(
            self,
            method: str,
            url: str,
            body: bytes | None = None,
            headers: Mapping[str, str] | None = None,
            **_: Any,
        ) -> None:
            """Send a request; what urllib3 asks for besides is about answers that are not read
            whole."""
            self._pieces = []
            try:
                HTTPConnection.request(self, method, url, body, headers or {})
            finally:
                pieces, self._pieces = self._pieces, None
            self.send(b"".join(pieces))

        def send(self, data: Any) -> None:
            if self._pieces is None:
                super().send(data)
            else:
                self._pieces.append(data)

        def getresponse(self) -> urllib3.HTTPResponse:
            """The answer, read to its end."""
            self.sock.settimeout(self.timeout)
            answer = HTTPConnection.getresponse(self)
            retry_after = answer.headers.get(_RETRY_AFTER)
            return urllib3.HTTPResponse(
                answer.read(),
                {} if retry_after is None else {_RETRY_AFTER: retry_after},
                answer.status,
                reason=answer.reason,
                preload_content=False,
            )

    return QuickConnection


class _Answer(HTTPResponse):
    """An answer whose ``headers`` are a dict by lower-case name; of equal ones the first counts."""

    headers: Any

    def begin(self) -> None:
        """Read the head."""
        version, status, reason, headers = self._head()
        while status == 100:
            version, status, reason, headers = self._head()
        if not version.startswith(b"HTTP/1."):
            raise UnknownProtocol(version.decode("latin-1"))
        self.version = 10 if version == b"HTTP/1.0" else 11
        self.code = self.status = status
        self.reason = reason
        self.headers = self.msg = headers  # type: ignore[assignment]
        self.chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        connection = headers.get("connection", "").lower()
        stays = "close" not in connection if self.version == 11 else "keep-alive" in connection
        length = headers.get("content-length", "")
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        if status in (204, 304) or self._method == "HEAD":  # type: ignore[attr-defined]
            self.length = 0
        # What says neither ends with the connection.
        self.will_close = not stays or (not self.chunked and self.length is None)

    def _head(self) -> tuple[bytes, int, str, dict[str, str]]:
        first = self._line()
        if not first:
            raise RemoteDisconnected("Remote end closed connection without response")
        version, _, rest = first.partition(b" ")
        code, _, reason = rest.strip().partition(b" ")
        if not version.startswith(b"HTTP/") or len(code) != 3 or not code.isdigit():
            raise BadStatusLine(first.decode("latin-1"))
        headers: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if line in (b"\r\n", b"\n", b""):
                return version, int(code), reason.decode("latin-1"), headers
            name, _, value = line.decode("latin-1").partition(":")
            headers.setdefault(name.lower(), value.strip())
        raise HTTPException(f"got more than {_MOST_HEADERS} headers")

    def _line(self) -> bytes:
        line: bytes = self.fp.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise LineTooLong("header line")
        return line
