"""The Registration service on the kubelet's own socket."""

from __future__ import annotations

import asyncio
import threading
import urllib.parse
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from devicemanager.core import messages
from devicemanager.core.api.codes import go_name
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import StartError
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.events.calls.call import Direction
from devicemanager.events.calls.log import CallInProgress
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import Fired, first
from devicemanager.kubelet.registration.connection import OnError
from devicemanager.kubelet.registration.fault_injection import drop_connections, note
from devicemanager.kubelet.registration.registrar import (
    STOPPING,
    Registrar,
    RegistrationRejected,
    shown,
)
from podresources import sockets
from podresources.errors import PodResourcesError
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

implements(
    InjectionPoint.REGISTER, {Effect.REJECT_REGISTER, Effect.DELAY_REGISTER, Effect.CUT_REGISTER}
)

MAX_FILE_NAME = 255
_GRACE = 0.5
_WORKERS = 4
_LONGEST_STATUS = 4096
"""Bytes of a rejection as gRPC sends it, percent-encoded. All metadata together may have 8 KiB,
or the client gets an error of gRPC's own instead."""

# grpc starts to turn calls away at random when about 1,000 wait to be taken up.
_OPTIONS = (
    ("grpc.server_max_pending_requests", 10_000),
    ("grpc.server_max_pending_requests_hard_limit", 20_000),
    # A plugin registers and goes. One that stays may connect again; a flood makes room.
    ("grpc.max_connection_idle_ms", 5_000),
)

Send = Callable[[dp.Empty | None], None]
"""Sends the answer, then None."""


def _nothing() -> None:
    pass


def endpoint_fault(name: str) -> str | None:
    """What is wrong with ``RegisterRequest.endpoint``, which must be a file name (Q23)."""
    if not name:
        return "endpoint is empty: name the socket's file"
    if "/" in name or "\0" in name or name in {".", ".."}:
        return f"endpoint {shown(name)!r} is not a file name: name a socket in the plugin directory"
    if len(name.encode()) > MAX_FILE_NAME:
        return f"endpoint of {len(name.encode())} bytes is no file name: {MAX_FILE_NAME} at most"
    return None


