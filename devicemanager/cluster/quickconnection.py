"""Connections of urllib3 for small requests and answers that are read whole, at half the cost.

A request goes out in one piece: head and body together are one call of the kernel and one TLS
record. An answer is read by ``http.client``, without what urllib3 has for decoding, trailers and
answers that stay open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool, HTTPResponse

__all__ = ["make_quick"]

_RETRY_AFTER: Final = "Retry-After"


def make_quick(pool: HTTPConnectionPool) -> None:
    """Let a pool, which has opened no connection yet, open quick ones."""
    pool.ConnectionCls = _quick(pool.ConnectionCls)


@lru_cache
def _quick(base: Any) -> Any:
    """A subclass of urllib3's connection for HTTP or HTTPS."""
    from urllib3 import HTTPResponse

    class QuickConnection(base):  # type: ignore[misc]
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

        def getresponse(self) -> HTTPResponse:
            """The answer, read to its end."""
            self.sock.settimeout(self.timeout)
            answer = HTTPConnection.getresponse(self)
            retry_after = answer.getheader(_RETRY_AFTER)
            return HTTPResponse(
                answer.read(),
                {} if retry_after is None else {_RETRY_AFTER: retry_after},
                answer.status,
                reason=answer.reason,
                preload_content=False,
            )

    return QuickConnection
