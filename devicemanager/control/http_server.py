"""An HTTP server on a thread with its own event loop, beside the kubelet.

This module listens on sockets, starts and stops uvicorn, and closes connections that exceed a
limit. An ``HttpService``, created on the loop, responds to the requests. Limits:

* The headers of the first request must arrive within ``IDLE_SECONDS`` after the connection was
  opened. The headers of a later request must arrive within ``IDLE_SECONDS`` after the previous
  response. A part of the headers does not extend the time. The module ``request`` limits the time
  for the body.
* A connection can be upgraded from HTTP to another protocol (``UPGRADE``). Then the first message
  must arrive within ``IDLE_SECONDS``, and later ones within ``UPGRADED_SECONDS``. A part of a
  message does not extend the time. An upgraded connection always counts as idle.
* A client that reads nothing of a response for ``STALLED_SECONDS`` is disconnected.
* All listeners together can have ``max_connections()`` connections, so that the kubelet always has
  file descriptors left. Each listener has an equal share of these connections. Clients of one
  listener therefore cannot lock out clients of another.
* If the share of a listener is used up, a new connection replaces the connection that has been idle
  for longest. An idle connection has no request in progress. If none is idle, the new connection is
  closed.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import attrs
import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from devicemanager.control.access import TcpAddress
from devicemanager.core.errors import RequestError, StartError, StopError
from podresources import sockets
from podresources.errors import PodResourcesError

__all__ = [
    "UPGRADE",
    "Certificate",
    "HttpServerThread",
    "HttpService",
    "Prepared",
    "Upgraded",
    "listen_tcp",
    "listen_unix",
    "max_connections",
    "new_token",
]

IDLE_SECONDS: Final = 30.0
STALLED_SECONDS: Final = 30.0
UPGRADED_SECONDS: Final = 4 * 3600.0
"""Seconds without a complete message after which an upgraded connection is closed. This is also the
default of the kubelet's ``streamingConnectionIdleTimeout``."""
UPGRADE: Final = "devicemanager.upgrade"
"""Name of the ASGI extension that switches a connection to another protocol. The value of the
extension is a function with two arguments. The first one has the headers of the response. The
second one is a function that gets the connection's transport and returns an ``Upgraded``."""
_MOST_CONNECTIONS: Final = 2048
_LEAST_CONNECTIONS: Final = 4
_STOP_SECONDS: Final = 2
"""Seconds that responses in progress have to finish when the server stops."""
_BACKLOG: Final = 1024
_MODE: Final = 0o600


class HttpService(Protocol):
    """ASGI application that responds to the requests that one server receives."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """End all streams and waits. The server calls this method when it stops."""


class Upgraded(Protocol):
    """Handler of a connection that was upgraded from HTTP to another protocol."""

    def receive(self, data: bytes) -> bool:
        """Process bytes that the client has sent. Return True if these bytes complete a message."""

    def pause(self) -> None:
        """Stop sending until ``resume`` is called, because the client has stopped reading."""

    def resume(self) -> None:
        """Continue sending after ``pause``, because the client reads again."""


@attrs.frozen
class Certificate:
    """The PEM files of a TLS server: the certificate with its chain, and the private key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise ValueError if the files cannot be read, or are not a certificate and its key."""
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
            if not is_locked:  # OpenSSL asks for the key's password when the server starts
                text = f"{self.certificate} and {self.key} are not a certificate and its key"
                raise ValueError(f"{text} in PEM format") from None


@attrs.frozen
class Prepared:
    """Bound sockets, service and certificate of a server that is about to start."""

    listeners: list[socket.socket]
    make: Callable[[], HttpService]
    """Function that creates the service. It is called on the server's event loop."""
    certificate: Certificate | None = None
    """The certificate for HTTPS; None for unencrypted HTTP."""


