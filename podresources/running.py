"""A gRPC server on a unix socket. The servers of both APIs of this package use it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, Self

import grpc

from podresources import sockets
from podresources.accepted import Readers
from podresources.backlog import Backlog
from podresources.errors import ServeError
from podresources.service import Rejection

_CONCURRENT_CALLS = 4096
_OPTIONS = (
    # Limits the open calls per client connection. Further calls wait in the client.
    ("grpc.max_concurrent_streams", 64),
    # A client whose flow control window is full, and that does not answer pings, is disconnected.
    # Connections without calls are not pinged. If the client's socket is full, no ping can be sent:
    # ``Readers`` disconnects such clients.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class RunningServer:
    """Listening gRPC server and the socket file that it owns."""

    def __init__(
        self, server: grpc.Server, executor: ThreadPoolExecutor, readers: Readers, path: Path
    ) -> None:
        self._server = server
        self._executor = executor
        self._readers = readers
        self._path = path
        self._identity = sockets.FileIdentity.of(path)

    @classmethod
    def start(
        cls,
        handlers: grpc.GenericRpcHandler,
        path: Path,
        max_workers: int,
        name: str,
        backlog: Backlog | None = None,
    ) -> Self:
        """Start a server that listens on ``path``. ``name`` is the prefix of thread names.
        ``backlog`` limits the unread responses of ``handlers``; None for no limit. Raises
        ServeError."""
        readers = Readers(path)
        if backlog is not None:
            backlog.disconnect = readers.disconnect
        executor = ThreadPoolExecutor(max_workers, thread_name_prefix=name)
        server = grpc.server(
            executor,
            handlers=[readers.handler(handlers)],
            options=[*_OPTIONS, *sockets.server_options()],
            maximum_concurrent_rpcs=_CONCURRENT_CALLS,
        )
        try:
            with sockets.published(path) as private:
                readers.bound = private
                _listen(server, private)
                server.start()
            return cls(server, executor, readers, path)
        except BaseException:
            readers.stop()
            server.stop(0).wait()
            executor.shutdown()
            raise

    def stop(self, grace: float) -> None:
        """Stop listening, and wait up to ``grace`` seconds for calls to end."""
        # Remove the socket first, so that new clients fail immediately instead of waiting. Remove
        # it only if the path still has this server's file.
        try:
            sockets.remove_if_same(self._path, self._identity)
        finally:
            self._readers.stop()
            self._server.stop(grace).wait()
            self._executor.shutdown()


def abort(context: grpc.ServicerContext, rejection: Rejection) -> NoReturn:
    """End a gRPC call with the code and text of ``rejection``."""
    context.abort(grpc.StatusCode[rejection.code], rejection.text)


def _listen(server: grpc.Server, path: Path) -> None:
    try:
        server.add_insecure_port(sockets.target(path))
    except RuntimeError as error:
        raise ServeError(f"cannot listen in {path.parent}: {error}") from error
