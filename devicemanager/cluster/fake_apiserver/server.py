"""The stub as a server: HTTP/1.1 on loopback, a thread a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.faults import Faults
from devicemanager.cluster.fake_apiserver.handling import Asked, Handling
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target
from devicemanager.cluster.fake_apiserver.objects import Objects
from devicemanager.cluster.fake_apiserver.rights import Right, Rights
from devicemanager.cluster.fake_apiserver.store import Object, Store

__all__ = ["FakeApiServer"]

_MOST_BODY: Final = 3 << 20
_PLAIN: Final = {
    "/healthz": b"ok",
    "/readyz": b"ok",
    "/version": b'{"major":"1","minor":"32","gitVersion":"v1.32.0+stub"}',
}


class FakeApiServer:
    """An API server on a port of its own, from ``start`` or ``with`` to ``stop``.

    What it holds stays over ``stop`` and ``start``, as that of a real one does in etcd;
    ``wipe`` is a new etcd. May be used from any thread.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        allowed: Iterable[Right] | None = None,
        keeps_resource_health: bool = True,
        bookmark_every: float = 60.0,
    ) -> None:
        """``token``: the one that clients must send. ``allowed``: what they may do; None is
        everything. ``bookmark_every``: seconds."""
        self.faults = Faults()
        self.rights = Rights(allowed)
        self.bookmark_every = bookmark_every
        self.requests: Counter[tuple[str, str]] = Counter()
        """How many came, by verb and resource, with those that were rejected."""
        self._keeps_resource_health = keeps_resource_health
        self._token = token
        self._port = 0
        self._server: _Server | None = None
        self._handling = self._fresh()

    def _fresh(self) -> Handling:
        objects = Objects(Store(), keeps_resource_health=self._keeps_resource_health)
        for name in ("default", "kube-system", "kube-node-lease"):
            objects.create(Target(KINDS["namespaces"]), {"metadata": {"name": name}})
        return Handling(objects, self.faults, self.rights, self._token)

    # -- life ------------------------------------------------------------------------

    def start(self) -> None:
        """Serve, on the port of before if there was one."""
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="stub", daemon=True
        ).start()

    def stop(self) -> None:
        """Close the port and all connections."""
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cut_streams(self) -> None:
        """End every connection in the middle of whatever it says."""
        if self._server is not None:
            self._server.cut()

    def forget_changes(self) -> None:
        """Who watches from before now is told 410."""
        self.objects.store.forget()

    def wipe(self) -> None:
        """Lose everything: the next requests meet an empty cluster that counts versions anew."""
        self._handling = self._fresh()
        self.cut_streams()

    # -- what there is ---------------------------------------------------------------

    @property
    def objects(self) -> Objects:
        """What is stored, to look at and to change past the API."""
        return self._handling.objects

    @property
    def url(self) -> str:
        """Such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, path: Path) -> Path:
        """Write one that leads here; returns its path."""
        user = {} if self._token is None else {"token": self._token}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stub", "cluster": {"server": self.url}}],
            "users": [{"name": "stub", "user": user}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "current-context": "stub",
        }
        path.write_text(json.dumps(config))  # JSON is YAML, too
        return path

    def create(self, plural: str, value: Object, namespace: str = "default") -> Object:
        """Create an object past HTTP; returns it as it is stored."""
        kind = KINDS[plural]
        named = Target(kind, namespace if kind.namespaced else "")
        return self.objects.create(named, value).value

    def get(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        """An object as it is stored, or None."""
        kind = KINDS[plural]
        stored = self.objects.store.get(kind, namespace if kind.namespaced else "", name)
        return None if stored is None else stored.value

    def all(self, plural: str) -> list[Object]:
        """All objects of a kind."""
        return [stored.value for stored in self.objects.store.all(KINDS[plural])]

    def delete(self, plural: str, name: str, namespace: str = "default", **options: Any) -> None:
        """Delete an object as a user does; ``options`` as ``metav1.DeleteOptions``."""
        kind = KINDS[plural]
        self.objects.delete(Target(kind, namespace if kind.namespaced else "", name), options)

    # -- requests --------------------------------------------------------------------

    def serve(self, handler: _Handler, method: str) -> None:
        """Answer one request of a connection."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(min(length, _MOST_BODY))
        if handler.path in _PLAIN:
            handler.answer(200, _PLAIN[handler.path])
            return
        handling = self._handling
        try:
            asked = handling.read(method, handler.path, dict(handler.headers), body)
            self.requests[asked.verb, asked.target.kind.plural] += 1
            self._hold_up()
            handling.authorize(asked)
            if asked.verb == "watch":
                self._stream(handler, handling, asked)
            else:
                handler.answer(*handling.answer(asked))
        except Rejection as rejection:
            wait = {"Retry-After": "1"} if rejection.code == 429 else {}
            handler.answer(rejection.code, json.dumps(rejection.body()).encode(), wait)

    def _hold_up(self) -> None:
        if self.faults.slow:
            time.sleep(self.faults.slow)
        while self.faults.silent and self._server is not None:
            time.sleep(0.05)

    def _stream(self, handler: _Handler, handling: Handling, asked: Asked) -> None:
        server = self._server

        def is_over() -> bool:
            return server is None or server.is_cut(handler.connection)

        watching = handling.watch(asked)
        handler.begin()
        for line in watching.lines(self.bookmark_every, is_over):
            self._hold_up()
            handler.chunk(line)
        if not is_over():
            handler.chunk(b"")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], stub: FakeApiServer) -> None:
        self.stub = stub
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """As the base class; the connection may be cut from here on."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """As the base class."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def is_cut(self, connection: socket.socket) -> bool:
        """Whether a connection is to end."""
        with self._lock:
            return connection not in self._open

    def cut(self) -> None:
        """End all connections; new ones may come."""
        with self._lock:
            found, self._open = self._open, set()
        for connection in found:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.stub.objects.store.wake()

    def end(self) -> None:
        """End the port and all connections."""
        self.shutdown()
        self.server_close()
        self.cut()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        self.send_response_only(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """The head of an answer in chunks."""
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data: bytes) -> None:
        """A part of it; an empty one is the last."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self) -> None:
        self.server.stub.serve(self, "GET")

    def do_POST(self) -> None:
        self.server.stub.serve(self, "POST")

    def do_PUT(self) -> None:
        self.server.stub.serve(self, "PUT")

    def do_PATCH(self) -> None:
        self.server.stub.serve(self, "PATCH")

    def do_DELETE(self) -> None:
        self.server.stub.serve(self, "DELETE")

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""
