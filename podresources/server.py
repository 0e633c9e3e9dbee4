"""The PodResources server: gRPC around the service, on a unix socket."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import grpc

from podresources import sockets
from podresources.backlog import Backlog
from podresources.counters import Counters
from podresources.errors import ServeError
from podresources.profile import ALL, Profile
from podresources.service import Answer, Method, Rejection, Service, TokenBucket

if TYPE_CHECKING:
    from podresources.source import Source

DEFAULT_QPS = 100.0
DEFAULT_BURST = 10
"""The kubelet's limits (``DefaultQPS``, ``DefaultBurstTokens``, pkg/kubelet/apis/podresources)."""

UNREAD_TEXT = "too many answers wait for clients that do not read them: try again"

_CONCURRENT_CALLS = 4096
_OPTIONS = (
    # A client may have many calls open; further ones wait on its side of the connection.
    ("grpc.max_concurrent_streams", 64),
    # A client that does not read does not answer pings either. Its connection goes, and
    # with it what was written there. Connections without calls are left alone.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

_log = logging.getLogger(__name__)


class PodResourcesServer:
    """Serves v1 and v1alpha1 of PodResources from a source.

    ``qps``: calls per second over all methods; None switches the limit off.
    ``burst``: calls let in at once. ``clock``: seconds, for the limit only.
    ``profile``: what the v1 answers have, where kubelet versions differ; by default all.
    ``on_error``: told every
    exception of the source, on the thread that met it; without it they are logged.
    ``max_workers``: threads that answer. ``answer``: answers each call that was let in, in
    place of the service.
    """

    def __init__(
        self,
        source: Source,
        socket_path: str | os.PathLike[str],
        *,
        qps: float | None = DEFAULT_QPS,
        burst: int = DEFAULT_BURST,
        clock: Callable[[], float] = time.monotonic,
        profile: Profile = ALL,
        on_error: Callable[[Exception], object] | None = None,
        max_workers: int = 4,
        answer: Answer | None = None,
    ) -> None:
        self.socket_path = Path(socket_path)
        self._counters = Counters.of(profile)
        self._service = Service(
            source,
            limiter=None if qps is None else TokenBucket(qps, burst),
            clock=clock,
            profile=profile,
            counters=self._counters,
            on_error=on_error or _log_error,
            answer=answer,
        )
        self._max_workers = max_workers
        # Guards starting and stopping.
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def start(self) -> None:
        """Listen, making the directory if needed and replacing a socket nobody serves.

        Raises SocketPathError (too long, relative), SocketInUse, ServeError.
        """
        with self._lock:
            if self._running is not None:
                raise ServeError(f"already serving on {self.socket_path}: stop it first")
            sockets.prepare(self.socket_path)
            self._running = _Running.start(self._service, self.socket_path, self._max_workers)

    def stop(self, grace: float = 0.2) -> None:
        """Stop listening, give calls ``grace`` seconds to end, remove the socket.

        Returns when all threads are done. Stopping twice does nothing; start() works again.
        Raises OSError if the socket cannot be removed; the server has stopped all the same.
        """
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.stop(grace)

    def counters(self) -> Mapping[tuple[str, str], int]:
        """(metric name, ``server_api_version``) → count, since this object was made."""
        return self._counters.snapshot()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _Running:
    """One listening gRPC server and the socket file it owns."""

    def __init__(self, server: grpc.Server, executor: ThreadPoolExecutor, path: Path) -> None:
        self._server = server
        self._executor = executor
        self._path = path
        self._identity = sockets.FileIdentity.of(path)

    @classmethod
    def start(cls, service: Service, path: Path, max_workers: int) -> Self:
        executor = ThreadPoolExecutor(max_workers, thread_name_prefix="podresources")
        server = grpc.server(
            executor,
            handlers=[_Handlers(service, Backlog(time.monotonic))],
            options=[*_OPTIONS, *sockets.server_options()],
            maximum_concurrent_rpcs=_CONCURRENT_CALLS,
        )
        try:
            with sockets.published(path) as private:
                _listen(server, private)
                server.start()
            return cls(server, executor, path)
        except BaseException:
            server.stop(0).wait()
            executor.shutdown()
            raise

    def stop(self, grace: float) -> None:
        # The path goes first, and only while it is ours: a client that comes now learns
        # at once that nobody serves.
        try:
            sockets.remove_if_same(self._path, self._identity)
        finally:
            self._server.stop(grace).wait()
            self._executor.shutdown()


class _Handlers(grpc.GenericRpcHandler):
    """Method path → handler. Requests and responses stay bytes."""

    def __init__(self, service: Service, backlog: Backlog) -> None:
        self._handlers = {m.path: _handler(service, m, backlog) for m in service.methods()}

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handlers.get(handler_call_details.method)


def _handler(
    service: Service, method: Method, backlog: Backlog
) -> grpc.RpcMethodHandler[bytes, bytes]:
    def behaviour(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            answer = service.answer(method, request)
        except Rejection as rejection:
            _abort(context, rejection)
        if not backlog.add(context, len(answer)):
            _abort(context, Rejection("RESOURCE_EXHAUSTED", UNREAD_TEXT))
        return answer

    return grpc.unary_unary_rpc_method_handler(behaviour)


def _abort(context: grpc.ServicerContext, rejection: Rejection) -> NoReturn:
    context.abort(grpc.StatusCode[rejection.code], rejection.text)


def _listen(server: grpc.Server, path: Path) -> None:
    try:
        server.add_insecure_port(sockets.target(path))
    except RuntimeError as error:
        raise ServeError(f"cannot listen in {path.parent}: {error}") from error


def _log_error(error: Exception) -> None:
    _log.error("cannot answer a PodResources call", exc_info=error)
