"""The gRPC server of the Pods API, on a unix socket."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from podresources import sockets
from podresources.backlog import Backlog
from podresources.errors import ServeError
from podresources.pods_api.counters import PodsCounters
from podresources.pods_api.watcher import Watcher
from podresources.running import RunningServer, abort
from podresources.server import DEFAULT_BURST, DEFAULT_QPS, UNREAD_TEXT
from podresources.service import RateLimit, Rejection, TokenBucket

if TYPE_CHECKING:
    from podresources.pods_api.service import Intercept, PodsService, PodsSource

MOST_WATCHES = 256
"""Maximum number of open watches. Each watch needs a thread."""

TOO_MANY_TEXT = f"{MOST_WATCHES} watches are open: end one"

_OTHER_CALLS = 4
_log = logging.getLogger(__name__)


class PodsServer:
    """Server of the Pods API, with pods from a source.

    ``qps``: ListPods and GetPod calls per second; None disables the limit. ``burst``: calls that
    are accepted at once. ``clock`` returns seconds and is used only for the rate limit.
    ``on_error``: receives the exceptions of the source; by default they are logged. ``intercept``:
    called for each accepted call with the name of the method; it may wait, and may raise Rejection.
    """

    def __init__(
        self,
        source: PodsSource,
        socket_path: str | os.PathLike[str],
        *,
        qps: float | None = DEFAULT_QPS,
        burst: int = DEFAULT_BURST,
        clock: Callable[[], float] = time.monotonic,
        on_error: Callable[[Exception], object] | None = None,
        intercept: Intercept | None = None,
    ) -> None:
        self.socket_path = Path(socket_path)
        self._handlers = _Handlers(
            source,
            RateLimit(None if qps is None else TokenBucket(qps, burst), clock),
            on_error or _log_error,
            intercept or _accept,
        )
        # Serializes start and stop.
        self._lock = threading.Lock()
        self._running: RunningServer | None = None

    def start(self) -> None:
        """Start listening. Creates the directory if needed and replaces a stale socket.

        Raises SocketPathError for an invalid path, SocketInUse if another process is listening, and
        ServeError for other problems.
        """
        with self._lock:
            if self._running is not None:
                raise ServeError(f"already serving on {self.socket_path}: stop the server first")
            sockets.prepare(self.socket_path)
            self._handlers.open()
            self._running = RunningServer.start(
                self._handlers,
                self.socket_path,
                MOST_WATCHES + _OTHER_CALLS,
                "pods-api",
                self._handlers.backlog,
            )

    def stop(self, grace: float = 0.2) -> None:
        """Remove the socket, stop listening, end all watches, and wait up to ``grace`` seconds for
        calls to end.

        Returns when all threads have ended. Idempotent; ``start`` can be called again. Raises
        OSError if the socket cannot be removed; the server has stopped nevertheless.
        """
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                self._handlers.close()
                running.stop(grace)

    def counters(self) -> Mapping[tuple[str, str], int]:
        """Return the counts of calls since the server object was created.

        The keys are pairs of metric name and name of the gRPC status code.
        """
        return self._handlers.counters.snapshot()

    def end_watches(self) -> int:
        """End all watches with the error for slow clients. Return their number."""
        return self._handlers.end_watches()

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

    def __init__(
        self,
        source: PodsSource,
        limit: RateLimit,
        on_error: Callable[[Exception], object],
        intercept: Intercept,
    ) -> None:
        self._source = source
        self._limit = limit
        self._on_error = on_error
        self._intercept = intercept
        self.counters = PodsCounters()
        self.backlog = Backlog(time.monotonic)
        # Guards the fields below.
        self._lock = threading.Lock()
        self._service: PodsService | None = None
        self._watchers: set[Watcher] = set()
        self._is_open = False

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        match handler_call_details.method:
            case "/v1alpha1.Pods/ListPods":
                return grpc.unary_unary_rpc_method_handler(self._list)
            case "/v1alpha1.Pods/GetPod":
                return grpc.unary_unary_rpc_method_handler(self._get)
            case "/v1alpha1.Pods/WatchPods":
                return grpc.unary_stream_rpc_method_handler(self._watch)
        return None

    def open(self) -> None:
        """Accept watches."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """End all watches and accept no more."""
        with self._lock:
            self._is_open = False
        self.end_watches()

    def end_watches(self) -> int:
        """End all watches. Return their number."""
        with self._lock:
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.close()
        return len(watchers)

    def _methods(self) -> PodsService:
        # Created by the first call: a kubelet starts without the messages of this API.
        from podresources.pods_api.service import PodsService

        with self._lock:
            if self._service is None:
                self._service = PodsService(
                    self._source, self._limit, self._on_error, self._intercept, self.counters
                )
            return self._service

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return self._answer(context, lambda: self._methods().list(request))

    def _get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return self._answer(context, lambda: self._methods().get(request))

    def _answer(self, context: grpc.ServicerContext, ask: Callable[[], bytes]) -> bytes:
        try:
            answer = ask()
        except Rejection as rejection:
            abort(context, rejection)
        if not self.backlog.add(context, len(answer)):
            abort(context, Rejection("RESOURCE_EXHAUSTED", UNREAD_TEXT))
        return answer

    def _watch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        watcher = Watcher()
        # A client that leaves ends the wait for events. False if it has left already.
        if not context.add_callback(watcher.close):
            return
        try:
            self._add(watcher)
            # gRPC waits here while the client does not read; the queue fills meanwhile.
            yield from self._methods().watch(request, watcher, lambda: not context.is_active())
        except Rejection as rejection:
            abort(context, rejection)
        finally:
            self._source.unwatch(watcher)
            with self._lock:
                self._watchers.discard(watcher)

    def _add(self, watcher: Watcher) -> None:
        with self._lock:
            if len(self._watchers) >= MOST_WATCHES:
                raise Rejection("RESOURCE_EXHAUSTED", TOO_MANY_TEXT)
            self._watchers.add(watcher)
            is_open = self._is_open
        # If ``close`` ran before, it has not ended this watch, which would last until the grace
        # period is over.
        if not is_open:
            watcher.close()


def _accept(method: str) -> None:
    pass


def _log_error(error: Exception) -> None:
    _log.error("Pods API call failed", exc_info=error)
