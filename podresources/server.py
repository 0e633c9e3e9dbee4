"""The PodResources server: gRPC around the service, on a unix socket."""

# Nothing is decoded or encoded by gRPC here: requests and responses are bytes, so a cached
# response is sent without any work per pod.

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from podresources import sockets
from podresources.backlog import Backlog
from podresources.counters import Counters
from podresources.errors import ServeError
from podresources.profile import ALL, Profile
from podresources.running import RunningServer, abort
from podresources.service import Answer, Method, Rejection, Service, TokenBucket

if TYPE_CHECKING:
    from podresources.source import Source

DEFAULT_QPS = 100.0
DEFAULT_BURST = 10
"""The kubelet's limits (``DefaultQPS``, ``DefaultBurstTokens``, pkg/kubelet/apis/podresources)."""

UNREAD_TEXT = "too many responses wait for clients that do not read them: retry later"

_log = logging.getLogger(__name__)


class PodResourcesServer:
    """Server of PodResources v1 and v1alpha1, with data from a source.

    ``qps``: calls per second over all methods; None disables the limit. ``burst``: calls that
    are accepted at once. ``clock``: seconds, for the limit only. ``profile``: methods and
    fields, which differ between kubelet versions; by default all. ``on_error``: receives the
    exceptions of the source on the thread where they happen; by default they are logged.
    ``max_workers``: number of threads. ``answer``: handles accepted calls in place of the
    service.
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
        # Serializes start and stop.
        self._lock = threading.Lock()
        self._running: RunningServer | None = None

    def start(self) -> None:
        """Start listening. Creates the directory if needed and replaces a stale socket.

        Raises SocketPathError (too long, relative), SocketInUse or ServeError.
        """
        with self._lock:
            if self._running is not None:
                raise ServeError(f"already serving on {self.socket_path}: stop the server first")
            sockets.prepare(self.socket_path)
            handlers = _Handlers(self._service, Backlog(time.monotonic))
            self._running = RunningServer.start(
                handlers, self.socket_path, self._max_workers, "podresources"
            )

    def stop(self, grace: float = 0.2) -> None:
        """Remove the socket, stop listening, and wait ``grace`` seconds for calls to end.

        Returns when all threads have ended. Idempotent; ``start`` can be called again. Raises
        OSError if the socket cannot be removed; the server has stopped nevertheless.
        """
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.stop(grace)

    def counters(self) -> Mapping[tuple[str, str], int]:
        """Return the counts by metric name and ``server_api_version``, since the object was
        created."""
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


class _Handlers(grpc.GenericRpcHandler):
    """Method paths and their handlers."""

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
            abort(context, rejection)
        if not backlog.add(context, len(answer)):
            abort(context, Rejection("RESOURCE_EXHAUSTED", UNREAD_TEXT))
        return answer

    return grpc.unary_unary_rpc_method_handler(behaviour)


def _log_error(error: Exception) -> None:
    _log.error("PodResources call failed", exc_info=error)
