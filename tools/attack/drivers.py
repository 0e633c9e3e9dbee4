"""A hostile DRA driver, for processes of attackers. Requests and responses are bytes, because
attacks also need invalid messages."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import attrs
import grpc

from podresources import sockets
from protos import dra_v1, dra_v1_grpc, drahealth_v1_grpc, pluginregistration_v1_grpc
from protos import pluginregistration_v1 as pr
from tools.attack.plugins import field

HOSTILE_DRIVER = "hostile.example.com"
_SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth")
_LONGEST = 120.0
_UNLIMITED = [("grpc.max_send_message_length", -1)]


def answer(request: bytes, entry: bytes) -> bytes:
    """Encode a response that has the same entry for each claim of the request."""
    claims = dra_v1.NodePrepareResourcesRequest.FromString(request).claims
    return b"".join(claim_entry(each.uid.encode(), entry) for each in claims)


def claim_entry(uid: bytes, entry: bytes) -> bytes:
    """Encode the entry of a claim in a response."""
    return field(1, field(1, uid) + field(2, entry))


def device(
    pool: bytes = b"p", name: bytes = b"d", cdi: bytes = b"a.b/c=d", more: bytes = b""
) -> bytes:
    """Encode a device of an entry; ``more`` are further fields."""
    return field(1, field(2, pool) + field(3, name) + field(4, cdi) + more)


def health(pool: bytes, name: bytes, status: int = 1, message: bytes = b"") -> bytes:
    """Encode a device of a health report."""
    identity = field(1, pool) + field(2, name)
    return field(1, field(1, identity) + bytes((2 << 3, status)) + field(5, message))


@attrs.define(eq=False)
class HostileDriver:
    """Driver with one socket at each of its paths, for use in a ``with`` block."""

    paths: Sequence[Path]
    prepare: Callable[[bytes], bytes] = lambda request: answer(request, device())
    reports: Callable[[], Iterator[bytes]] = lambda: iter(())
    names: Iterator[str] = attrs.field(factory=lambda: itertools.repeat(HOSTILE_DRIVER))
    """The name in each response to GetInfo."""
    endpoints: Iterator[str] = attrs.field(factory=lambda: itertools.repeat(""))
    """The endpoint in each response to GetInfo."""
    sent: threading.Event = attrs.field(factory=threading.Event)
    """Event that is set when gRPC has accepted all reports of a health stream."""
    notified: threading.Event = attrs.field(factory=threading.Event)
    """Event that is set when the kubelet has notified the driver of its registration."""
    _notifications: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    _prepared: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    _server: grpc.Server | None = None

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(256), options=_UNLIMITED)
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            pluginregistration_v1_grpc.GET_INFO: unary(lambda _, __: self._info()),
            pluginregistration_v1_grpc.NOTIFY_REGISTRATION_STATUS: unary(
                lambda _, __: self._notify()
            ),
            dra_v1_grpc.NODE_PREPARE_RESOURCES: unary(lambda data, _: self._prepare(data)),
            dra_v1_grpc.NODE_UNPREPARE_RESOURCES: unary(lambda data, _: answer(data, b"")),
            drahealth_v1_grpc.NODE_WATCH_RESOURCES: stream(self._watch),
        }
        for path, handler in handlers.items():
            _, service, method = path.split("/")
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {method: handler}),)
            )
        for each in self.paths:
            self._server.add_insecure_port(sockets.target(each))
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None, "__exit__ is called after __enter__"
        # Stop without a grace period: handlers of an attack may never return.
        self._server.stop(0)

    def wait_for_preparations(self, count: int) -> None:
        """Wait until NodePrepareResources was called ``count`` times. Raises TimeoutError: a driver
        that was not called proves nothing."""
        _wait(self._prepared, count, "calls of NodePrepareResources")

    def wait_for_notifications(self, count: int) -> None:
        """Wait until the kubelet has notified the driver of ``count`` registrations. Raises
        TimeoutError."""
        _wait(self._notifications, count, "notifications")

    def _prepare(self, request: bytes) -> bytes:
        self._prepared.release()
        return self.prepare(request)

    def _info(self) -> bytes:
        info = pr.PluginInfo(
            type="DRAPlugin",
            name=next(self.names),
            endpoint=next(self.endpoints),
            supported_versions=_SERVICES,
        )
        return info.SerializeToString()

    def _notify(self) -> bytes:
        self.notified.set()
        self._notifications.release()
        return b""

    def _watch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from self.reports()
        self.sent.set()
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()


def _wait(done: threading.Semaphore, count: int, what: str) -> None:
    end = time.monotonic() + _LONGEST
    for number in range(count):
        if not done.acquire(timeout=max(0.0, end - time.monotonic())):
            raise TimeoutError(f"{number} of {count} {what} within {_LONGEST:g} s")
