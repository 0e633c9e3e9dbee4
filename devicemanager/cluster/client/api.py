"""Requests to the API server: plain paths, bodies as dicts, a pool of connections each lane.

How requests end: 429, 5xx and broken connections are tried again with back-off and full
jitter, however long it takes; 401 reads the credentials anew first; anything else is the
caller's to judge. Never more requests at once than the pool has connections.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from devicemanager.cluster.client.credentials import Credentials
from devicemanager.cluster.client.errors import ClientClosing, Unauthorized, Unavailable, api_error
from devicemanager.cluster.client.protocol import JsonObject, Patch
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.cluster.client.streams import OpenStreams
from devicemanager.cluster.client.validation import decoded
from devicemanager.io.retry import retry

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

__all__ = ["ApiClient", "Scoped", "node_path", "pod_path"]

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 30.0
"""Seconds between two tries, doubling from the first to the longest."""

_CONTENT: Final[Mapping[Patch | None, str]] = {
    None: "application/json",
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
}
_HEADERS: Final[Mapping[Patch | None, dict[str, str]]] = {
    patch: {
        "Accept": "application/json",
        "Content-Type": content,
        "User-Agent": "devicemanager-join",
    }
    for patch, content in _CONTENT.items()
}
_CONNECT: Final = 5.0
_LONGEST_TEXT: Final = 300
_LONGEST_LINE: Final = 1 << 25
"""Bytes of an event: ten times what etcd takes."""


class Scoped:
    """A client for somebody who may write only until something is over."""

    def __init__(self, client: ApiClient, is_over: Callable[[], bool]) -> None:
        self.request = functools.partial(client.request, is_over=is_over)
        """As in ``protocol.Api``; raises ClientClosing once it is over."""


class ApiClient:
    """The API server, by one pool of connections. May be used from any thread."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        connections: int = 32,
        timeout: float = 30.0,
        warn: Warn = lambda text: None,
    ) -> None:
        """``timeout``: seconds without a byte of the answer after which it is broken."""
        self._credentials = credentials
        self._connections = connections
        self._manners = _manners(timeout)
        self._warn = RateLimitedWarning(warn)
        self._closing = threading.Event()
        # Guards credentials and pools as they are replaced together.
        self._renewing = threading.Lock()
        self._pools = self._open(credentials)
        self._streams = OpenStreams()

    def _open(self, credentials: Credentials) -> tuple[HTTPConnectionPool, HTTPConnectionPool]:
        """One for requests, one for streams: these stay open and are not counted."""
        server = credentials.server
        return server.pool(self._connections), server.pool(2, block=False)

    # -- requests --------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patch: Patch | None = None,
        user: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> JsonObject:
        """As in ``protocol.Api``; raises ClientClosing instead of trying (again) once
        ``is_over``, too."""

        def call() -> JsonObject:
            if self._closing.is_set() or is_over():
                raise ClientClosing
            try:
                return self.attempt(method, path, body, query=query, patch=patch, user=user)
            except Unauthorized as error:
                # Nothing is lost while somebody mends them.
                raise Unavailable(f"the credentials are not accepted: {error.message}") from None

        try:
            return call()  # nearly always: to set up a retry would cost more than the request
        except Unavailable as error:
            return self._again(call, error)

    def _again(self, call: Callable[[], JsonObject], first: Unavailable) -> JsonObject:
        asked = first.wait

        def report(error: BaseException, _: float) -> None:
            nonlocal asked
            asked = error.wait if isinstance(error, Unavailable) else 0.0
            self._warn(f"the API server cannot be used, trying again: {error}")

        def sleep(seconds: float) -> None:
            if self._closing.wait(max(seconds, asked)):
                raise ClientClosing

        failures = iter([first])

        def next_call() -> JsonObject:
            for failure in failures:
                raise failure
            return call()

        return retry(
            next_call,
            Unavailable,
            sleep=sleep,
            first_wait=FIRST_WAIT,
            longest_wait=LONGEST_WAIT,
            jitter=True,
            report=report,
        )

    def attempt(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patch: Patch | None = None,
        user: str | None = None,
    ) -> JsonObject:
        """As ``request``, but once. Raises Unavailable where that would try again."""
        credentials = self._credentials
        try:
            return self._send(method, path, body, query, patch, user)
        except Unauthorized:
            self._renew(credentials)
            return self._send(method, path, body, query, patch, user)

    def _send(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        query: Mapping[str, str] | None,
        patch: Patch | None,
        user: str | None,
    ) -> JsonObject:
        data = None if body is None else _compact(body).encode()
        headers = self._headers(patch, user)
        with _broken_is_unavailable():
            answer = self._pools[0].urlopen(
                method, self._url(path, query), data, headers, **self._manners
            )
            return _read(answer, method, path)

    def _headers(self, patch: Patch | None = None, user: str | None = None) -> dict[str, str]:
        found = _HEADERS[patch].copy()
        if token := self._credentials.token():
            found["Authorization"] = token
        if user is not None:
            found["Impersonate-User"] = f"system:node:{user}"
            found["Impersonate-Group"] = "system:nodes"
        return found

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"{self._credentials.server.prefix}{path}{asked}"

    def _renew(self, used: Credentials) -> None:
        """Read the credentials again, unless somebody did since these were used."""
        with self._renewing:
            if self._credentials is not used:
                return
            fresh = used.again()
            if fresh.server != used.server:
                self._pools = self._open(fresh)
            self._credentials = fresh

    # -- streams ---------------------------------------------------------------------

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        silence: float,
        user: str | None = None,
        streams: OpenStreams | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """The lines of an answer that does not end soon. ``user`` is as in ``request``; to close
        ``streams`` ends it, as ``close`` does.

        Raises as ``attempt`` does; while lines are read, too, such as Unavailable after
        ``silence`` seconds without a byte.
        """
        manners = _manners(silence)
        with _broken_is_unavailable():
            answer = self._pools[1].urlopen(
                "GET",
                self._url(path, query),
                None,
                self._headers(user=user),
                preload_content=False,
                **manners,
            )
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(answer))
            for each in (self._streams, streams):
                if each is not None:
                    stack.enter_context(each.followed(answer))
            if answer.status != 200:
                with _broken_is_unavailable():
                    _read(answer, "GET", path)
            yield _lines(answer)

    # -- end -------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The API server's."""
        return self._credentials.server.url

    def close(self) -> None:
        """Begin no more requests, end the waiting of those that would try again, and streams."""
        self._closing.set()
        self._streams.close()

    @property
    def is_closing(self) -> bool:
        """Whether ``close`` was called."""
        return self._closing.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until ``close``; returns whether that came."""
        return self._closing.wait(seconds)


_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


def _manners(silence: float) -> dict[str, Any]:
    """How requests are made: once, and broken after so many seconds without a byte."""
    from urllib3 import Timeout

    timeout = Timeout(connect=_CONNECT, read=silence)
    return {"retries": False, "redirect": False, "timeout": timeout}


@contextlib.contextmanager
def _broken_is_unavailable() -> Iterator[None]:
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (HTTPError, OSError, ValueError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(text[:_LONGEST_TEXT]) from error


def _read(answer: BaseHTTPResponse, method: str, path: str) -> JsonObject:
    """The object of an answer. Raises ApiError, Unavailable, ValueError for what is no JSON."""
    code = answer.status
    if 200 <= code < 300:
        try:
            return decoded(answer.data)
        except ValueError:
            raise ValueError(f"{method} {path}: the answer is no JSON object") from None
    reason, message = _status(answer.data)
    if code == 429 or code >= 500:
        text = f"{method} {path}: {code} {reason}: {message}"
        raise Unavailable(text, _seconds(answer.headers.get("Retry-After")))
    raise api_error(code, reason, message, method, path)


def _status(data: bytes) -> tuple[str, str]:
    """Reason and message of a ``metav1.Status``, or the text that is there instead."""
    try:
        found = decoded(data)
    except ValueError:
        return "", _line(data[:_LONGEST_TEXT].decode(errors="replace"))
    return _line(found.get("reason", "")), _line(found.get("message", ""))


def _line(said: object) -> str:
    return " ".join(str(said)[:_LONGEST_TEXT].split())


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 4 else 0.0


def _lines(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Split at newlines; what comes after the last one was cut off and is dropped."""
    pieces: list[bytes] = []
    length = 0
    # Such answers come in chunks, and each is handed on as it comes.
    chunks = answer.stream(1 << 16)
    while True:
        with _broken_is_unavailable():
            chunk = next(chunks, b"")
        if not chunk:
            return
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        length += len(first)
        if others:
            yield b"".join(pieces)
            *whole, rest = others
            yield from whole
            pieces, length = [rest], len(rest)
        if length > _LONGEST_LINE:
            raise Unavailable(f"a line of the stream is longer than {_LONGEST_LINE} bytes")


def node_path(name: str, *below: str) -> str:
    """The path of a Node, or of what is below it."""
    return "/".join(("/api/v1/nodes", name, *below))


def pod_path(namespace: str, name: str, *below: str) -> str:
    """The path of a Pod, or of what is below it."""
    return "/".join(("/api/v1/namespaces", namespace, "pods", name, *below))