class HttpServerThread(abc.ABC):
    """HTTP server on a thread of its own. Use it as a context manager, or call ``start`` and
    ``stop``."""

    what: str
    """The name of the served API or page, for error texts."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._clean_up = contextlib.ExitStack()

    @abc.abstractmethod
    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        """Open the listening sockets, and return them with the service to run. Callbacks added to
        ``stack`` run when the server stops. Raises StartError."""

    @property
    def is_serving(self) -> bool:
        """True between ``start`` and ``stop``."""
        return self._thread is not None

    def start(self) -> Self:
        """Start serving. Raises StartError if the server cannot start, and RequestError if it is
        already running."""
        if self.is_serving:
            raise RequestError(f"{self.what} is already served: stop the server first")
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
        """Stop serving. Streams end. A request that waits gets its timeout error immediately. Other
        responses have two seconds to finish.

        Idempotent. Raises StopError if the server had already stopped because of an error.
        """
        server, thread = self._server, self._thread
        # Cleared first, so that a second call does nothing while the first one still waits.
        self._server = self._thread = None
        if server is None or thread is None:
            return
        # The thread ends before the clean-up, so that no removed socket is still in use.
        server.end()
        thread.join()
        self._clean_up.close()
        if server.failure is not None:
            raise StopError(f"{self.what} has stopped after an error: {server.failure}")

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
    """A uvicorn server for a thread: without signal handlers, logging and periodic wake-ups."""

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
                # Unused features are off, because clients could reach their code.
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
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )

    async def _answer(self, scope: object, receive: object, send: object) -> None:
        assert self._service is not None
        await self._service(scope, receive, send)  # type: ignore[arg-type]  # uvicorn's own

    def run_all(self) -> None:
        """Serve until ``end`` is called. Runs on the server's thread."""
        try:
            asyncio.run(self._all())
        # SystemExit included, because uvicorn exits the process if it cannot listen.
        except BaseException as error:
            self.failure = f"{error}" or repr(error)
        finally:
            self.ready.set()

    async def _all(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._service = self._prepared.make()
        await self.serve(sockets=self._listeners)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Replaces uvicorn's function, which creates all connections in the same way. Here each one
        # knows its listener.
        most = max(_LEAST_CONNECTIONS, max_connections() // len(self._listeners))
        self.servers = [
            await self._loop.create_server(
                partial(
                    _Connection,
                    _Listener(most),
                    config=self.config,
                    server_state=self.server_state,
                    app_state={},
                ),
                sock=listener,
                ssl=self.config.ssl,
                # asyncio waits longer by default, and no other limit applies to a handshake.
                ssl_handshake_timeout=IDLE_SECONDS if self.config.ssl else None,
                backlog=_BACKLOG,
            )
            for listener in self._listeners
        ]
        self.started = True

    async def main_loop(self) -> None:
        # Replaces uvicorn's loop, which checks ten times a second whether it should end.
        self.ready.set()
        await self._ending.wait()
        # Stop accepting, and give the loop two turns for connections that were just accepted.
        # asyncio (3.11) loses a connection if its listener is closed between these turns.
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
        """Ask the server to stop, and return immediately. Thread-safe."""
        self._loop.call_soon_threadsafe(self._ending.set)


class _Listener:
    """The open connections of one listener. Their number is limited."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[_Connection] = set()
        self._idle: dict[_Connection, None] = {}
        """Connections without a request in progress, in the order in which they became idle."""

    def add(self, connection: _Connection) -> None:
        """Add a new connection. If there are too many, close the connection that has been idle for
        longest; this can be the new connection."""
        self._open.add(connection)
        self.set_idle(connection)
        if len(self._open) > self._most:
            longest = next(iter(self._idle))
            # Forgotten now, because asyncio reports the end of a connection later.
            self.remove(longest)
            # uvicorn would respond with 503, which uses memory for a client that may never read.
            longest.transport.abort()

    def set_idle(self, connection: _Connection) -> None:
        """Note that no request is in progress on a connection."""
        self._idle.pop(connection, None)
        self._idle[connection] = None

    def set_busy(self, connection: _Connection) -> None:
        """Note that a request is in progress on a connection."""
        self._idle.pop(connection, None)

    def remove(self, connection: _Connection) -> None:
        """Remove a connection that has ended."""
        self._open.discard(connection)
        self._idle.pop(connection, None)


class _Connection(H11Protocol):
    """A connection with time limits. It closes itself if a request does not arrive, or if the
    client does not read a response."""

    _arrival: asyncio.TimerHandle | None = None
    """Timer that closes the connection if the next request does not arrive. None while a request is
    in progress."""
    _reading: asyncio.TimerHandle | None = None
    """Timer that closes the connection if the client does not read a response. None while the
    client reads."""
    _upgraded: Upgraded | None = None
    """Handles received bytes after the connection was upgraded to another protocol."""

    def __init__(self, listener: _Listener, **settings: Any) -> None:
        super().__init__(**settings)
        self._listener = listener

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_request()
        self._listener.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.remove(self)
        self._end_arrival()
        self._end_reading()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        # uvicorn has no hook for a new request, but it creates a new cycle for each request.
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._listener.set_busy(self)
            self._end_arrival()  # read_body limits the time for the body
            # The task of the application has not run yet, so it sees the extension.
            extensions: Any = {UPGRADE: self._upgrade}
            self.scope["extensions"] = extensions

    def _upgrade(
        self,
        headers: Mapping[str, str],
        make: Callable[[asyncio.Transport], Upgraded],
    ) -> None:
        """Respond with 101 and these headers, and pass all further bytes to what ``make`` returns.
        The application must send no response."""
        self.cycle.disconnected = True
        switch = h11.InformationalResponse(status_code=101, headers=list(headers.items()))
        self.transport.write(self.conn.send(switch))
        self._upgraded = make(self.transport)
        self._wait_for_request()
        self._listener.set_idle(self)
        if self.flow.write_paused:  # the client has not read an earlier response
            self._upgraded.pause()
        else:
            self.flow.resume_reading()
        self.data_received(self.conn.trailing_data[0])

    def data_received(self, data: bytes) -> None:
        if self._upgraded is None:
            super().data_received(data)
            return
        if self._upgraded.receive(data):
            self._listener.set_idle(self)
            self._end_arrival()
            self._arrival = self.loop.call_later(UPGRADED_SECONDS, self.transport.abort)

    def shutdown(self) -> None:
        if self._upgraded is None:
            super().shutdown()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        # First, because uvicorn may begin with the next request, which has already arrived.
        if not self.transport.is_closing():
            self._wait_for_request()
            self._listener.set_idle(self)
        super().on_response_complete()
        # uvicorn's own limit would end with the first byte of the next request.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_reading()
        self._reading = self.loop.call_later(STALLED_SECONDS, self.transport.abort)
        if self._upgraded is not None:
            self.flow.pause_reading()
            self._upgraded.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_reading()
        if self._upgraded is not None:
            self.flow.resume_reading()
            self._upgraded.resume()  # may pause reading again

    def _wait_for_request(self) -> None:
        self._end_arrival()
        self._arrival = self.loop.call_later(IDLE_SECONDS, self.transport.abort)

    def _end_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def max_connections() -> int:
    """Return the maximum number of open connections of all listeners together. The limit leaves
    about half of the process's file descriptors to the kubelet."""
    # Plugins and PodResources clients need descriptors of the same process.
    return sockets.max_connections(2, least=_LEAST_CONNECTIONS, most=_MOST_CONNECTIONS)


# -- listening ---------------------------------------------------------------------------


def listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    """Return a listening unix socket that only its owner can connect to. It is closed and removed
    when ``stack`` closes. Raises StartError if listening is not possible."""
    try:
        sockets.prepare(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(listener.close)
        # Bound under another name, and renamed once it listens. The path never has a socket that
        # other users can open, or one without a listener.
        with sockets.published(path, mode=_MODE) as private:
            listener.bind(str(private))
            private.chmod(_MODE)  # before it is published, so that no other user can connect
            listener.listen(_BACKLOG)
            identity = sockets.FileIdentity.of(private)
    except PodResourcesError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error
    # Removed only if it is the same file: another server may have replaced it.
    stack.callback(sockets.remove_if_same, path, identity)
    return listener


def listen_tcp(address: TcpAddress, stack: contextlib.ExitStack) -> socket.socket:
    """Return a TCP socket that listens on ``address``. It is closed when ``stack`` closes. Raises
    StartError if listening is not possible."""
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
        return "another program uses this port: choose another one, or 0 for any free port"
    return os.strerror(error.errno) if error.errno else str(error)


def new_token(path: Path, stack: contextlib.ExitStack) -> str:
    """Return a new random token, and write it to a file that only its owner can read. The file is
    removed when ``stack`` closes. Raises StartError if it cannot be written."""
    token = secrets.token_urlsafe(32)
    try:
        # Removed and created exclusively, so that a file or link of another user is never written.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with open(descriptor, "w") as file:  # noqa: PTH123  # a descriptor
            stack.callback(path.unlink, missing_ok=True)
            file.write(token + "\n")
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from error
    return token
