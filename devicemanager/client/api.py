"""Requests to the API server: absolute paths, bodies as dicts, pools of connections.

How a failed request is handled:
* 429, 5xx or a broken connection: retry with exponential backoff and full jitter, without limit.
* 401: read the credentials again and retry once. If the retry also gets 401, handle it like 5xx.
* Any other error: raise it to the caller.

A client never has more requests in flight than its pool has connections. Streams (WATCH) use a
separate pool. They stay open for minutes, so in a shared pool requests would have no connection.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from devicemanager.client.credentials import Credentials
from devicemanager.client.errors import ClientClosing, Unauthorized, Unavailable, api_error
from devicemanager.client.protocol import JsonObject, Patch
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.client.validation import decoded
from devicemanager.io.retry import retry

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

__all__ = ["ApiClient", "OpenStreams", "ScopedApi", "node_path", "pod_path"]

FIRST_WAIT: Final = 0.2
"""Longest wait before the first retry, in seconds; it doubles with each retry."""
LONGEST_WAIT: Final = 30.0
"""Longest wait before any retry, in seconds."""

_CONTENT: Final[Mapping[Patch | None, str]] = {
    None: "application/json",
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
}
# Built once, because a process sends hundreds of requests per second.
_HEADERS: Final[Mapping[Patch | None, dict[str, str]]] = {
    patch: {
        "Accept": "application/json",
        "Content-Type": content,
        "User-Agent": "devicemanager-join",
    }
    for patch, content in _CONTENT.items()
}
# Well below the 10 s between renewals of a lease, because a server that does not respond must not
# block a thread for longer.
_CONNECT: Final = 5.0
_MAX_TEXT: Final = 300
_MAX_LINE: Final = 1 << 25
"""Largest event in bytes: ten times what etcd can store."""


class OpenStreams:
    """Set of open streams that another thread can end with ``close``. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._responses: set[BaseHTTPResponse] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def followed(self, response: BaseHTTPResponse) -> Iterator[None]:
        """Make ``close`` end this response, until the ``with`` block ends.

        Raises ClientClosing after ``close``.
        """
        with self._lock:
            if self._is_closed:
                raise ClientClosing
            # Added before the first read, because ``close`` must end every response for which a
            # thread can wait.
            self._responses.add(response)
        try:
            yield
        finally:
            with self._lock:
                self._responses.discard(response)

    def close(self) -> None:
        """End all open streams, and accept no new ones."""
        with self._lock:
            self._is_closed = True
            responses = list(self._responses)
        for response in responses:
            # urllib3 before 2.3 has no ``shutdown``: the stream then ends with its read timeout.
            if (shutdown := getattr(response, "shutdown", None)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    shutdown()


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
        self._options = _request_options(timeout)
        self._warn = RateLimitedWarning(warn)
        self._closing = threading.Event()
        # Guards credentials and pools, which are replaced together.
        self._renewing = threading.Lock()
        self._pools = self._open(credentials)
        self._streams = OpenStreams()

    def _open(self, credentials: Credentials) -> tuple[HTTPConnectionPool, HTTPConnectionPool]:
        """Return a pool of connections for requests, and one for streams.

        The number of streams is not limited.
        """
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
        """Send a request once and return the object in the response.

        Raises Unavailable for failures after which ``request`` would retry, and ApiError for
        other errors. After 401, the credentials are read again and the request is sent again.
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
        data = None if body is None else _compact(body).encode()
        headers = self._headers(patch, user)
        with _broken_is_unavailable():
            response = self._pools[0].urlopen(
                method, self._url(path, query), data, headers, **self._options
            )
            return _read(response, method, path)

    def _headers(self, patch: Patch | None = None, user: str | None = None) -> dict[str, str]:
        found = _HEADERS[patch].copy()
        if token := self._credentials.token():
            found["Authorization"] = token
        if user is not None:
            found["Impersonate-User"] = f"system:node:{user}"
            found["Impersonate-Group"] = "system:nodes"
        return found

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        text = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"{self._credentials.server.prefix}{path}{text}"

    def _renew(self, used: Credentials) -> None:
        """Read the credentials again, unless another thread has already replaced ``used``."""
        with self._renewing:
            if self._credentials is not used:
                return
            fresh = used.reload()
            # New connections are needed only for a new address or certificate, because the token
            # is read for each request.
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
        """Open a stream and return an iterator over its lines.

        ``close`` and ``streams.close`` end the stream. Raises the errors of ``attempt``, also while
        lines are read, and Unavailable after ``silence`` seconds without a byte.
        """
        options = _request_options(silence)
        with _broken_is_unavailable():
            response = self._pools[1].urlopen(
                "GET",
                self._url(path, query),
                None,
                self._headers(user=user),
                preload_content=False,
                **options,
            )
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(response))
            # Added before the body of an error is read, because that can also block.
            for each in (self._streams, streams):
                if each is not None:
                    stack.enter_context(each.followed(response))
            if response.status != 200:
                with _broken_is_unavailable():
                    _read(response, "GET", path)
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


def _request_options(silence: float) -> dict[str, Any]:
    """Return options for urllib3: no retries, no redirects, and a read timeout of ``silence``
    seconds."""
    from urllib3 import Timeout

    # Retries by urllib3 would ignore ``is_over`` and hide the header Retry-After. A redirect could
    # send the credentials to another host.
    timeout = Timeout(connect=_CONNECT, read=silence)
    return {"retries": False, "redirect": False, "timeout": timeout}


@contextlib.contextmanager
def _broken_is_unavailable() -> Iterator[None]:
    from urllib3.exceptions import HTTPError

    try:
        yield
    # ValueError comes from malformed responses, in urllib3 and in ``_read``.
    except (HTTPError, OSError, ValueError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(text[:_MAX_TEXT]) from error


def _read(response: BaseHTTPResponse, method: str, path: str) -> JsonObject:
    """Return the object in a response.

    Raises Unavailable for 429 and 5xx, ApiError for other error codes, and ValueError for a body
    that is not a JSON object.
    """
    code = response.status
    if 200 <= code < 300:
        try:
            return decoded(response.data)
        except ValueError:
            raise ValueError(f"{method} {path}: response is not a JSON object") from None
    reason, message = _status(response.data)
    # Overload, a restart or a failing etcd are temporary.
    if code == 429 or code >= 500:
        text = f"{method} {path}: {code} {reason}: {message}"
        raise Unavailable(text, _seconds(response.headers.get("Retry-After")))
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


def _lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Iterate over the lines of a stream; an incomplete last line is dropped. Raises Unavailable
    for a line of more than ``_MAX_LINE`` bytes."""
    pieces: list[bytes] = []
    length = 0
    # ``stream`` yields each chunk as it arrives; ``read`` would wait for 64 KiB.
    chunks = response.stream(1 << 16)
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
            *whole, unfinished = others
            yield from whole
            pieces, length = [unfinished], len(unfinished)
        if length > _MAX_LINE:
            raise Unavailable(f"a line of the stream is longer than {_MAX_LINE} bytes")


def node_path(name: str, *below: str) -> str:
    """Return the API path of a Node, or of its subresource ``below``."""
    # Names need no quoting, because the API server accepts only DNS names.
    return "/".join(("/api/v1/nodes", name, *below))


def pod_path(namespace: str, name: str, *below: str) -> str:
    """Return the API path of a Pod, or of its subresource ``below``."""
    return "/".join(("/api/v1/namespaces", namespace, "pods", name, *below))
