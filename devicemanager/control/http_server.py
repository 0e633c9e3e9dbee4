"""An HTTP server on a thread with its own event loop, beside the kubelet.

It is around the way of a request: it listens on sockets, starts and stops uvicorn, and closes
connections that exceed a limit. What answers the requests is an ``HttpService``, created on the
loop. Limits of a connection:

* the first request, and each next one, must arrive within ``IDLE_SECONDS``;
* an answer must be read: a client that reads nothing for ``STALLED_SECONDS`` is disconnected;
* connections above ``max_connections()`` are closed at once, so that the kubelet always has
  file descriptors left.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import os
import resource
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import attrs
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from devicemanager.control.access import TcpAddress
from devicemanager.core.errors import RequestError, StartError, StopError
from podresources import sockets
from podresources.errors import PodResourcesError

__all__ = [
    "Certificate",
    "HttpServerThread",
    "HttpService",
    "Prepared",
    "listen_tcp",
    "listen_unix",
    "max_connections",
    "new_token",
]

IDLE_SECONDS: Final = 30.0
STALLED_SECONDS: Final = 30.0
_MOST_CONNECTIONS: Final = 2048
_STOP_SECONDS: Final = 2
"""Seconds for answers that are in progress when the server stops."""
_BACKLOG: Final = 1024
_MODE: Final = 0o600


class HttpService(Protocol):
    """Service behind one server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """The server stops: end streams and waits."""


@attrs.frozen
class Certificate:
    """PEM files: the certificate with its chain, and its key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise ValueError with the file's name if the files cannot be used."""
        for path in (self.certificate, self.key):
            try:
                path.open("rb").close()
            except OSError as error:
                raise ValueError(f"{path}: {error.strerror}") from None
        is_locked = False

        def password() -> str:
            nonlocal is_locked
            is_locked = True
            return ""

        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password)
        except ssl.SSLError:
            if not is_locked:  # with a password, OpenSSL asks for it when the server starts
                text = f"{self.certificate} and {self.key} are not a certificate and its key"
                raise ValueError(f"{text} in PEM format") from None


@attrs.frozen
class Prepared:
    """What a server is about to serve, and where."""

    listeners: list[socket.socket]
    make: Callable[[], HttpService]
    """Makes the service, on the server's loop."""
    certificate: Certificate | None = None
    """None: unencrypted."""


