"""HTTP server of the fake API server: HTTP/1.1 on loopback, with a thread per connection.

Clients must not lock out each other. If too many connections are open, the server closes the one
that has been idle for longest and accepts the new one. At most three quarters of the connections
can be watches. A client that does not read is disconnected.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from devicemanager.apiserver.authorization import Permission, Permissions
from devicemanager.apiserver.bodies import typed
from devicemanager.apiserver.conversion import to_stored
from devicemanager.apiserver.discovery import document
from devicemanager.apiserver.errors import PageNotFound, StatusError, as_status, too_large
from devicemanager.apiserver.faults import Faults
from devicemanager.apiserver.handling import HttpRequest, RequestHandler
from devicemanager.apiserver.in_cluster import InCluster
from devicemanager.apiserver.kinds import Kinds, Target
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.request_log import LoggedRequest, RequestLog
from devicemanager.apiserver.resources import ResourceRules
from devicemanager.apiserver.store import Object, Store
from devicemanager.core.printable import printable
from devicemanager.objects.dra import GATES
from podresources import sockets

__all__ = ["FakeApiServer"]

_MAX_BODY: Final = 3 << 20
_MOST_READ: Final = 16 << 20
"""Maximum number of bytes to read from a body that is too large. Only a client that has sent its
whole body reads the response."""
_PIECE: Final = 1 << 16
_LENGTH_DIGITS: Final = 15
_MOST_CONNECTIONS: Final = 2048
"""Maximum number of open connections. Each has a thread."""
_LEAST_CONNECTIONS: Final = 16
_ACCEPT_PAUSE: Final = 0.2
"""Seconds before the next attempt to accept, for example while no descriptor is free."""
_SEND_TIMEOUT: Final = struct.pack("@ll", 30, 0)  # seconds, microseconds
_TOO_MANY: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
# Paths that need no permission, as on a real server.
_PLAIN: Final = {
    "/healthz": b"ok",
    "/livez": b"ok",
    "/readyz": b"ok",
    "/version": b'{"major":"1","minor":"37","gitVersion":"v1.37.0+fake"}',
}


class FakeApiServer:
    """A fake API server for tests, on a free port of 127.0.0.1. Thread-safe.

    Use it as a context manager, or call ``start`` and ``stop``. ``start`` after ``stop`` continues
    with the same objects and port. ``wipe`` removes all objects, like a loss of etcd.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        allowed: Iterable[Permission] | None = None,
        stores_resource_health: bool = True,
        bookmark_every: float = 60.0,
        hidden: Iterable[str] = (),
        watch_list: bool = True,
        definitions: Iterable[Mapping[str, Any]] = (),
        port: int = 0,
        in_cluster: InCluster | None = None,
        feature_gates: Iterable[str] = (),
    ) -> None:
        """Create a server; ``start`` opens its port.

        ``token``: the only accepted bearer token; None accepts all requests.
        ``allowed``: permissions that every client has; None grants all permissions.
        ``stores_resource_health``: True if the feature gate ResourceHealthStatus is on.
        ``bookmark_every``: interval of bookmarks in seconds.
        ``hidden``: values of ``apiVersion`` that are not served, such as ``resource.k8s.io/v1``.
        ``watch_list``: True if the feature gate WatchList is on.
        ``definitions``: CustomResourceDefinitions to serve. Their objects are not validated.
        ``port``: port on 127.0.0.1; 0 chooses a free one.
        ``in_cluster``: files for programs in pods. The server then serves TLS and accepts only
        the token in these files.
        ``feature_gates``: gates to enable (``objects.dra.GATES``); they are off by default.

        Raises ValueError for an invalid definition or an unknown gate.
        """
        unknown = sorted(set(feature_gates) - GATES)
        if unknown:
            raise ValueError(f"unknown feature gate {unknown[0]!r}: use {', '.join(sorted(GATES))}")
        self._rules = ResourceRules(feature_gates)
        self._in_cluster = in_cluster
        self.faults = Faults()
        self.permissions = Permissions(allowed)
        self.bookmark_every = bookmark_every
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of requests by ``(verb, resource)``, including failed requests.

        Requests with an invalid token, path or body are not counted.
        """
        self.log = RequestLog()
        """Log of the most recent requests, with the status codes of their responses."""
        self._hidden = tuple(hidden)
        self._watch_list = watch_list
        self._definitions = tuple(definitions)
        self._stores_resource_health = stores_resource_health
        self._token = in_cluster.token if in_cluster else token
        self._port = port
        self._server: _Server | None = None
        self._handler = self._empty()
        # The other connections are for other requests.
        self._watches = threading.Semaphore(max_connections() * 3 // 4)

    def _empty(self) -> RequestHandler:
        kinds = Kinds(self._hidden)
        for definition in self._definitions:
            kinds.define(definition)
        registry = Registry(
            Store(),
            kinds,
            stores_resource_health=self._stores_resource_health,
            rules=self._rules,
        )
        registry.create_namespaces()
        return RequestHandler(
            registry, self.faults, self.permissions, self._token, watch_list=self._watch_list
        )

    # -- start and stop --------------------------------------------------------------

    def start(self) -> None:
        """Start to accept requests. A start after ``stop`` uses the same port as before."""
        context = self._in_cluster.context if self._in_cluster else None
        self._server = _Server(("127.0.0.1", self._port), self, context)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="fake-apiserver", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop accepting requests, and close all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cut_streams(self) -> None:
        """Break all connections, even in the middle of a response."""
        if self._server is not None:
            self._server.cut()

    def forget_changes(self) -> None:
        """Discard stored changes: watches from older versions get 410 and must relist."""
        self._store.forget()

    def wipe(self) -> None:
        """Remove all objects and restart versions at 1, like an API server with a new etcd."""
        self._handler = self._empty()
        self.cut_streams()

    # -- objects ---------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the server, such as ``http://127.0.0.1:41234``."""
        return f"{'https' if self._in_cluster else 'http'}://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which programs in pods find the server."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._port),
        }

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server to the file ``path``. Return ``path``."""
        user = {} if self._token is None else {"token": self._token}
        cluster = {"server": self.url}
        if self._in_cluster:
            authority = base64.b64encode(self._in_cluster.authority).decode()
            cluster["certificate-authority-data"] = authority
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": user}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        path.write_text(json.dumps(config))  # JSON is valid YAML
        return path

    def create(self, plural: str, value: Object, namespace: str = "default") -> Object:
        """Create an object and return the stored object.

        Raises StatusError if the server rejects it.
        """
        return self._handler.registry.create(self._target(plural, namespace), value).value

    def load(self, value: Object) -> Object:
        """Create an object of any kind, with its status, and return the stored object.

        Raises ValueError for a kind that is not served, and StatusError if the server rejects the
        object.
        """
        registry = self._handler.registry
        api_version, name = value.get("apiVersion", ""), value.get("kind", "")
        found = registry.kinds.of(api_version, name)
        if found is None:
            raise ValueError(
                f"{api_version} {name} is not served: add its CustomResourceDefinition with the "
                "argument `definitions` or the option --crd"
            )
        kind = found[0]
        metadata = value.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        target = Target(kind, namespace, version=api_version)
        given = to_stored(kind, api_version, typed(target, value, strict=False))
        made = registry.create(target, given).value
        if not (kind.has_status and given.get("status")):
            return made
        below = Target(kind, namespace, made["metadata"]["name"], "status", api_version)
        return registry.change(below, lambda old: {**old, "status": given["status"]}).value

    def get(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        """Return an object; None if it does not exist."""
        target = self._target(plural, namespace, name)
        stored = self._store.get(target.kind, target.namespace, name)
        return None if stored is None else stored.value

    def all(self, plural: str) -> list[Object]:
        """Return all objects of a resource type, such as ``pods``."""
        return [
            stored.value for stored in self._store.all(self._handler.registry.kinds.named(plural))
        ]

    def change(
        self,
        plural: str,
        name: str,
        change: Callable[[Object], Object],
        namespace: str = "default",
        *,
        subresource: str = "",
    ) -> Object:
        """Replace an object with the result of the function ``change``. Return the new object.

        ``change`` gets a copy of the object. The replacement is atomic.

        With ``subresource="status"``, only changes of ``status`` are stored. Without it, changes of
        ``status`` are ignored if the kind has the subresource ``status``. Raises StatusError if the
        server rejects the new object.
        """
        target = self._target(plural, namespace, name, subresource)
        return self._handler.registry.change(target, change).value

    def bind(self, pod: str, node: str, namespace: str = "default") -> None:
        """Bind a pod to a node. Raises StatusError if the server rejects the binding."""
        target = self._target("pods", namespace, pod, "binding")
        self._handler.registry.bind(target, {"target": {"kind": "Node", "name": node}})

    def delete(self, plural: str, name: str, namespace: str = "default", **options: Any) -> None:
        """Delete an object as a user's request does. ``options``: fields of
        ``metav1.DeleteOptions``.

        Raises StatusError if the server rejects the deletion.
        """
        self._handler.registry.delete(self._target(plural, namespace, name), options)

    def _target(self, plural: str, namespace: str, name: str = "", subresource: str = "") -> Target:
        kind = self._handler.registry.kinds.named(plural)
        return Target(kind, namespace if kind.namespaced else "", name, subresource)

    # -- versions --------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        return self._handler.registry.store

    @property
    def version(self) -> int:
        """The newest resource version of any object."""
        with self._store.lock:
            return self._store.version

    def wait_for_change(self, version: int, seconds: float, until: Callable[[], bool]) -> None:
        """Wait up to ``seconds`` for a resource version newer than ``version``.

        The wait also ends when the function ``until`` returns True. The server calls ``until``
        before the wait and after each ``wake``.
        """
        self._store.after(version, seconds, until)

    def wake(self) -> None:
        """Wake all watches and all calls of ``wait_for_change``. Each of them checks whether it
        must end."""
        self._store.wake()

    # -- requests --------------------------------------------------------------------

    def _serve(self, http: _HttpHandler, method: str) -> None:
        """Read one HTTP request from a connection and respond to it."""
        handler = self._handler
        request = None
        try:
            body = http.body()
            with as_status():
                path = urlsplit(http.path).path
            if path in _PLAIN:
                http.respond(200, _PLAIN[path])
                return
            found = document(path, handler.registry.kinds)
            if method == "GET" and found is not None:
                self._log(http, method, 200)
                http.respond(200, json.dumps(found).encode())
                return
            with as_status():
                request = handler.parse(method, http.path, dict(http.headers), body)
            self.requests[request.verb, request.target.kind.plural] += 1
            self._delay()
            handler.authorize(request)
            if request.verb == "watch":
                self._stream(http, handler, request)
            else:
                with as_status():
                    code, text = handler.respond(request)
                # Log before responding: a client with a response must find its entry.
                self._log(http, method, code, request)
                http.respond(code, text)
        except StatusError as error:
            self._log(http, method, error.code, request, error.message)
            if isinstance(error, PageNotFound):
                http.respond(404, error.message.encode(), {"Content-Type": "text/plain"})
                return
            wait = {"Retry-After": "1"} if error.code == 429 else {}
            http.respond(error.code, json.dumps(error.body()).encode(), wait)

    def _log(
        self,
        http: _HttpHandler,
        method: str,
        code: int,
        request: HttpRequest | None = None,
        message: str = "",
    ) -> None:
        fields: dict[str, Any] = {
            "message": message,
            "agent": http.headers.get("User-Agent", ""),
            "content": http.headers.get("Content-Type", ""),
        }
        if request is not None:
            named = request.target
            fields |= {
                "verb": request.verb,
                "resource": named.kind.plural,
                "subresource": named.subresource,
                "namespace": named.namespace,
                "name": named.name,
                "version": named.api_version,
                "selector": request.query.get("fieldSelector", ""),
                "body": request.body or None,
                "size": http.received,
            }
        self.log.add(LoggedRequest(method, http.path, code, **fields))

    def _delay(self) -> None:
        if self.faults.slow:
            time.sleep(self.faults.slow)
        # Poll, because tests set the attribute without a notification.
        while self.faults.silent and self._server is not None:
            time.sleep(0.05)

    def _stream(self, http: _HttpHandler, handler: RequestHandler, request: HttpRequest) -> None:
        server = self._server

        def is_over() -> bool:
            return server is None or server.is_cut(http.connection)

        with self._counted_watch():
            with as_status():
                watch = handler.watch(request)
            self._log(http, request.method, 200, request)
            http.begin()
            for line in watch.lines(self.bookmark_every, is_over):
                self._delay()
                http.chunk(line)
            if not is_over():
                http.chunk(b"")

    @contextlib.contextmanager
    def _counted_watch(self) -> Iterator[None]:
        """Count a watch during the ``with`` block. Raises StatusError if there are too many."""
        if not self._watches.acquire(blocking=False):
            raise StatusError(429, "too many watches are open on this server: close some of them")
        try:
            yield
        finally:
            self._watches.release()


class _Server(ThreadingHTTPServer):
    # Watches last minutes. Neither ``stop`` nor the exit of the process may wait for them.
    daemon_threads = True
    block_on_close = False
    # Hundreds of nodes connect at the same time.
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], api: FakeApiServer, context: ssl.SSLContext | None
    ) -> None:
        self.api = api
        self._context = context
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._idle: dict[socket.socket, None] = {}
        """Connections that wait for a complete request, longest wait first."""
        super().__init__(address, _HttpHandler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            connection, address = super().get_request()
        except OSError:  # no descriptor is free: that can change
            time.sleep(_ACCEPT_PAUSE)
            raise
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        if self._context is None:
            return connection, address
        # On the connection's thread, the first read performs the handshake.
        secure = self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return secure, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection on a thread. If too many are open, close the one that has been idle
        for longest; if none is idle, reject the new one."""
        most = max_connections()
        with self._lock:
            if len(self._open) >= most and self._idle:
                longest = next(iter(self._idle))
                self._forget(longest)
                _end(longest)
            is_accepted = len(self._open) < most
            if is_accepted:
                self._open.add(request)
                self._idle[request] = None
        if not is_accepted:
            self._reject(request)
            return
        super().process_request(request, client_address)

    def _reject(self, request: Any) -> None:
        # Without TLS, whose handshake would block this thread.
        if self._context is None:
            with contextlib.suppress(OSError):
                request.send(_TOO_MANY, socket.MSG_DONTWAIT)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._forget(request)
        super().shutdown_request(request)

    def _forget(self, connection: socket.socket) -> None:
        """Forget a connection that ends. Must be called with the lock held."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def set_idle(self, connection: socket.socket) -> None:
        """Note that a connection waits for a request."""
        with self._lock:
            if connection in self._open:
                self._idle[connection] = None

    def set_busy(self, connection: socket.socket) -> None:
        """Note that a complete request has arrived on a connection."""
        with self._lock:
            self._idle.pop(connection, None)

    def is_cut(self, connection: socket.socket) -> bool:
        """True if a connection was cut and its thread must end."""
        with self._lock:
            return connection not in self._open

    def cut(self) -> None:
        """End all open connections. New connections are still accepted."""
        with self._lock:
            found, self._open = self._open, set()
            self._idle.clear()
        for connection in found:
            _end(connection)
        self.api.wake()

    def end(self) -> None:
        """Close the port and end all connections."""
        self.shutdown()
        self.server_close()
        self.cut()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections."""


