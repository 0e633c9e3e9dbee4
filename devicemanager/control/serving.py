"""A server of HTTP on one thread with a loop of its own, beside the kubelet."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import attrs
import uvicorn
from starlette.types import Receive, Scope, Send

from devicemanager.control.connection import Connection
from devicemanager.control.limits import IDLE_SECONDS, max_connections
from devicemanager.control.listening import BACKLOG
from devicemanager.core.errors import RequestError, StartError, StopError

__all__ = ["Certificate", "HttpService", "Prepared", "Serving"]

_LAST_WORDS: Final = 2
"""Seconds that answers may take which are under way when the server stops."""


class HttpService(Protocol):
    """What answers the requests of one server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """The server ends: let streams and waits come to their ends."""


@attrs.frozen
class Certificate:
    """Files in PEM form: the certificate, with those that vouch for it, and its key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise ValueError, by name, for files that cannot be served with. OpenSSL names none."""
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
            if not is_locked:  # else whoever starts the server is asked for the password
                text = f"{self.certificate} and {self.key} are no certificate and its key"
                raise ValueError(f"{text} in PEM form") from None


@attrs.frozen
class Prepared:
    """What a server is about to serve, and where."""

    listeners: list[socket.socket]
    make: Callable[[], HttpService]
    """Makes what answers, on the server's loop."""
    certificate: Certificate | None = None
    """None: nothing is encrypted."""


class Serving(abc.ABC):
    """Starts and stops a server. A context manager; or call ``start`` and ``stop``."""

    what: str
    """What is served, in errors."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._clean_up = contextlib.ExitStack()

    @abc.abstractmethod
    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        """Listen. What is to be undone at the end goes on the stack. Raises StartError."""

    @property
    def is_serving(self) -> bool:
        """Whether it has been started, and not stopped."""
        return self._thread is not None

    def start(self) -> Self:
        """Serve. Raises StartError if that is not possible here, and RequestError if it runs
        already."""
        if self.is_serving:
            raise RequestError(f"{self.what} is served already: stop it first")
        with contextlib.ExitStack() as stack:
            try:
                prepared = self._prepare(stack)
            except StartError as error:
                raise StartError(f"{self.what} cannot start: {error}") from error
            server = _Server(prepared)
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
        """Stop serving: streams end, waits give up, other answers may take two seconds.
        Stopping twice does nothing. Raises StopError if it had ended by a mistake."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
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
    """uvicorn on a thread: no signals, no log, and no tick ten times a second."""

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
                http=Connection,
                ws="none",
                interface="asgi3",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                limit_concurrency=max_connections() + 1,  # Connection closes what is more
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=_LAST_WORDS,
            )
        )

    async def _answer(self, scope: object, receive: object, send: object) -> None:
        assert self._service is not None
        await self._service(scope, receive, send)  # type: ignore[arg-type]  # uvicorn's own

    def run_all(self) -> None:
        """The thread: serve until ``end``."""
        try:
            asyncio.run(self._all())
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
        self.ready.set()
        await self._ending.wait()
        # Take no more, and let those be known that were just taken: asyncio (3.11) loses a
        # connection whose listener is closed between the two.
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        for _ in range(2):
            await asyncio.sleep(0)
        assert self._service is not None
        self._service.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def end(self) -> None:
        """Stop serving soon. From any thread."""
        self._loop.call_soon_threadsafe(self._ending.set)
