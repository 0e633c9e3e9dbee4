"""Proxies between a kubelet and its plugins.

For each plugin that registers, a ``PluginProxy`` serves a socket in the kubelet's directory. It
forwards every call from there to the plugin's socket, byte for byte. Messages are not decoded. In
gRPC, a single response is a stream of one message. So one handler serves unary methods, streams and
methods of later API versions.

The recording shows which side ended a call, so ``forward`` must determine this side. It is the
receiver of the call (by a response or an error), the caller (by cancellation or deadline), or the
recorder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from devicemanager.core.api.codes import go_name
from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.recording.calls import OK, EndedBy, is_stream
from devicemanager.plugin.recording.writer import CallInProgress
from podresources import sockets
from podresources.errors import PodResourcesError
from podresources.sockets import FileIdentity

__all__ = [
    "CHANNEL_OPTIONS",
    "SERVER_OPTIONS",
    "AnyMethodHandler",
    "PluginProxies",
    "PluginProxy",
    "forward",
]

CHANNEL_OPTIONS = (
    *sockets.CHANNEL_OPTIONS,
    # No size limits: the kubelet must decide which messages are too large.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

_GRPC_METADATA = ("user-agent", "grpc-", "content-type", "te", ":")
"""Prefixes of the metadata that gRPC creates itself on each connection."""

_LONGEST_TIMEOUT = 365 * 86400.0
_DIAL_SECONDS = 10.0
"""Seconds that a kubelet waits until the socket of a registered plugin is served."""
_DIAL_PAUSE, _DIAL_TIMEOUT = 0.02, 1.0
"""Pause between two attempts to connect to a plugin, and timeout of an attempt, in seconds."""
_WORKERS = 32
_GRACE = 0.2

Respond = Callable[[str, bytes, grpc.ServicerContext], Iterator[bytes]]
"""Function that responds to a call, given the method's path, the request and the context."""

Begin = Callable[[str, bytes], CallInProgress | None]
"""Function that begins to record a call, given its method name and request.

It returns None if the call is not recorded.
"""


class AnyMethodHandler(grpc.GenericRpcHandler):
    """Handler that passes the calls of all methods to one function."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        def behaviour(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._respond(method, request, context)

        return grpc.unary_stream_rpc_method_handler(behaviour)


def forward(
    channel: grpc.Channel,
    method: str,
    request: bytes,
    context: grpc.ServicerContext,
    call: CallInProgress | None,
    receiver: Callable[[], EndedBy],
    caller: EndedBy,
) -> Iterator[bytes]:
    """Forward a caller's ``request`` on ``channel``, and the responses back to the caller.

    Metadata and status are forwarded, too. The call ends as soon as the caller cancels it or its
    deadline passes. ``call`` records the call; None: the call is not recorded.

    The recording shows which side ended the call:

    * the value of ``caller``, if the caller cancelled the call or its deadline passed;
    * the recorder, if ``channel`` is closed;
    * otherwise, the result of ``receiver()``.
    """
    recorded = False

    def ended(code: str, message: str, ended_by: EndedBy) -> None:
        nonlocal recorded
        if not recorded and call is not None:
            call.ended(code, message, ended_by)
        recorded = True

    # Forward the deadline, so that the receiver knows how long the caller waits.
    timeout = _timeout(context)
    metadata = _own_metadata(context.invocation_metadata() or ())
    try:
        make_call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)
        responses = make_call(request, timeout=timeout, metadata=metadata)
    except ValueError:  # gRPC raises it on a closed channel
        ended("Unavailable", "the connection was closed", EndedBy.RECORDER)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was closed")

    def cancel() -> None:
        responses.cancel()

    # If the caller has already cancelled, gRPC does not call the callback.
    if not context.add_callback(cancel):
        cancel()
    try:
        first = True
        for response in responses:
            # Record the response before forwarding it, so that no response seen by the caller is
            # missing in the recording.
            if call is not None:
                call.received(response)
            if first and (initial := _own_metadata(responses.initial_metadata() or ())):
                context.send_initial_metadata(initial)
            first = False
            yield response
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
        # When the caller's deadline passes, the proxy's call fails with DEADLINE_EXCEEDED. Without
        # a deadline, the receiver has returned this code.
        timed_out = code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout is not None
        gave_up = timed_out or not context.is_active()
        ended(go_name(code.name), details, caller if gave_up else receiver())
        context.set_trailing_metadata(_own_metadata(responses.trailing_metadata() or ()))
        context.abort(code, details)
    else:
        ended(OK, "", receiver())
        context.set_trailing_metadata(_own_metadata(responses.trailing_metadata() or ()))
    finally:
        # The end is not recorded yet if the caller cancelled while a response was sent to it.
        cancel()
        ended("Canceled", "", caller)


def _timeout(context: grpc.ServicerContext) -> float | None:
    left = context.time_remaining()
    # Without a deadline, gRPC returns the seconds until the end of its clock.
    return None if left is None or left > _LONGEST_TIMEOUT else left


def _own_metadata(metadata: Sequence[Any]) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata that a caller or receiver sent, without the metadata that gRPC adds."""
    # gRPC's metadata describes one connection, and gRPC rejects an attempt to send it. Status
    # details have gRPC's prefix, but the receiver sends them.
    return tuple(
        (key, value)
        for key, value in metadata
        if key == "grpc-status-details-bin" or not key.startswith(_GRPC_METADATA)
    )