def max_connections() -> int:
    """Return the maximum number of open connections: a quarter of the file descriptors that the
    process may open, between 16 and 2048.

    The other descriptors are for other servers in the process, such as a kubelet.
    """
    return sockets.max_connections(4, least=_LEAST_CONNECTIONS, most=_MOST_CONNECTIONS)


def _end(connection: socket.socket) -> None:
    """End the reads and writes on a connection, so that its thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are separate writes, which Nagle's algorithm would delay by 40 ms.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server
    received = 0
    """Number of received bytes of the body of the request in progress."""

    def handle_one_request(self) -> None:
        self.server.set_idle(self.connection)
        super().handle_one_request()

    def body(self) -> bytes:
        """Return the body of the request. Raises StatusError for an invalid or too large length."""
        try:
            found = self._body()
            self.received = len(found)
            return found
        finally:
            self.server.set_busy(self.connection)

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length") or "0"
        if text.isascii() and text.isdecimal() and len(text) <= _LENGTH_DIGITS:
            length = int(text)
            if length <= _MAX_BODY:
                return self.rfile.read(length)
            # Read and discard the body: a client that is still sending would not see a response.
            left = min(length, _MOST_READ)
            while left > 0 and (piece := self.rfile.read(min(left, _PIECE))):
                left -= len(piece)
            error = too_large(f"limit is {_MAX_BODY}")
        else:
            error = StatusError(400, f"invalid Content-Length {printable(text, 40)!r}")
        # The start of the next request is unknown, so close the connection.
        self.close_connection = True
        raise error

    def respond(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a response with headers and body."""
        self.send_response_only(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """Send the headers of a chunked response."""
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data: bytes) -> None:
        """Send a chunk of a response; an empty chunk ends the response."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self) -> None:
        self.server.api._serve(self, "GET")

    def do_POST(self) -> None:
        self.server.api._serve(self, "POST")

    def do_PUT(self) -> None:
        self.server.api._serve(self, "PUT")

    def do_PATCH(self) -> None:
        self.server.api._serve(self, "PATCH")

    def do_DELETE(self) -> None:
        self.server.api._serve(self, "DELETE")

    def log_message(self, *_: object) -> None:
        """Log no requests."""
