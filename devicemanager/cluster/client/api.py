"""Requests to the API server: absolute paths, bodies as dicts, pools of connections.

How a request ends:
* 429, 5xx or a broken connection: retry with exponential backoff and full jitter, without limit.
* 401: read the credentials again, then retry once; after that as for 5xx.
* Any other error: raise it; the caller decides.

A client never has more requests in flight than its pool has connections. Streams (WATCH) use a
separate pool: they stay open for minutes and would otherwise starve the requests.
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
from devicemanager.cluster.client.validation import decoded
from devicemanager.io.retry import retry

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

__all__ = ["ApiClient", "OpenStreams", "ScopedApi", "node_path", "pod_path"]

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 30.0
"""Seconds before the first retry, and the limit of the backoff."""

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
# Well below the 10 s between renewals of a lease: a dead server must not hold a thread longer.
_CONNECT: Final = 5.0
_MAX_TEXT: Final = 300
_MAX_LINE: Final = 1 << 25
"""Bytes of an event: ten times what etcd can store."""


class OpenStreams:
    """The streams that another thread may have to end. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._responses: set[BaseHTTPResponse] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def followed(self, response: BaseHTTPResponse) -> Iterator[None]:
        """Let ``close`` end the reading of this response. Raises ClientClosing after ``close``."""
        with self._lock:
            if self._is_closed:
                raise ClientClosing
            # Before the first read: ``close`` must find every response that a thread can wait
            # for.
            self._responses.add(response)
        try:
            yield
        finally:
            with self._lock:
                self._responses.discard(response)

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            self._is_closed = True
            responses = list(self._responses)
        for response in responses:
            # urllib3 before 2.3 lacks it: there the stream ends with its read timeout.
            if (shutdown := getattr(response, "shutdown", None)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    shutdown()


class ScopedApi:
    """A view of a client that stops writing when a condition becomes true."""

    def __init__(self, client: ApiClient, is_over: Callable[[], bool]) -> None:
        self.request = functools.partial(client.request, is_over=is_over)
        """As in ``protocol.Api``; raises ClientClosing once ``is_over`` returns True."""


class ApiClient:
    """The API server, on one pool of connections. Thread-safe."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        connections: int = 32,
        timeout: float = 30.0,
        warn: Warn = lambda text: None,
    ) -> None:
        """``timeout``: seconds without a byte of the response until the connection counts as
        broken."""
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
        """Open a pool for requests and one for streams, whose number is not limited."""
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
        """As in ``protocol.Api``. Also raises ClientClosing, instead of sending or retrying,
        once ``is_over`` returns True."""

        def call() -> JsonObject:
            # Before each attempt, not only the first: a shard can be lost during a wait.
            if self._closing.is_set() or is_over():
                raise ClientClosing
            try:
                return self.attempt(method, path, body, query=query, patch=patch, user=user)
            except Unauthorized as error:
                # Retry: an administrator can replace expired credentials at any time, and
                # until then no write is lost.
                raise Unavailable(f"credentials not accepted: {error.message}") from None

        try:
            # Nearly every request succeeds at once, and setting up a retry costs more than
            # the request.
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

        # Let ``retry`` see the first failure without another request, so that its backoff counts
        # it.
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
        """Send a request once. Raises Unavailable where ``request`` retries."""
        # The credentials of this attempt: another thread may replace them at any time.
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
        """Reload the credentials, unless another thread did so after these were used."""
        with self._renewing:
            if self._credentials is not used:
                return
            fresh = used.reload()
            # Only a new address or certificate needs new connections: the token is read per
            # request.
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
        """Open a stream and return its lines. ``close`` ends it; so does closing ``streams``.

        Raises as ``attempt`` does, also while lines are read: Unavailable after ``silence``
        seconds without a byte.
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
            # Before the status is read: the body of an error can block, too.
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
        """Send no more requests; end streams and the waits before retries."""
        self._closing.set()
        self._streams.close()

    @property
    def is_closing(self) -> bool:
        """True after ``close``."""
        return self._closing.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until ``close`` or a timeout; return True if the client is closed."""
        return self._closing.wait(seconds)


_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


def _request_options(silence: float) -> dict[str, Any]:
    """Return the options of urllib3: no retries, no redirects, and a read timeout."""
    from urllib3 import Timeout

    # Retries of urllib3 would ignore ``is_over`` and hide Retry-After. A redirect could send the
    # credentials to another host.
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
    """Return the object of a response. Raises ApiError, Unavailable, and ValueError for a body
    that is not a JSON object."""
    code = response.status
    if 200 <= code < 300:
        try:
            return decoded(response.data)
        except ValueError:
            raise ValueError(f"{method} {path}: response is not a JSON object") from None
    reason, message = _status(response.data)
    # Overload, a restart or a failing etcd: all of them pass.
    if code == 429 or code >= 500:
        text = f"{method} {path}: {code} {reason}: {message}"
        raise Unavailable(text, _seconds(response.headers.get("Retry-After")))
    raise api_error(code, reason, message, method, path)


def _status(data: bytes) -> tuple[str, str]:
    """Return reason and message of a ``metav1.Status``; for other bodies, their text."""
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
    """Split a stream at newlines. An incomplete last line was cut off and is dropped."""
    pieces: list[bytes] = []
    length = 0
    # Events come as chunks. ``stream`` yields each chunk as it arrives; ``read`` would wait
    # until 64 KiB are there.
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
            *whole, rest = others
            yield from whole
            pieces, length = [rest], len(rest)
        if length > _MAX_LINE:
            raise Unavailable(f"stream line too long: limit {_MAX_LINE} bytes")


def node_path(name: str, *below: str) -> str:
    """Return the path of a Node or of its subresource."""
    # Names need no quoting: the API server only accepts DNS names.
    return "/".join(("/api/v1/nodes", name, *below))


def pod_path(namespace: str, name: str, *below: str) -> str:
    """Return the path of a Pod or of its subresource."""
    return "/".join(("/api/v1/namespaces", namespace, "pods", name, *below))
