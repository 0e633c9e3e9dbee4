"""The server of the control API: one thread with a loop of its own, beside the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvicorn

from devicemanager.control.access import Access, NotLoopback, TcpAddress
from devicemanager.control.app import Application
from devicemanager.control.connection import Connection
from devicemanager.control.limits import IDLE_SECONDS, max_connections
from devicemanager.core.errors import RequestError, StartError, StopError
from devicemanager.kubelet.mock import MockKubelet
from podresources import sockets
from podresources.errors import PodResourcesError

__all__ = ["SOCKET_NAME", "TOKEN_NAME", "ControlServer"]

SOCKET_NAME: Final = "control.sock"
TOKEN_NAME: Final = "control.token"
_MODE: Final = 0o600
_BACKLOG: Final = 1024
_LAST_WORDS: Final = 2
"""Seconds that answers may take which are under way when the server stops."""


class ControlServer:
    """Serves the control API of a kubelet on ``<root>/control.sock``, mode 0600.

    A context manager; or call ``start`` and ``stop``. The kubelet need not be running, and may
    be stopped and started meanwhile, but its directory has to be there.
    """

    def __init__(
        self, kubelet: MockKubelet, *, tcp: str | None = None, allow_remote: bool = False
    ) -> None:
        """``tcp`` is where to listen besides, such as ``127.0.0.1:8001`` (port 0: any): every
        request there needs the token of ``<root>/control.token`` (mode 0600, new with each
        start). ``allow_remote``: also on an address that other hosts reach; nothing is
        encrypted. Raises ValueError for an address that is none, or may not be used."""
        self._kubelet = kubelet
        self._tcp = None if tcp is None else TcpAddress.parse(tcp)
        if self._tcp is not None and not self._tcp.is_loopback and not allow_remote:
            raise NotLoopback(
                f"{self._tcp} can be reached from other hosts, and nothing is encrypted: use "
                "127.0.0.1"
            )
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._clean_up = contextlib.ExitStack()
        self.address: str | None = None
        """Where it listens on TCP while it runs, with the port that it got."""

    @property
    def socket_path(self) -> Path:
        """The unix socket."""
        return self._kubelet.root / SOCKET_NAME

    @property
    def token_path(self) -> Path:
        """The token for TCP, there while the server runs."""
        return self._kubelet.root / TOKEN_NAME

    def start(self) -> Self:
        """Serve. Raises StartError if that is not possible here, and RequestError if it runs
        already."""
        if self._thread is not None:
            raise RequestError("the control API is served already: stop it first")
        with contextlib.ExitStack() as stack:
            listeners = [_listen_unix(self.socket_path, stack)]
            access = None
            if self._tcp is not None:
                listener = _listen_tcp(self._tcp, stack)
                listeners.append(listener)
                host, port = listener.getsockname()[:2]
                address = TcpAddress(host, port)
                access = Access(address, _new_token(self.token_path, stack))
                self.address = str(address)
            server = _Server(self._kubelet, access, listeners)
            thread = threading.Thread(target=server.run_all, name="control API", daemon=True)
            thread.start()
            server.ready.wait()
            if server.failure is not None:
                thread.join()
                raise StartError(f"the control API cannot start: {server.failure}")
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
        self.address = None
        self._clean_up.close()
        if server.failure is not None:
            raise StopError(f"the control API has stopped, but: {server.failure}")

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

    def __init__(
        self,
        kubelet: MockKubelet,
        access: Access | None,
        listeners: list[socket.socket],
    ) -> None:
        self._kubelet = kubelet
        self._access = access
        self._listeners = listeners
        self._application: Application | None = None
        self.ready = threading.Event()
        self.failure: str | None = None
        super().__init__(
            uvicorn.Config(
                self._answer,
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
                backlog=_BACKLOG,
                limit_concurrency=max_connections() + 1,  # Connection closes what is more
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=_LAST_WORDS,
            )
        )

    async def _answer(self, scope: object, receive: object, send: object) -> None:
        assert self._application is not None
        await self._application(scope, receive, send)  # type: ignore[arg-type]  # uvicorn's own

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
        self._application = Application(self._kubelet, self._access)
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
        assert self._application is not None
        self._application.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def end(self) -> None:
        """Stop serving soon. From any thread."""
        self._loop.call_soon_threadsafe(self._ending.set)


def _listen_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    try:
        sockets.prepare(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(listener.close)
        with sockets.published(path, mode=_MODE) as private:
            listener.bind(str(private))
            private.chmod(_MODE)  # before anybody can connect
            listener.listen(_BACKLOG)
            identity = sockets.FileIdentity.of(private)
    except (OSError, PodResourcesError) as error:
        raise StartError(f"the control API cannot start: {_text(error)}") from error
    stack.callback(sockets.remove_if_same, path, identity)
    return listener


def _listen_tcp(address: TcpAddress, stack: contextlib.ExitStack) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (address.host, address.port), family=family, backlog=_BACKLOG
        )
    except OSError as error:
        text = f"cannot listen on {address}: {error.strerror}"
        raise StartError(f"the control API cannot start: {text}") from error
    stack.callback(listener.close)
    return listener


def _new_token(path: Path, stack: contextlib.ExitStack) -> str:
    """A new token, in a file of its own that only its owner may read."""
    token = secrets.token_urlsafe(32)
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with open(descriptor, "w") as file:  # noqa: PTH123  # a descriptor
            stack.callback(path.unlink, missing_ok=True)
            file.write(token + "\n")
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}"
        raise StartError(f"the control API cannot start: {text}") from error
    return token


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
