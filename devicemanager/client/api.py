"""Requests to the API server: absolute paths, bodies as dicts, pools of connections.

How a failed request is handled:
* 429, 5xx or a broken connection: retry with exponential backoff and full jitter, without limit.
* 401: read the credentials again and retry once. If the retry also gets 401, handle it like 5xx.
* Any other error: raise it to the caller.

A client never has more requests in flight than its pool has connections. Each stream (WATCH) has a
connection of its own, because it stays open for minutes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlencode

from devicemanager.client.connection import Connection, ConnectionPool, Response
from devicemanager.client.credentials import Credentials
from devicemanager.client.errors import (
    ClientClosing,
    ClusterError,
    Unauthorized,
    Unavailable,
    api_error,
)
from devicemanager.client.protocol import JsonObject, Patch
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.client.validation import decoded
from devicemanager.io.retry import retry

__all__ = ["ApiClient", "OpenStreams", "ScopedApi", "node_path", "pod_path"]

FIRST_WAIT: Final = 0.2
"""Longest wait before the first retry, in seconds. The limit doubles with each retry."""
LONGEST_WAIT: Final = 30.0
"""Longest wait before any retry, in seconds."""

_CONTENT: Final[Mapping[Patch | None, str]] = {
    None: "application/json",
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
}
# Header lines built once, because a process sends hundreds of requests per second. ``identity``
# keeps proxies from compressing the response.
_HEADERS: Final[Mapping[Patch | None, str]] = {
    patch: "Accept: application/json\r\nAccept-Encoding: identity\r\n"
    f"Content-Type: {content}\r\nUser-Agent: devicemanager-join\r\n"
    for patch, content in _CONTENT.items()
}
_LEGAL: Final = re.compile(r"[!-~\xa0-\xff]+(?: [!-~\xa0-\xff]+)*")
"""Values that a header can have. Others could add headers."""
_UNQUOTED: Final = "/%:@!$&'()*+,;=~"
_MAX_TEXT: Final = 300
_MAX_LINE: Final = 1 << 25
"""Largest event in bytes: ten times what etcd can store."""


class OpenStreams:
    """Set of the connections of open streams. A call of ``close`` ends all of them. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def followed(self, connection: Connection) -> Iterator[None]:
        """Keep a connection in the set during the ``with`` block, so that ``close`` can end it.

        Raises ClientClosing if ``close`` was called before.
        """
        with self._lock:
            if self._is_closed:
                raise ClientClosing
            # Added before the request is sent, because ``close`` must end every response for which
            # a thread can wait.
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)

    def close(self) -> None:
        """End all open streams, and accept no new ones."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.shutdown()


class ScopedApi:
    """View of an ApiClient that sends no more requests once ``is_over`` returns True."""

    def __init__(self, client: ApiClient, is_over: Callable[[], bool]) -> None:
        self.request = functools.partial(client.request, is_over=is_over)
        """``ApiClient.request``, which raises ClientClosing once ``is_over`` returns True."""


class ApiClient:
    """Client for an API server, with pools of connections. Thread-safe."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        connections: int = 32,
        timeout: float = 30.0,
        warn: Warn = lambda text: None,
    ) -> None:
        """Create a client; no request is sent yet.

        ``connections``: maximum number of requests in flight. ``timeout``: seconds without a byte
        of the response after which a connection counts as broken.
        """
        self._credentials = credentials
        self._connections = connections
        self._timeout = timeout
        self._warn = RateLimitedWarning(warn)
        self._closing = threading.Event()
        # Guards credentials and pool, which are replaced together.
        self._renewing = threading.Lock()
        self._pool = ConnectionPool(credentials.server, connections, timeout)
        self._streams = OpenStreams()

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
        """Send a request and return the object in the response; retry temporary failures.

        See ``protocol.Api.request``. Raises ClientClosing, instead of sending or retrying, once
        ``is_over`` returns True.
        """

        def call() -> JsonObject:
            # Checked before each attempt, because a shard can be lost during a wait.
            if self._closing.is_set() or is_over():
                raise ClientClosing
            try:
                return self.attempt(method, path, body, query=query, patch=patch, user=user)
            except Unauthorized as error:
                # Retried, because an administrator can replace expired credentials at any time,
                # and then no write is lost.
                raise Unavailable(
                    f"the server rejects the credentials: {error.message}; renew them"
                ) from None

        try:
            # Nearly every request succeeds at the first attempt, and preparing a retry costs
            # more than the request.
            return call()
        except Unavailable as error:
            return self._retry(call, error)

    def _retry(self, call: Callable[[], JsonObject], first: Unavailable) -> JsonObject:
        retry_after = first.wait

        def report(error: BaseException, _: float) -> None:
            nonlocal retry_after
            retry_after = error.wait if isinstance(error, Unavailable) else 0.0
            self._warn(f"API server unavailable, retrying: {error}")

        def sleep(seconds: float) -> None:
            if self._closing.wait(max(seconds, retry_after)):
                raise ClientClosing

        # ``retry`` gets the first failure without another request, so that it counts for the
        # backoff.
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
        """Send a request and return the object in the response; retry only after 401.

        After 401, the credentials are read again, and the request is sent once more. Raises
        Unavailable for 429, 5xx, a broken connection or unreadable credentials, and ApiError for
        any other error response.
        """
        # The credentials of this attempt, because another thread can replace them at any time.
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
        try:
            request = self._request(method, path, body, query, patch, user)
            return _decoded(*self._pool.exchange(request), method, path)
        except _BROKEN as error:
            raise _unavailable(error) from error

    def _request(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        query: Mapping[str, str] | None,
        patch: Patch | None,
        user: str | None,
    ) -> bytes:
        """Return an encoded request. Raises ValueError for a header that cannot be sent."""
        server = self._credentials.server
        text = f"?{urlencode(query, quote_via=quote)}" if query else ""
        target = f"{server.prefix}{quote(path, safe=_UNQUOTED)}{text}"
        head = f"{method} {target} HTTP/1.1\r\nHost: {server.host}\r\n{_HEADERS[patch]}"
        if token := self._credentials.token():
            head += _header("Authorization", token)
        if user is not None:
            head += _header("Impersonate-User", f"system:node:{user}")
            head += "Impersonate-Group: system:nodes\r\n"
        if body is None:
            # Latin-1, because header values can have its characters (``_LEGAL``).
            return f"{head}\r\n".encode("latin-1")
        data = _compact(body).encode()
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode("latin-1") + data

    def _renew(self, used: Credentials) -> None:
        """Read the credentials again, unless another thread has already replaced ``used``.

        Raises Unavailable if they cannot be read.
        """
        with self._renewing:
            if self._credentials is not used:
                return
            try:
                fresh = used.reload()
            except ClusterError as error:
                # Temporary, like the 401 itself: a program may just be writing the file.
                raise Unavailable(str(error)) from error
            # New connections are needed only for a new address or certificate, because the token
            # is read for each request.
            if fresh.server != used.server:
                self._pool = ConnectionPool(fresh.server, self._connections, self._timeout)
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
        """GET ``path`` as a stream for the ``with`` block. Yield an iterator over its lines.

        The stream ends when this client is closed, or when ``streams`` is closed. Raises the errors
        of ``attempt``, also while lines are read, and Unavailable after ``silence`` seconds without
        a byte. Like ``attempt``, retries once after 401.
        """
        credentials = self._credentials
        with contextlib.ExitStack() as stack:
            try:
                lines = stack.enter_context(self._stream(path, query, silence, user, streams))
            except Unauthorized:
                self._renew(credentials)
                lines = stack.enter_context(self._stream(path, query, silence, user, streams))
            yield lines

    @contextlib.contextmanager
    def _stream(
        self,
        path: str,
        query: Mapping[str, str],
        silence: float,
        user: str | None,
        streams: OpenStreams | None,
    ) -> Iterator[Iterator[bytes]]:
        try:
            connection = Connection(self._credentials.server, silence)
        except _BROKEN as error:
            raise _unavailable(error) from error
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            for each in (self._streams, streams):
                if each is not None:
                    stack.enter_context(each.followed(connection))
            try:
                request = self._request("GET", path, None, query, None, user)
                response = connection.exchange(request)
                if response.status != 200:
                    _decoded(response, response.read(), "GET", path)
            except _BROKEN as error:
                raise _unavailable(error) from error
            yield _lines(response)

    # -- end -------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the API server."""
        return self._credentials.server.url

    def close(self) -> None:
        """Send no more requests; end all streams, and all waits before retries."""
        self._closing.set()
        self._streams.close()

    @property
    def is_closing(self) -> bool:
        """True after ``close`` was called."""
        return self._closing.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until the client is closed; return True if it is closed."""
        return self._closing.wait(seconds)


_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


# OSError comes from broken connections, ValueError from malformed responses.
_BROKEN: Final = (OSError, ValueError)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable((" ".join(str(error).split()) or type(error).__name__)[:_MAX_TEXT])


def _header(name: str, value: str) -> str:
    if not _LEGAL.fullmatch(value):
        # Without the value, which can be a secret.
        raise ValueError(f"the value of the header {name} has characters that cannot be sent")
    return f"{name}: {value}\r\n"


def _decoded(response: Response, body: bytes, method: str, path: str) -> JsonObject:
    """Return the object in a response.

    Raises Unavailable for 429 and 5xx, ApiError for other error codes, and ValueError for a body
    that is not a JSON object.
    """
    code = response.status
    if 200 <= code < 300:
        try:
            return decoded(body)
        except ValueError:
            raise ValueError(f"{method} {path}: response is not a JSON object") from None
    reason, message = _status(body)
    # Overload, a restart or a failing etcd are temporary.
    if code == 429 or code >= 500:
        text = f"{method} {path}: {code} {reason}: {message}"
        raise Unavailable(text, _seconds(response.headers.get("retry-after")))
    raise api_error(code, reason, message, method, path)


def _status(data: bytes) -> tuple[str, str]:
    """Return reason and message of a ``metav1.Status``. For any other body, the reason is empty and
    the message is the text of the body."""
    try:
        found = decoded(data)
    except ValueError:
        return "", _one_line(data[:_MAX_TEXT].decode(errors="replace"))
    return _one_line(found.get("reason", "")), _one_line(found.get("message", ""))


def _one_line(text: object) -> str:
    return " ".join(str(text)[:_MAX_TEXT].split())


def _seconds(text: str | None) -> float:
    # The header can also be a date, but API servers send seconds.
    return float(text) if text and text.isdecimal() and len(text) < 4 else 0.0


def _lines(response: Response) -> Iterator[bytes]:
    """Iterate over the lines of a stream; an incomplete last line is dropped. Raises Unavailable
    for a broken connection, and for a line of more than ``_MAX_LINE`` bytes."""
    pieces: list[bytes] = []
    length = 0
    try:
        for chunk in response.chunks:
            first, *others = chunk.split(b"\n")
            pieces.append(first)
            length += len(first)
            if others:
                yield b"".join(pieces)
                *whole, unfinished = others
                yield from whole
                pieces, length = [unfinished], len(unfinished)
            if length > _MAX_LINE:
                raise ValueError(f"a line of the stream is longer than {_MAX_LINE} bytes")
    except _BROKEN as error:
        raise _unavailable(error) from error


def node_path(name: str, *below: str) -> str:
    """Return the API path of a Node, or of its subresource ``below``."""
    # Names need no quoting, because the API server accepts only DNS names.
    return "/".join(("/api/v1/nodes", name, *below))


def pod_path(namespace: str, name: str, *below: str) -> str:
    """Return the API path of a Pod, or of its subresource ``below``."""
    return "/".join(("/api/v1/namespaces", namespace, "pods", name, *below))
