"""Misbehaving plugins and clients, made of raw bytes and raw sockets.

Each is a context manager and ends with its ``with`` block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import attrs
import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

RESOURCE = "example.com/dev"

Context = grpc.ServicerContext
Lists = Callable[[Context], Iterator[bytes]]
Unary = Callable[[bytes, Context], bytes]


def devices(*ids: str, health: str = "Healthy") -> bytes:
    """Return a serialized ListAndWatchResponse."""
    message = dp.ListAndWatchResponse(devices=[dp.Device(ID=id_, health=health) for id_ in ids])
    return message.SerializeToString()


def until_cancelled(context: Context, *, or_when: threading.Event | None = None) -> None:
    """Block until the caller cancels the call, or until ``or_when`` is set."""
    ended = or_when or threading.Event()
    if context.add_callback(ended.set):
        ended.wait()


def lists(*messages: bytes, stay: bool = True) -> Lists:
    """Return a ListAndWatch handler that sends these messages, then stays open or ends."""

    def stream(context: Context) -> Iterator[bytes]:
        yield from messages
        if stay:
            until_cancelled(context)

    return stream


def hang(request: bytes, context: Context) -> bytes:
    """Handle a call without ever responding."""
    until_cancelled(context)
    return b""


def answering(*responses: dp.ContainerAllocateResponse) -> Unary:
    """Return an Allocate handler that sends exactly these container responses."""
    answer = dp.AllocateResponse(container_responses=responses).SerializeToString()
    return lambda request, context: answer


def constant(answer: bytes) -> Unary:
    return lambda request, context: answer


TWO_DEVICES = lists(devices("d0", "d1"))
ONE_RESPONSE = answering(dp.ContainerAllocateResponse())
NO_OPTIONS = constant(b"")


@attrs.define(eq=False)
class RawPlugin:
    """A device plugin with raw handlers on one socket; it does not register by itself."""

    path: Path
    lists: Lists = TWO_DEVICES
    allocate: Unary = ONE_RESPONSE
    options: Unary = NO_OPTIONS
    info: Unary | None = None
    """Handler of GetInfo; with it, the socket also serves the plugin watcher's protocol."""
    notify: Unary = NO_OPTIONS
    workers: int = 16
    allocations: list[tuple[str, ...]] = attrs.field(factory=list)
    notified: list[pr.RegistrationStatus] = attrs.field(factory=list)
    streams: int = 0
    _server: grpc.Server | None = None
    _pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="hostile")
        self._server = grpc.server(self._pool)
        handlers = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self.options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
        }
        service = grpc.method_handlers_generic_handler(_service(dp_grpc.LIST_AND_WATCH), handlers)
        self._server.add_generic_rpc_handlers((service,))
        if self.info is not None:
            self._server.add_generic_rpc_handlers((self._watched(self.info),))
        self._server.add_insecure_port(sockets.target(self.path))
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        assert self._server is not None
        assert self._pool is not None
        self._server.stop(0).wait()
        self._pool.shutdown()

    def _watched(self, info: Unary) -> grpc.GenericRpcHandler:
        handlers = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(info),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(self._notify),
        }
        return grpc.method_handlers_generic_handler(_service(pr_grpc.GET_INFO), handlers)

    def _notify(self, request: bytes, context: Context) -> bytes:
        self.notified.append(pr.RegistrationStatus.FromString(request))
        return self.notify(request, context)

    def _list(self, request: bytes, context: Context) -> Iterator[bytes]:
        self.streams += 1
        yield from self.lists(context)

    def _allocate(self, request: bytes, context: Context) -> bytes:
        wanted = dp.AllocateRequest.FromString(request).container_requests
        self.allocations.extend(tuple(each.devices_ids) for each in wanted)
        return self.allocate(request, context)


def _service(method: str) -> str:
    return method.split("/")[1]


@contextlib.contextmanager
def raw_socket(path: Path, answer: bytes = b"") -> Iterator[None]:
    """Serve a socket that accepts every connection and sends nothing, or always ``answer``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(16)
        thread = threading.Thread(target=_accept, args=(listening, answer), name="raw-socket")
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # wakes accept
            thread.join()


def _accept(listening: socket.socket, answer: bytes) -> None:
    with contextlib.ExitStack() as accepted:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            accepted.enter_context(peer)
            with contextlib.suppress(OSError):
                peer.sendall(answer)


@contextlib.contextmanager
def slow_relay(path: Path, to: Path, seconds: float) -> Iterator[None]:
    """Serve a socket that relays to another one.

    The first connection is relayed at once. On each later one, responses are delayed by
    ``seconds``, as by a server that gets little CPU time.
    """
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listening.bind(str(path))
        listening.listen(16)

        def relay() -> None:
            waits = 0.0
            with contextlib.suppress(OSError):
                while True:
                    peer = stack.enter_context(listening.accept()[0])
                    server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    server.connect(str(to))
                    opened.extend((peer, server))
                    for ends, wait in (((peer, server), 0.0), ((server, peer), waits)):
                        start(copy, *ends, wait)
                    waits = seconds

        def copy(source: socket.socket, sink: socket.socket, wait: float) -> None:
            with contextlib.suppress(OSError):
                if not ended.wait(wait):
                    while data := source.recv(1 << 16):
                        sink.sendall(data)
                sink.shutdown(socket.SHUT_RDWR)

        def start(target: Callable[..., None], *arguments: object) -> None:
            thread = threading.Thread(target=target, args=arguments, name="slow-relay")
            thread.start()
            threads.append(thread)

        threads: list[threading.Thread] = []
        opened = [listening]
        start(relay)
        try:
            yield
        finally:
            ended.set()
            for each in opened:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # wakes accept and recv
            for thread in threads:
                thread.join()


class Registry:
    """One plugin's connection to the kubelet's Registration service."""

    def __init__(self, kubelet_socket: Path) -> None:
        # With the options of a plugin: without them, grpc would share the connection with other
        # channels of this process, and with it one that has just been cut.
        self._channel = grpc.insecure_channel(
            sockets.target(kubelet_socket), sockets.CHANNEL_OPTIONS
        )
        self._stub = dp_grpc.RegistrationStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def register(
        self, endpoint: str, resource: str = RESOURCE, version: str = "v1beta1"
    ) -> str | None:
        """Return None if the plugin was registered, else the rejection (code UNKNOWN)."""
        request = dp.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
        try:
            self._stub.Register(request, timeout=20)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            assert error.code() is grpc.StatusCode.UNKNOWN, error
            return error.details()
        return None


def register(
    kubelet_socket: Path, endpoint: str, resource: str = RESOURCE, version: str = "v1beta1"
) -> str | None:
    """Register once, on a new connection."""
    with Registry(kubelet_socket) as registry:
        return registry.register(endpoint, resource, version)


def closed_window(message: dp.RegisterRequest) -> bytes:
    """Return a Register call as HTTP/2 frames, from a client whose initial window is 0."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": dp_grpc.REGISTER,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    body = message.SerializeToString()
    data = b"\x00" + len(body).to_bytes(4, "big") + body
    window = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")
    return b"".join(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            frame(4, 0, 0, window),
            frame(1, 4, 1, block),
            frame(0, 1, 1, data),
        )
    )


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload
