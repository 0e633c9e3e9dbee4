"""Attack the control API and HTTP: too many clients, slow clients, clients that never read.

The good plugin does not use these servers. Therefore its times show whether an overloaded server
slows down the rest of the kubelet.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from devicemanager.control.http_server import IDLE_SECONDS, STALLED_SECONDS
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Limits, Target
from tools.attack.plugins import cut, device, hostile_plugin

# Seconds of each attack: long enough for several rounds of the probe.
_SECONDS = 8.0
_CLIENTS = 1000
_BODY = 4 << 20
_control = partial(beside, serves="control")
_http = partial(beside, serves="http")
_LARGE = Limits(registration=100.0, admission=600.0, memory=400.0, kept=300.0, descriptors=300)
_MANY = Limits(descriptors=_CLIENTS + 100)


def _request(method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    size = len(body) if length is None else length
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def _stay(target: Target, clients: int, first: bytes) -> None:
    with http2.connections(target.control, clients, first, may_fail=True):
        time.sleep(_SECONDS)


@_control("control-silent", f"{_CLIENTS} clients that send nothing", _MANY)
def _silent(target: Target) -> None:
    with http2.connections(target.control, _CLIENTS, may_fail=True) as connections:
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_control("control-slow", f"{_CLIENTS} clients that send one byte a second", _MANY)
def _slow(target: Target) -> None:
    # A server with one thread per client would run out of threads.
    with http2.connections(target.control, _CLIENTS) as connections:
        for letter in _request("GET", "/v1/pods")[: int(_SECONDS)]:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([letter]))
            time.sleep(1)
        http2.wait_until_closed(connections, IDLE_SECONDS)


@_control(
    "control-bodies",
    f"100 clients with {_BODY} bytes of a body each, without the last byte",
    Limits(memory=250.0, kept=200.0, descriptors=200),
)
def _bodies(target: Target) -> None:
    # The server must read a whole body before it can process it, so all bodies are in memory.
    _stay(target, 100, _request("POST", "/v1/pods", b"x" * (_BODY - 1), length=_BODY))


@_control(
    "control-waits",
    f"{_CLIENTS} clients that wait for an event that never happens",
    _MANY,
)
def _waits(target: Target) -> None:
    # The timeout is longer than the attack: clients disconnect while the server waits for an event.
    body = json.dumps({"kinds": ["stopped"], "timeout": 60}).encode()
    _stay(target, _CLIENTS, _request("POST", "/v1/waits/event", body))


@_control(
    "control-unread",
    "100 clients that follow calls with large lists, and do not read",
    _LARGE,
)
def _unread(target: Target) -> None:
    # The kubelet must not wait for a client that does not read, and must not store all events for
    # it.
    request = _request("GET", "/v1/calls?follow=true&bytes=true")
    with _large_lists(target), http2.connections(target.control, 100, request) as clients:
        http2.wait_until_closed(clients, STALLED_SECONDS)


@_control(
    "control-calls",
    "20 clients that read the calls of a plugin with large lists",
    _LARGE,
)
def _calls(target: Target) -> None:
    request = _request("GET", "/v1/calls?bytes=true")
    with (
        _large_lists(target),
        http2.connections(target.control, 20, request) as clients,
    ):
        end = time.monotonic() + _SECONDS
        for client in clients:
            client.settimeout(1.0)
            with contextlib.suppress(OSError):
                while time.monotonic() < end and client.recv(1 << 20):
                    pass


@_control(
    "control-garbage",
    "200 connections that do not use HTTP",
    Limits(descriptors=30),
)
def _garbage(target: Target) -> None:
    http2.send_garbage(target.control)


@contextlib.contextmanager
def _large_lists(target: Target) -> Iterator[None]:
    """Register a plugin that sends four different device lists of 3 MiB."""
    lists = [_list(number) for number in range(4)]
    with hostile_plugin(target, lambda: iter(lists)) as plugin:
        plugin.wait_until_sent()
        yield


def _list(number: int) -> bytes:
    # Long ids, because encoding many devices takes long with the attacker's low priority.
    return cut((device(b"%01000d-%d" % (number, each)) for each in count()), 3 << 20)


_PODS = 100
_UNREAD = 20
"""Clients whose responses of 2 MB are in memory together."""
_IMAGE = "registry.example/" + "a" * 10_000
_PODS_LIMITS = Limits(
    registration=100.0, admission=600.0, memory=250.0, kept=200.0, descriptors=300
)
_PAGES = Limits(memory=200.0, kept=150.0, descriptors=_CLIENTS + 100)


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@_http("http-pages", f"{_CLIENTS} open live pages", _PAGES)
def _pages(target: Target) -> None:
    _stay(target, _CLIENTS, _get("/page/stream"))


@_http("http-unread", f"{_UNREAD} clients that request /pods, and do not read", _PODS_LIMITS)
def _unread_pods(target: Target) -> None:
    _fill(target)
    with http2.connections(target.control, _UNREAD, _get("/pods") * 50) as clients:
        http2.wait_until_closed(clients, STALLED_SECONDS)


@_http(
    "http-flood",
    "20 clients that read /pods and /metrics as fast as they can",
    _PODS_LIMITS,
)
def _flood(target: Target) -> None:
    _fill(target)
    end = time.monotonic() + _SECONDS
    work = [threading.Thread(target=_read, args=(target.control, end)) for _ in range(20)]
    for each in work:
        each.start()
    for each in work:
        each.join()


def _read(path: Path, end: float) -> None:
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            client = _Client(path)
            while time.monotonic() < end:
                for what in ("/pods", "/metrics"):
                    client.request("GET", what)
                    client.getresponse().read()


def _fill(target: Target) -> None:
    """Create pods without devices. A response with all of them has 2 MB."""
    client = _Client(target.control)
    for number in range(_PODS):
        metadata = {"name": f"attack-{number}", "namespace": "default"}
        spec = {"containers": [{"name": "main", "image": _IMAGE}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        client.request("POST", "/v1/pods", json.dumps(pod))
        client.getresponse().read()


class _Client(http.client.HTTPConnection):
    """HTTP client on a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self._path)
