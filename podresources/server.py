"""Serve the PodResources API over gRPC on a unix socket."""

# gRPC does not decode requests or encode responses here: it gets and returns bytes. Therefore a
# cached response is sent without any work per pod.

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
"""Number of calls that the kubelet accepts in a burst. ``DEFAULT_QPS`` is the limit of calls per
second (``DefaultQPS``, ``DefaultBurstTokens``, pkg/kubelet/apis/podresources)."""

UNREAD_TEXT = "too many responses wait for clients that do not read them: retry later"

_log = logging.getLogger(__name__)


class PodResourcesServer:
    """Server of PodResources v1 and v1alpha1 with the data of a :class:`Source`.

    ``qps`` is the limit of calls per second over all methods; None disables it. ``burst`` is the
    number of calls accepted without delay. ``clock`` returns seconds and is used only for the rate
    limit. ``profile`` selects the methods and fields of a kubelet version; by default all are
    served. ``on_error`` is called with each exception of the source, on the thread of the call; by
    default exceptions are logged. ``max_workers`` is the number of threads. ``answer`` is called
    for each accepted call and returns the response; the default is ``Method.answer``.
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
        """Start to listen. The socket's directory is created if needed, and a stale socket is
        replaced.

        Raises SocketPathError for an invalid path, SocketInUse if another process is listening, and
        ServeError for other problems.
        """
        with self._lock:
            if self._running is not None:
                raise ServeError(f"already serving on {self.socket_path}: stop the server first")
            sockets.prepare(self.socket_path)
            backlog = Backlog(time.monotonic)
            self._running = RunningServer.start(
                _Handlers(self._service, backlog),
                self.socket_path,
                self._max_workers,
                "podresources",
                backlog,
            )

    def stop(self, grace: float = 0.2) -> None:
        """Remove the socket, stop listening, and wait up to ``grace`` seconds for calls in
        progress.

        Returns when all threads have stopped. A second call does nothing, and ``start`` can be
        called again. Raises OSError if the socket cannot be removed; the server is stopped
        nevertheless.
        """
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.stop(grace)

    def counters(self) -> Mapping[tuple[str, str], int]:
        """Return the counts of calls and failures since the server object was created.

        The keys are pairs of metric name and API version.
        """
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
    """Table of gRPC handlers by method path."""

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