class RegistrationServer:
    """The Registration service on ``<device-plugins dir>/kubelet.sock``.

    From v1.25 on the kubelet answers Register after it has dialed the plugin, which may take
    10 s. No thread waits for that: the answer is sent when it is there.
    """

    def __init__(self, registrar: Registrar, socket: Path, on_error: OnError) -> None:
        self._registrar = registrar
        self._socket = socket
        self._on_error = on_error
        self._identity: sockets.FileIdentity | None = None
        self._background: set[asyncio.Task[None]] = set()
        """Plugins that were answered and are connected to now; asyncio keeps no task."""
        self._bound = socket  # by what name the kernel knows it
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        self._server = grpc.server(self._pool, options=[*_OPTIONS, *sockets.server_options()])
        service, method = dp_grpc.REGISTER.strip("/").split("/")
        handlers = {method: _AnsweredLater(self._register).handler()}
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server.add_generic_rpc_handlers((generic,))

    def start(self, before_published: Callable[[], object] = _nothing) -> None:
        """Listen. ``before_published`` is called before plugins can see the socket, and may
        wait. Raises StartError with the kubelet's text."""
        try:
            with sockets.published(self._socket) as private:
                self._bound = private
                self._server.add_insecure_port(sockets.target(private))
                self._server.start()
                before_published()
            self._identity = sockets.FileIdentity.of(self._socket)
        except (PodResourcesError, RuntimeError, OSError) as error:
            text = self._registrar.behaviour.listen_failed
            raise StartError(text.format(error=error)) from error

    def stop(self) -> None:
        """Stop listening and remove the socket; registrations under way are cut off. Raises
        OSError if the socket cannot be removed; the server has stopped all the same."""
        try:
            sockets.remove_if_same(self._socket, self._identity)
        finally:
            # Answers on their way get there. A call that is cut off at once makes gRPC write a
            # line to the plugin's standard error.
            self._server.stop(_GRACE).wait()
            self._pool.shutdown()

    def _register(
        self, request: dp.RegisterRequest, context: grpc.ServicerContext, send: Send
    ) -> None:
        resource = ResourceName(request.resource_name)
        recorder = self._registrar.recorder(resource, request.endpoint)
        call = None
        if recorder is not None:
            call = recorder.begin("Register", _recorded(request), Direction.TO_KUBELET)
        fired = self._fired(resource, request.endpoint, call)
        # Not the request itself, which may have 4 MB: somebody may wait for this long.
        options = PluginOptions(
            request.options.pre_start_required,
            request.options.get_preferred_allocation_available,
        )
        task = self._taken(resource, request.version, request.endpoint, options, fired)
        try:
            future = self._registrar.run(task)
        except (OSError, RuntimeError) as error:
            return self._reject(f"the kubelet cannot dial: {error}", call, context, send)

        def answer(done: Future[EndpointId | None]) -> None:
            self._answer(done, call, context, send)

        future.add_done_callback(self._held_up(answer, fired) if fired else answer)

    def _fired(
        self, resource: ResourceName, endpoint: str, call: CallInProgress | None
    ) -> tuple[Fired, ...]:
        faults = self._registrar.faults
        if not faults.armed:
            return ()
        fired = faults.at(InjectionPoint.REGISTER, FaultContext(resource, endpoint))
        note(fired, call)
        return fired

    def _held_up(
        self, answer: Callable[[Future[EndpointId | None]], None], fired: tuple[Fired, ...]
    ) -> Callable[[Future[EndpointId | None]], None]:
        """The answer with the faults that fired: later, or to nobody."""

        def later(done: Future[EndpointId | None]) -> None:
            drop = first(fired, Effect.CUT_REGISTER)
            if drop is not None and drop["when"] == "after":
                drop_connections(self._bound)
            held_up = first(fired, Effect.DELAY_REGISTER)
            if held_up is None:
                return answer(done)
            held_up.hold().then(lambda: answer(done))

        return later

    async def _taken(
        self,
        resource: ResourceName,
        version: str,
        endpoint: str,
        options: PluginOptions,
        fired: tuple[Fired, ...],
    ) -> EndpointId | None:
        """None if Register is answered before the plugin is connected to."""
        if fired:
            await self._reject_on_purpose(resource, fired)
        registrar = self._registrar
        await registrar.check(resource, (version,), self._socket.parent / endpoint)
        given = options if registrar.behaviour.options_of_request else None
        connecting = self._connect(resource, endpoint, given)
        if registrar.behaviour.register_waits:
            return await connecting
        task = asyncio.create_task(self._unheard(connecting))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return None

    async def _unheard(self, connecting: Coroutine[Any, Any, EndpointId]) -> None:
        """Connect to a plugin that has its answer already: up to v1.24 a failure was only
        logged (``addEndpoint``)."""
        try:
            endpoint = await connecting
            await self._registrar.in_thread(self._registrar.answered, endpoint)
        except RegistrationRejected:
            pass  # an event says so
        except Exception as error:
            self._on_error(error)

    async def _connect(
        self, resource: ResourceName, endpoint: str, options: PluginOptions | None
    ) -> EndpointId:
        fault = endpoint_fault(endpoint)
        if fault is not None and "Q23" not in self._registrar.quirks:
            text = messages.DIAL_FAILED.format(error=fault)
            raise await self._registrar.report(resource, RegistrationRejected(text))
        socket = self._socket.parent / endpoint
        return await self._registrar.connect(resource, socket, socket.name, options=options)

    async def _reject_on_purpose(self, resource: ResourceName, fired: tuple[Fired, ...]) -> None:
        """Raises RegistrationRejected if a fault says so."""
        fault = first(fired, Effect.REJECT_REGISTER, Effect.CUT_REGISTER)
        if fault is None:
            return
        if fault.effect is Effect.REJECT_REGISTER:
            rejected = RegistrationRejected(fault["text"], str(fault), fault["code"])
            raise await self._registrar.reject(resource, rejected)
        if fault.effect is Effect.CUT_REGISTER and fault["when"] == "before":
            drop_connections(self._bound)
            rejected = RegistrationRejected("the connection was cut", str(fault))
            raise await self._registrar.reject(resource, rejected)

    def _answer(
        self,
        done: Future[EndpointId | None],
        call: CallInProgress | None,
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        try:
            endpoint = done.result()
        except CancelledError:
            return self._reject(STOPPING, call, context, send)
        except RegistrationRejected as rejected:
            return self._reject(str(rejected), call, context, send, rejected.code)
        except BaseException as error:
            self._on_error(error)
            return self._reject(f"a bug of the device manager: {error!r}", call, context, send)
        if call is not None:
            call.answered(b"")
        # A client may reject to read: that must hold up nobody else.
        thread = threading.Thread(
            target=self._accept, args=(endpoint, send), name="registration", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # there is no thread left
            self._accept(endpoint, send)

    def _accept(self, endpoint: EndpointId | None, send: Send) -> None:
        send(dp.Empty())
        send(None)
        if endpoint is not None:
            self._registrar.answered(endpoint)

    @staticmethod
    def _reject(
        text: str,
        call: CallInProgress | None,
        context: grpc.ServicerContext,
        send: Send,
        code: str = "UNKNOWN",
    ) -> None:
        text = _fitting(text)
        status = grpc.StatusCode[code]
        if call is not None:
            call.failed(go_name(status.name), text)
        context.set_code(status)
        context.set_details(text)
        send(None)


def _recorded(request: dp.RegisterRequest) -> bytes:
    """The request as it is recorded: with texts of any length cut."""
    return dp.RegisterRequest(
        version=shown(request.version),
        endpoint=shown(request.endpoint),
        resource_name=shown(request.resource_name),
        options=request.options if request.HasField("options") else None,
    ).SerializeToString()


def _fitting(text: str) -> str:
    """As much of the text as fits into gRPC's status."""
    text = text.encode(errors="replace").decode()  # a path may hold what is no UTF-8
    if len(urllib.parse.quote(text)) <= _LONGEST_STATUS:
        return text
    # One character may become 12.
    return text[: _LONGEST_STATUS // 12] + "..."


class _AnsweredLater:
    """A handler that returns before it has answered.

    grpc has this for streams of answers only (its own health service uses it for Watch). One
    answer and the end of the stream are the same bytes as the answer of a unary method.
    """

    experimental_non_blocking = True

    def __init__(
        self, register: Callable[[dp.RegisterRequest, grpc.ServicerContext, Send], None]
    ) -> None:
        self._register = register

    def __call__(
        self, request: dp.RegisterRequest, context: grpc.ServicerContext, send: Send
    ) -> Any:
        self._register(request, context, send)

    def handler(self) -> grpc.RpcMethodHandler[dp.RegisterRequest, dp.Empty]:
        behavior: Any = self  # the stubs know only handlers that return their answers
        return grpc.unary_stream_rpc_method_handler(
            behavior, dp.RegisterRequest.FromString, dp.Empty.SerializeToString
        )
