"""Scripted kubelet: serves PodResources on a socket, logs every call, and returns errors on demand.

The package ``podresources`` creates the responses, with the encoding, rate limit and error texts of
a kubelet. A check replaces the content, or the function that returns responses.

A *mark* stands for a moment: it is the number of calls that the kubelet had received by then. A
check uses it to get only later calls.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import grpc

from devicemanager.conformance.clients.content import Content
from devicemanager.conformance.outcomes import CheckError
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory
from podresources import MemorySource, Method, Rejection, TokenBucket, sockets
from podresources.counters import Counters
from podresources.running import RunningServer, abort
from podresources.server import DEFAULT_BURST, DEFAULT_QPS
from podresources.service import Service

__all__ = ["ClientCall", "Respond", "ScriptedKubelet", "respond"]

Respond = Callable[[Method, bytes], bytes]
"""Function from method and request to response. It raises ``Rejection`` to make the call fail."""

# A call that hangs occupies a worker, and the client may make several such calls (C15).
_WORKERS = 32
_CONNECTED = "03"
"""State of a connected socket in /proc/net/unix (``SS_CONNECTED``)."""


def respond(method: Method, request: bytes) -> bytes:
    """Return a response with the pods and resources that ``ScriptedKubelet.show`` set last.

    This is the default of ``ScriptedKubelet.respond``.
    """
    return method.answer(request)


@attrs.define(eq=False)
class ClientCall:
    """A call of the client. ``code``, ``ended`` and ``details`` are set when the call ends."""

    time: float
    """Monotonic time in seconds at which the call arrived."""
    rpc: str
    """Name of the method, such as ``List``."""
    version: str
    """Version of the PodResources API, such as ``v1``. For a call of another gRPC service, the name
    of that service."""
    request: bytes = b""
    """Encoded request. Set before ``code``; empty for a method that is not served."""
    code: str | None = None
    """Name of the gRPC status, ``OK`` for a response; None before the call has ended."""
    ended: float | None = None
    """Monotonic time in seconds at which the call ended, with a response, an error or a
    cancellation by the client. None while it is in progress."""
    details: str = ""
    """Error text in the response; empty for a successful call and for a method that is not
    served."""
    hangs: bool = False
    """True if the kubelet leaves the call without a response on purpose
    (``ScriptedKubelet.hang``)."""

    def __str__(self) -> str:
        code = "in progress" if self.code is None else self.code
        return f"{self.version} {self.rpc}: {code}"


class ScriptedKubelet:
    """PodResources server in a new directory. Thread-safe."""

    def __init__(self) -> None:
        """Create the kubelet's directory. Raises CheckError if that fails. ``start`` starts the
        server."""
        try:
            self.root = short_directory()
        except NoDirectory as error:
            raise CheckError(f"{error}: {ADVICE}") from error
        # As on a node, the directory exists before the socket.
        self.socket = self.root / "pod-resources" / "kubelet.sock"
        self.socket.parent.mkdir()
        self.respond: Respond = respond
        """Function that responds to each call that the rate limit admits. A check can replace
        it."""
        self.versions = {"v1", "v1alpha1"}
        """Versions of the API that are served."""
        # It limits the rate of calls. The responses are those of ``_shown``. The lambda reads
        # ``respond`` at each call, so a check can replace it while the server runs.
        self._service = _service(
            MemorySource(),
            limiter=TokenBucket(DEFAULT_QPS, DEFAULT_BURST),
            answer=lambda method, request: self.respond(self._shown[method.path], request),
        )
        self._methods = {method.path: method for method in self._service.methods()}
        self._shown: Mapping[str, Method] = self._methods
        """The methods of PodResources, by gRPC path. They respond with the pods and resources of
        the latest ``show``."""
        self._lock = threading.Lock()
        self._running: RunningServer | None = None
        self._calls: list[ClientCall] = []
        self._released = threading.Event()
        # ``Respond`` functions do not get the ClientCall, so the thread stores it for ``hang``.
        self._answering = threading.local()

    # -- what a check changes ----------------------------------------------------------

    def start(self) -> None:
        """Begin to serve on the socket."""
        sockets.prepare(self.socket)
        self._running = RunningServer.start(_Handlers(self), self.socket, _WORKERS, "client-check")

    def stop(self) -> None:
        """Remove the socket and close all connections. A second call does nothing."""
        running, self._running = self._running, None
        if running is not None:
            running.stop(0.0)

    def close(self) -> None:
        """Stop, and remove the directory. The kubelet cannot be started again."""
        # First: ``stop`` waits for the worker threads, and calls in ``hang`` occupy some of them.
        self._released.set()
        with contextlib.suppress(OSError):
            self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def show(self, content: Content) -> None:
        """Respond with these pods and allocatable resources from now on."""
        methods = _service(MemorySource(*content)).methods()
        # On a busy machine, the encoding of a huge response takes longer than many clients wait.
        # Until it is done, calls get the previous content.
        # Get is left out: its response depends on the request, and has only one pod.
        for method in methods:
            if method.kind != "get":
                method.answer(b"")
        self._shown = {method.path: method for method in methods}

    def hang(self, method: Method, request: bytes) -> bytes:
        """Block until the kubelet is closed, then raise ``Rejection`` with the code UNAVAILABLE.

        If a check assigns this method to ``respond``, no call gets a response.
        """
        self._answering.call.hangs = True
        self._released.wait()
        raise Rejection("UNAVAILABLE", "the kubelet stops")

    # -- what a check reads ------------------------------------------------------------

    def mark(self) -> int:
        """Return a mark of the present time: the number of calls so far."""
        with self._lock:
            return len(self._calls)

    def calls(self, since: int = 0) -> list[ClientCall]:
        """Return the calls after the mark ``since``, in order; by default all calls."""
        with self._lock:
            return self._calls[since:]

    def connections(self) -> int:
        """Return the number of open connections to the socket; 0 if /proc/net/unix cannot be
        read."""
        # The server binds the socket under another name in the same directory.
        directory = str(self.root)
        count = 0
        with contextlib.suppress(OSError):
            for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
                fields = line.split(maxsplit=7)
                # Only the server's end of a connection has a path, so each counts once.
                if len(fields) == 8 and fields[7].startswith(directory):
                    count += fields[5] == _CONNECTED
        return count

    # -- calls -------------------------------------------------------------------------

    def handler(self, path: str) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return the gRPC handler for a call of the method ``path``; None if the method is not
        served. Add the call to the log in both cases."""
        service, _, rpc = path.lstrip("/").partition("/")
        version = service.partition(".")[0] if "PodResourcesLister" in service else service
        # Logged here, because gRPC itself responds to methods that are not served.
        call = ClientCall(time.monotonic(), rpc, version)
        with self._lock:
            self._calls.append(call)
        method = self._methods.get(path)
        if method is None or version not in self.versions:
            call.code, call.ended = "UNIMPLEMENTED", call.time
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(method, call, request, context)
        )

    def _answer(
        self, method: Method, call: ClientCall, request: bytes, context: grpc.ServicerContext
    ) -> bytes:
        def end() -> None:
            call.ended = time.monotonic()

        # gRPC returns False if the call has already ended.
        if not context.add_callback(end):
            end()
        self._answering.call = call
        call.request = request
        try:
            answer = self._service.answer(method, request)
        except Rejection as rejection:
            call.code, call.details = rejection.code, str(rejection)
            abort(context, rejection)
        call.code = "OK"
        return answer


def _service(source: MemorySource, **options: Any) -> Service:
    return Service(
        source,
        counters=Counters(),
        on_error=lambda error: None,
        **{"limiter": None, **options},
    )


class _Handlers(grpc.GenericRpcHandler):
    """Adapter through which a gRPC server finds the methods of a scripted kubelet."""

    def __init__(self, kubelet: ScriptedKubelet) -> None:
        self._kubelet = kubelet

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._kubelet.handler(handler_call_details.method)
