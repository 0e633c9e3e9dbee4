"""The Registration service on the kubelet's own socket.

Theory of operation. Since v1.25 the kubelet responds to Register after it has dialed the
plugin, which can take 10 seconds. If every such call used a gRPC worker thread, a few slow plugins
would block all others. Therefore ``_register`` starts a task on the registrar's event loop and
returns, and ``_answer`` sends the response when the task is done (``_AnsweredLater``). Before
v1.25 the response is sent after the version and the resource name are checked. The plugin is then
connected in the background.

A response takes three steps. ``_answer`` converts the task's result or error to a response. An
injected fault may delay the response or drop its connection (``_with_faults``). A short-lived
thread sends the response, because a client that does not read would block the sender.

Callers are untrusted. Texts in rejections and in the call log are cut, and the status must fit
into gRPC's metadata limit. The request message, which can have 4 MB, is released before the plugin
is dialed.

The socket gets its public name only when the server listens and everything else is ready, so a
plugin that sees ``kubelet.sock`` can register immediately.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.parse
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
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
from devicemanager.kubelet.registration.fault_injection import note
from devicemanager.kubelet.registration.registrar import (
    STOPPING,
    Registrar,
    RegistrationRejected,
    shown,
)
from podresources import accepted, sockets
from podresources.errors import PodResourcesError
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

implements(
    InjectionPoint.REGISTER, {Effect.REJECT_REGISTER, Effect.DELAY_REGISTER, Effect.CUT_REGISTER}
)

MAX_FILE_NAME = 255
_GRACE = 0.5
_GAVE_UP = "the plugin gave up the call"
_WORKERS = 4
_LONGEST_STATUS = 4096
"""Maximum size of a rejection's text in bytes, percent-encoded as gRPC sends it. With more than
8 KiB of metadata, the client would get an error of gRPC instead."""

# gRPC rejects calls at random when about 1,000 of them are pending.
_OPTIONS = (
    ("grpc.server_max_pending_requests", 10_000),
    ("grpc.server_max_pending_requests_hard_limit", 20_000),
    # Limits the open calls per connection, because gRPC stores calls whose client does not read.
    # Further calls wait in the client.
    ("grpc.max_concurrent_streams", 16),
    # Idle connections are closed, so that a flood of them cannot exhaust the descriptors. A plugin
    # connects only to register, and can reconnect.
    ("grpc.max_connection_idle_ms", 5_000),
)

Send = Callable[[dp.Empty | None], None]
"""Function that sends a response to the plugin. With None instead of a response, it ends the
RPC."""


def _nothing() -> None:
    pass


def endpoint_problem(name: str) -> str | None:
    """Return the error text for an invalid ``RegisterRequest.endpoint``; None if it is valid.

    A valid endpoint is a file name without a directory, of at most 255 bytes. The kubelet accepts
    any path; this bug is quirk Q23.
    """
    if not name:
        return "endpoint is empty: expected the file name of a socket"
    if "/" in name or "\0" in name or name in {".", ".."}:
        return f"endpoint {shown(name)!r} is not a file name: use a socket in the plugin directory"
    if len(name.encode()) > MAX_FILE_NAME:
        return f"endpoint name too long: {len(name.encode())} bytes, limit {MAX_FILE_NAME}"
    return None


class RegistrationServer:
    """Server of the Registration service on ``kubelet.sock``."""

    def __init__(self, registrar: Registrar, socket: Path, on_error: OnError) -> None:
        self._registrar = registrar
        self._socket = socket
        self._on_error = on_error
        self._identity: sockets.FileIdentity | None = None
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that connect plugins after the response to Register. They are stored here, because
        asyncio has only weak references to tasks."""
        self._readers = accepted.Readers(socket)
        # A few threads are enough, because a handler only starts a task.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        self._server = grpc.server(self._pool, options=[*_OPTIONS, *sockets.server_options()])
        service, method = dp_grpc.REGISTER.strip("/").split("/")
        handlers = {method: _AnsweredLater(self._register).handler()}
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server.add_generic_rpc_handlers((self._readers.handler(generic),))

    def start(self, before_published: Callable[[], object] = _nothing) -> None:
        """Start listening and publish the socket.

        ``before_published`` is called before plugins can see the socket, and may block. Raises
        StartError, with the kubelet's text, if the server cannot start.
        """
        try:
            # The socket is bound under a private name, and renamed when the server works.
            with sockets.published(self._socket) as private:
                self._readers.bound = private
                self._server.add_insecure_port(sockets.target(private))
                self._server.start()
                before_published()
            self._identity = sockets.FileIdentity.of(self._socket)
        except (PodResourcesError, RuntimeError, OSError) as error:
            text = self._registrar.behaviour.listen_failed
            raise StartError(text.format(error=error)) from error

    def stop(self) -> None:
        """Stop listening and remove the socket; calls in progress are cut off.

        Raises OSError if the socket cannot be removed. The server has stopped in this case, too.
        """
        try:
            # Removed only if it is the same file: another kubelet may have replaced the socket.
            sockets.remove_if_same(self._socket, self._identity)
        finally:
            self._readers.stop()
            # Wait for responses in flight: for a call that is cut off, gRPC prints a line on the
            # plugin's standard error.
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
            # Called at each end of the call; it only has an effect before the response.
            context.add_callback(partial(call.failed, "Canceled", _GAVE_UP))
        fired = self._fired(resource, request.endpoint, call)
        # The task does not get the request, which can have 4 MB, because it can wait for long.
        options = PluginOptions(
            request.options.pre_start_required,
            request.options.get_preferred_allocation_available,
        )
        task = self._check_and_connect(resource, request.version, request.endpoint, options, fired)
        try:
            future = self._registrar.run(task)
        except (OSError, RuntimeError) as error:
            return self._reject(f"the kubelet cannot dial the plugin: {error}", call, context, send)

        def answer(done: Future[EndpointId | None]) -> None:
            self._answer(done, call, context, send)

        future.add_done_callback(self._with_faults(answer, fired) if fired else answer)

    def _fired(
        self, resource: ResourceName, endpoint: str, call: CallInProgress | None
    ) -> tuple[Fired, ...]:
        faults = self._registrar.faults
        if not faults.armed:
            return ()
        fired = faults.at(InjectionPoint.REGISTER, FaultContext(resource, endpoint))
        note(fired, call)
        return fired

    def _with_faults(
        self, answer: Callable[[Future[EndpointId | None]], None], fired: tuple[Fired, ...]
    ) -> Callable[[Future[EndpointId | None]], None]:
        """Return a callback that applies injected faults to the response and then sends it."""

        def later(done: Future[EndpointId | None]) -> None:
            drop = first(fired, Effect.CUT_REGISTER)
            if drop is not None and drop["when"] == "after":
                accepted.disconnect(self._readers.bound)
            delay = first(fired, Effect.DELAY_REGISTER)
            if delay is None:
                return answer(done)
            delay.hold().on_release(lambda: answer(done))

        return later

    async def _check_and_connect(
        self,
        resource: ResourceName,
        version: str,
        endpoint: str,
        options: PluginOptions,
        fired: tuple[Fired, ...],
    ) -> EndpointId | None:
        """Check and connect a plugin, and return the number of its registration.

        Up to v1.24 the plugin is connected in the background, and the result is None.
        """
        if fired:
            await self._inject_rejection(resource, fired)
        registrar = self._registrar
        await registrar.check(resource, (version,), self._socket.parent / endpoint)
        # Up to v1.24 the kubelet uses the options in the request. Later versions call
        # GetDevicePluginOptions.
        given = options if registrar.behaviour.options_of_request else None
        connecting = self._connect(resource, endpoint, given)
        if registrar.behaviour.register_waits:
            return await connecting
        task = asyncio.create_task(self._connect_later(connecting))
        # Without this reference, a running task could be garbage collected.
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return None

    async def _connect_later(self, connecting: Coroutine[Any, Any, EndpointId]) -> None:
        """Connect a plugin that already has its response to Register.

        A failure is only reported as an event, as in kubelets up to v1.24 (``addEndpoint``).
        """
        try:
            endpoint = await connecting
            await self._registrar.in_thread(self._registrar.answered, endpoint)
        except RegistrationRejected:
            pass  # reported as an event
        except Exception as error:
            self._on_error(error)

    async def _connect(
        self, resource: ResourceName, endpoint: str, options: PluginOptions | None
    ) -> EndpointId:
        problem = endpoint_problem(endpoint)
        if problem is not None and "Q23" not in self._registrar.quirks:
            text = messages.DIAL_FAILED.format(error=problem)
            raise await self._registrar.report(resource, RegistrationRejected(text))
        socket = self._socket.parent / endpoint
        return await self._registrar.connect(resource, socket, socket.name, options=options)

    async def _inject_rejection(self, resource: ResourceName, fired: tuple[Fired, ...]) -> None:
        """Raise RegistrationRejected if a fault rejects Register or cuts its connection."""
        fault = first(fired, Effect.REJECT_REGISTER, Effect.CUT_REGISTER)
        if fault is None:
            return
        if fault.effect is Effect.REJECT_REGISTER:
            rejected = RegistrationRejected(fault["text"], str(fault), fault["code"])
            raise await self._registrar.report(resource, rejected)
        if fault.effect is Effect.CUT_REGISTER and fault["when"] == "before":
            accepted.disconnect(self._readers.bound)
            rejected = RegistrationRejected("the connection was cut", str(fault))
            raise await self._registrar.report(resource, rejected)

    def _answer(
        self,
        done: Future[EndpointId | None],
        call: CallInProgress | None,
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        try:
            endpoint = done.result()
        # The kubelet is stopping: the loop has cancelled the task.
        except CancelledError:
            return self._reject(STOPPING, call, context, send)
        except RegistrationRejected as rejected:
            return self._reject(str(rejected), call, context, send, rejected.code)
        except BaseException as error:
            self._on_error(error)
            return self._reject(f"a bug of the device manager: {error!r}", call, context, send)
        if call is not None:
            call.answered(b"")
        # On a separate thread: a client that does not read its response must not block others.
        thread = threading.Thread(
            target=self._accept, args=(endpoint, send), name="registration", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread can be started
            self._accept(endpoint, send)

    def _accept(self, endpoint: EndpointId | None, send: Send) -> None:
        # The first call sends the response, the second ends the stream.
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
    """Encode a Register request for the call log, with long texts cut."""
    return dp.RegisterRequest(
        version=shown(request.version),
        endpoint=shown(request.endpoint),
        resource_name=shown(request.resource_name),
        options=request.options if request.HasField("options") else None,
    ).SerializeToString()


def _fitting(text: str) -> str:
    """Cut a text so that it fits into a gRPC status."""
    text = text.encode(errors="replace").decode()  # a path can contain invalid UTF-8
    if len(urllib.parse.quote(text)) <= _LONGEST_STATUS:
        return text
    # A character can need 12 bytes when it is percent-encoded.
    return text[: _LONGEST_STATUS // 12] + "..."


class _AnsweredLater:
    """Handler of Register that returns before it has sent its response.

    gRPC supports this only for methods with streaming responses, such as Watch of its health
    service. A stream with one response is the same on the wire as the response of a unary method.
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
        behavior: Any = self  # the stubs know only handlers that return their responses
        return grpc.unary_stream_rpc_method_handler(
            behavior, dp.RegisterRequest.FromString, dp.Empty.SerializeToString
        )