class PluginProxy:
    """Server that forwards all calls on ``path`` to ``plugin``, from ``open`` until ``close``.

    The proxy creates ``path`` after the plugin has begun to serve its socket. Until then, the
    kubelet tries again and again to connect, as it does with a plugin that does not serve yet.
    """

    def __init__(self, plugin: Path, path: Path, begin: Begin) -> None:
        self.plugin = plugin
        self.path = path
        self._begin = begin
        self._channel = grpc.insecure_channel(sockets.target(plugin), options=CHANNEL_OPTIONS)
        # A ListAndWatch stream occupies a thread as long as it is open.
        self._pool = DaemonThreadPoolExecutor(_WORKERS, f"proxy of {plugin.name}")
        self._server = grpc.server(
            self._pool.for_grpc(),
            handlers=[AnyMethodHandler(self._respond)],
            options=SERVER_OPTIONS,
        )
        self.opened = threading.Event()
        """Event that is set when the proxy serves or has failed."""
        self.error = ""
        self.kubelet_has_left = False
        """True if the kubelet instance with which the plugin registered has stopped."""
        self._closing = threading.Event()
        # Guards all fields below.
        self._lock = threading.Lock()
        self._closed = False
        self._calls = 0
        self._identity: FileIdentity | None = None
        self._plugin_identity = FileIdentity.of(plugin)

    def open(self) -> None:
        """Start a thread that waits until the plugin's socket is served, then serves ``path``."""
        threading.Thread(target=self._open, name=f"dial {self.plugin.name}", daemon=True).start()

    def _open(self) -> None:
        try:
            if not self._plugin_is_served():
                self.error = f"no response on {self.plugin}"
                return
            # `close` may have been called while the plugin was dialed. It would not stop a server
            # that starts later.
            with self._lock:
                if not self._closed:
                    self._publish()
        except (PodResourcesError, OSError, RuntimeError, ValueError) as error:
            self.error = str(error)
        finally:
            self.opened.set()

    def _plugin_is_served(self) -> bool:
        end = time.monotonic() + _DIAL_SECONDS
        while time.monotonic() < end:
            if sockets.greets(self.plugin, _DIAL_TIMEOUT):
                return True
            if self._closing.wait(_DIAL_PAUSE):
                break
        return False

    def _publish(self) -> None:
        sockets.prepare(self.path)
        with sockets.published(self.path) as private:
            self._server.add_insecure_port(sockets.target(private))
            self._server.start()
        # Read the identity after the plugin is served: a starting plugin replaces a stale socket.
        self._identity = FileIdentity.of(self.path)
        self._plugin_identity = FileIdentity.of(self.plugin)

    @property
    def socket_was_removed(self) -> bool:
        """True if the proxy's socket was removed or replaced, for example by a starting kubelet."""
        with self._lock:
            identity = self._identity
        return identity is not None and FileIdentity.of(self.path) != identity

    @property
    def plugin_was_removed(self) -> bool:
        """True if the plugin's socket was removed or replaced."""
        return FileIdentity.of(self.plugin) != self._plugin_identity

    @property
    def is_idle(self) -> bool:
        """True if no call is in progress."""
        with self._lock:
            return not self._calls

    def remove_socket(self) -> None:
        """Remove the proxy's socket to prevent new connections. Calls in progress continue."""
        sockets.remove_if_same(self.path, self._identity)

    def remove_plugin(self) -> None:
        """Remove the plugin's socket. Call this if the kubelet has removed the proxy's socket."""
        sockets.remove_if_same(self.plugin, self._plugin_identity)

    def close(self) -> None:
        """End all calls and remove the socket. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        self.remove_socket()
        # Stop the server first, because calls in progress still use the channel.
        self._server.stop(_GRACE).wait()
        self._channel.close()
        self._pool.close()

    def _respond(
        self, method: str, request: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        rpc = method.rpartition("/")[2]
        call = self._begin(rpc, request)
        with self._lock:
            self._calls += 1
        try:
            yield from forward(
                self._channel,
                method,
                request,
                context,
                call,
                lambda: self._ended_by(rpc),
                EndedBy.KUBELET,
            )
        finally:
            with self._lock:
                self._calls -= 1

    def _ended_by(self, rpc: str) -> EndedBy:
        # A plugin that ends its stream because the kubelet stops reacts to the kubelet.
        by_kubelet = self.kubelet_has_left and is_stream(rpc)
        return EndedBy.KUBELET if by_kubelet else EndedBy.PLUGIN


class PluginProxies:
    """Proxies of one recorder, at most one per socket path. Thread-safe.

    ``removes_plugins``: True to remove a plugin's socket when the kubelet has removed the socket of
    the plugin's proxy. If both sockets are in the kubelet's directory, the kubelet removes both.
    """

    def __init__(self, *, removes_plugins: bool) -> None:
        self._removes_plugins = removes_plugins
        # Guards the dict: path to proxy.
        self._lock = threading.Lock()
        self._proxies: dict[Path, PluginProxy] = {}

    def add(self, proxy: PluginProxy) -> None:
        """Add a proxy, and close an earlier proxy with the same path."""
        with self._lock:
            old = self._proxies.get(proxy.path)
            self._proxies[proxy.path] = proxy
        # Close outside the lock, because `close` waits for calls in progress.
        if old is not None:
            old.close()

    def kubelet_leaves(self) -> None:
        """Inform all proxies that the kubelet has stopped.

        If a plugin ends a stream later, the recording names the kubelet as the cause.
        """
        for proxy in self._all():
            proxy.kubelet_has_left = True

    def mirror(self) -> None:
        """If a plugin's socket was removed, remove the socket of its proxy.

        With ``removes_plugins``, also remove the socket of a plugin whose proxy has lost its
        socket. Close proxies without a socket when they are idle.
        """
        for proxy in self._all():
            if proxy.socket_was_removed:
                if self._removes_plugins:
                    proxy.remove_plugin()
            elif proxy.plugin_was_removed:
                proxy.remove_socket()
            else:
                continue
            # A later check closes a proxy with a call in progress, so that the last responses of
            # an exiting plugin still arrive.
            if proxy.opened.is_set() and proxy.is_idle:
                with self._lock:
                    if self._proxies.get(proxy.path) is proxy:
                        del self._proxies[proxy.path]
                proxy.close()

    def close(self) -> None:
        """Close all proxies."""
        with self._lock:
            proxies, self._proxies = list(self._proxies.values()), {}
        for proxy in proxies:
            proxy.close()

    def _all(self) -> list[PluginProxy]:
        with self._lock:
            return list(self._proxies.values())