class HttpServerThread(abc.ABC):
    """HTTP server. Use it as a context manager, or call ``start`` and ``stop``."""

    what: str
    """What is served, for errors."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._clean_up = contextlib.ExitStack()

    @abc.abstractmethod
    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        """Listen. Callbacks on the stack run when the server stops. Raises StartError."""

    @property
    def is_serving(self) -> bool:
        """True from ``start`` to ``stop``."""
        return self._thread is not None

    def start(self) -> Self:
        """Serve. Raises StartError if that is not possible, RequestError if it serves already."""
        if self.is_serving:
            raise RequestError(f"{self.what} is served already: stop it first")
        with contextlib.ExitStack() as stack:
            try:
                prepared = self._prepare(stack)
            except StartError as error:
                raise StartError(f"{self.what} cannot start: {error}") from error
            server = _Server(prepared)
            # A daemon, so that a program that forgets to stop the server can still exit.
            thread = threading.Thread(target=server.run_all, name=self.what, daemon=True)
            thread.start()
            server.ready.wait()
            if server.failure is not None:
                thread.join()
                raise StartError(f"{self.what} cannot start: {server.failure}")
            self._server, self._thread = server, thread
            self._clean_up = stack.pop_all()
        return self

    def stop(self) -> None:
        """Stop serving: streams end, waits time out, other answers have two seconds.
        Idempotent. Raises StopError if the server had failed."""
        server, thread = self._server, self._thread
        # Cleared first, so that a second call does nothing, even while this one waits.
        self._server = self._thread = None
        if server is None or thread is None:
            return
        # Joined before the clean-up, so that sockets are removed when nothing uses them.
        server.end()
        thread.join()
        self._clean_up.close()
        if server.failure is not None:
            raise StopError(f"{self.what} has stopped, but: {server.failure}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """uvicorn on a thread: without signals, log, and the tick ten times a second."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._listeners = prepared.listeners
        self._service: HttpService | None = None
        self.ready = threading.Event()
        self.failure: str | None = None
        files = prepared.certificate
        super().__init__(
            uvicorn.Config(
                self._answer,
                ssl_certfile=None if files is None else files.certificate,
                ssl_keyfile=None if files is None else str(files.key),
                http=_Connection,
                # Nothing that is not used: each is code that clients could reach.
                ws="none",
                interface="asgi3",
                lifespan="off",
                # The kubelet's process has its own log on standard output.
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                # A client must not choose the address that access.Gate checks.
                proxy_headers=False,
                backlog=_BACKLOG,
                limit_concurrency=max_connections() + 1,  # _Connection closes those above
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )

    async def _answer(self, scope: object, receive: object, send: object) -> None:
        assert self._service is not None
        await self._service(scope, receive, send)  # type: ignore[arg-type]  # uvicorn's own

    def run_all(self) -> None:
        """Serve until ``end``, on the server's thread."""
        try:
            asyncio.run(self._all())
        # All of them, SystemExit included: uvicorn exits the process if it cannot listen.
        except BaseException as error:
            self.failure = f"{error}" or repr(error)
        finally:
            self.ready.set()

    async def _all(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._service = self._prepared.make()
        await self.serve(sockets=self._listeners)

    async def main_loop(self) -> None:
        # Instead of uvicorn's loop, which checks ten times a second whether it should end.
        self.ready.set()
        await self._ending.wait()
        # Accept no more, and give the loop two turns for connections that were just accepted:
        # asyncio (3.11) loses a connection whose listener is closed between the two.
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        for _ in range(2):
            await asyncio.sleep(0)
        assert self._service is not None
        self._service.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Clients that do not read keep their connections beyond uvicorn's grace period.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def end(self) -> None:
        """Stop serving soon. Safe to call from any thread."""
        self._loop.call_soon_threadsafe(self._ending.set)


class _Connection(H11Protocol):
    """A connection that closes itself when the first request does not arrive, when nothing
    that was sent is read, or at once when there are too many. uvicorn itself limits the time
    between two requests."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # uvicorn would answer 503, which takes memory for a client that may never read.
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) >= limit:
            transport.abort()
            return
        self._within(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        # uvicorn has no hook for a request that has arrived, but it has a new cycle then.
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._end_limit()  # a request has arrived; read_body limits its body

    def pause_writing(self) -> None:
        super().pause_writing()
        self._within(STALLED_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_limit()

    def _within(self, seconds: float) -> None:
        self._end_limit()
        self._limit = self.loop.call_later(seconds, self.transport.abort)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def max_connections() -> int:
    """Return the number of connections that leaves half of the process's file descriptors to
    the kubelet."""
    # Plugins and PodResources clients need descriptors of the same process.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // 2
    return max(4, min(_MOST_CONNECTIONS, limit))


# -- listening ---------------------------------------------------------------------------


def listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    """Listen on a socket that only its owner can connect to, until the stack closes. Raises
    StartError."""
    try:
        sockets.prepare(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(listener.close)
        # Bound under another name and renamed when it is ready. At the path there is never a
        # socket that others can open, or one on which nothing listens.
        with sockets.published(path, mode=_MODE) as private:
            listener.bind(str(private))
            private.chmod(_MODE)  # before it is published, so that no other user can connect
            listener.listen(_BACKLOG)
            identity = sockets.FileIdentity.of(private)
    except (OSError, PodResourcesError) as error:
        text = (isinstance(error, OSError) and error.strerror) or str(error)
        raise StartError(text) from error
    # Only if it is the same file: another server may have replaced it.
    stack.callback(sockets.remove_if_same, path, identity)
    return listener


def listen_tcp(address: TcpAddress, stack: contextlib.ExitStack) -> socket.socket:
    """Listen on that address until the stack closes. Raises StartError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (address.host, address.port), family=family, backlog=_BACKLOG
        )
    except OSError as error:
        raise StartError(f"cannot listen on {address}: {_reason(error)}") from error
    stack.callback(listener.close)
    return listener


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program uses it: choose another port (0 for any free one)"
    return os.strerror(error.errno) if error.errno else str(error)


def new_token(path: Path, stack: contextlib.ExitStack) -> str:
    """Return a new token, and write it to a file that only its owner can read, until the stack
    closes. Raises StartError."""
    token = secrets.token_urlsafe(32)
    try:
        # Removed and created exclusively: a file, or a link, of another user is never written.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with open(descriptor, "w") as file:  # noqa: PTH123  # a descriptor
            stack.callback(path.unlink, missing_ok=True)
            file.write(token + "\n")
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from error
    return token
