"""A plugin that answers with whatever bytes an attack wants, and ways to register it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack.model import Target

Lists = Callable[[], Iterator[bytes]]
_SERVICE = dp_grpc.LIST_AND_WATCH.split("/")[1]
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@attrs.define(eq=False)
class HostilePlugin:
    """Serves on one socket until its block ends."""

    path: Path
    lists: Lists
    allocate: Callable[[], bytes] = bytes
    options: Callable[[], bytes] = bytes
    workers: int = 64
    compression: grpc.Compression | None = None
    sent: threading.Event = attrs.field(factory=threading.Event)
    """Set once every list of a stream was handed to gRPC."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None, "the block was entered"
        self._server.stop(0)

    def _list(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from self.lists()
        self.sent.set()
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()


def register(target: Target, endpoint: str, resource: str, timeout: float = 60.0) -> None:
    """Raises grpc.RpcError for a rejection."""
    request = dp.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
    with channel(target) as connection:
        dp_grpc.RegistrationStub(connection).Register(request, timeout=timeout)


def storm(target: Target, requests: Iterable[dp.RegisterRequest], seconds: float) -> None:
    """Send all of them at once over a few connections; wait so long for the answers."""
    connections = [channel(target) for _ in range(16)]
    stubs = [dp_grpc.RegistrationStub(each) for each in connections]
    calls = [
        stubs[number % len(stubs)].Register.future(request, timeout=seconds)
        for number, request in enumerate(requests)
    ]
    for call in calls:
        call.exception()
    for connection in connections:
        connection.close()


def channel(target: Target) -> grpc.Channel:
    """A connection of its own to the Registration service."""
    options = [*_UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(sockets.target(target.registration), options)
