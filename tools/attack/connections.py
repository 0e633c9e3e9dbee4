"""Connections: half open, torn, without number, with too much on them."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Attack, Limits, Target
from tools.attack.plugins import channel

_REGISTER = "/v1beta1.Registration/Register"
_LIST = "/v1.PodResourcesLister/List"
_HALF = 400
_CLIENTS = 1000
_FLOOD = 3000
_BAD_VERSION = dp.RegisterRequest(version="none", resource_name="a.b/c").SerializeToString()


def attacks() -> list[Attack]:
    """On the Registration service and on PodResources alike."""
    return [
        beside(
            "half-open",
            f"{_HALF} connections to each socket that stop in the middle of their first bytes",
            _half_open,
            Limits(descriptors=2 * _HALF + 100),
        ),
        beside(
            "rst-storm",
            "400,000 calls that are taken back at once",
            _rst_storm,
            Limits(registration=3.0, kept=100.0),
        ),
        beside("metadata-flood", "2,000 calls with 1 MB of metadata", _metadata),
        beside(
            "clients-1000",
            f"{_CLIENTS} clients that stay, with 3 calls each",
            _clients,
            Limits(kept=100.0, descriptors=_CLIENTS + 100),
        ),
        beside(
            "connections-flood",
            f"{_FLOOD} connections to each socket that greet, say nothing more and come again",
            _flood,
            Limits(memory=250.0, kept=250.0, descriptors=2 * _FLOOD + 100),
        ),
        beside("garbage", "400 connections of no HTTP/2", _garbage, Limits(descriptors=30)),
    ]


def _sockets(target: Target) -> tuple[tuple[Path, str], ...]:
    return (target.registration, _REGISTER), (target.pod_resources, _LIST)


def _half_open(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for path, _ in _sockets(target):
            for number in range(_HALF):
                first = (http2.PREFACE + http2.settings())[: 1 + number % 30]
                stack.enter_context(http2.connect(path, first))
        time.sleep(5)


def _rst_storm(target: Target) -> None:
    for path, method in _sockets(target):
        for _ in range(20):
            with contextlib.suppress(OSError):
                _torn_calls(path, method)


def _torn_calls(path: Path, method: str) -> None:
    with http2.connect(path, http2.PREFACE + http2.settings()) as connection:
        for start in range(1, 20_000, 1000):
            torn = (
                http2.request_headers(stream, method)
                + http2.frame(http2.RST_STREAM, stream, http2.CANCEL)
                for stream in range(start, start + 1000, 2)
            )
            connection.sendall(b"".join(torn))


def _metadata(target: Target) -> None:
    """On one connection after the other, since each is closed for it."""
    metadata = tuple((f"key-{number}", "x" * 1000) for number in range(1000))

    def one(_: int) -> None:
        with contextlib.suppress(grpc.RpcError), channel(target) as connection:
            request = dp.RegisterRequest(version="none")
            dp_grpc.RegistrationStub(connection).Register(request, timeout=5, metadata=metadata)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(2000)))


def _clients(target: Target) -> None:
    first = http2.PREFACE + http2.settings() + http2.call(1, _REGISTER, _BAD_VERSION)
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(http2.connect(target.registration, first)) for _ in range(_CLIENTS)
        ]
        for stream in (3, 5):
            for connection in connections:
                connection.sendall(http2.call(stream, _REGISTER, _BAD_VERSION))
        time.sleep(5)


def _flood(target: Target) -> None:
    first = http2.PREFACE + http2.settings()
    for _ in range(5):
        with contextlib.ExitStack() as stack:
            for path, _method in _sockets(target):
                for _number in range(_FLOOD):
                    with contextlib.suppress(OSError):
                        stack.enter_context(http2.connect(path, first))
            time.sleep(1)


def _garbage(target: Target) -> None:
    for path, _ in _sockets(target):
        http2.send_garbage(path)
