"""The control API: clients without number, slow ones, ones that never read."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tools.attack import http2
from tools.attack.beside import HOSTILE, beside
from tools.attack.messages import cut, device
from tools.attack.model import Limits, Target
from tools.attack.plugins import HostilePlugin, register

_SECONDS = 8.0
_CLIENTS = 1000
_BODY = 4 << 20
_LARGE = Limits(registration=3.0, admission=3.0, memory=400.0, kept=300.0, descriptors=300)
_MANY = Limits(descriptors=_CLIENTS + 100)


def _request(method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    size = len(body) if length is None else length
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def _stay(target: Target, clients: int, first: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            with contextlib.suppress(OSError):
                stack.enter_context(http2.connect(target.control, first))
        time.sleep(_SECONDS)


@beside("control-silent", f"{_CLIENTS} clients that say nothing", _MANY, serves="control")
def _silent(target: Target) -> None:
    _stay(target, _CLIENTS, b"")


@beside("control-slow", f"{_CLIENTS} clients that say one letter a second", _MANY, serves="control")
def _slow(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(http2.connect(target.control)) for _ in range(_CLIENTS)]
        for letter in _request("GET", "/v1/pods")[: int(_SECONDS)]:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([letter]))
            time.sleep(1)


@beside(
    "control-bodies",
    f"100 clients with {_BODY} bytes of a body each, of which the last never comes",
    Limits(memory=250.0, kept=200.0, descriptors=200),
    serves="control",
)
def _bodies(target: Target) -> None:
    _stay(target, 100, _request("POST", "/v1/pods", b"x" * (_BODY - 1), length=_BODY))


@beside(
    "control-waits", f"{_CLIENTS} clients that wait for what never happens", _MANY, serves="control"
)
def _waits(target: Target) -> None:
    body = json.dumps({"kinds": ["stopped"], "timeout": 60}).encode()
    _stay(target, _CLIENTS, _request("POST", "/v1/waits/event", body))


@beside("control-unread", "100 clients that read no event and no call", _LARGE, serves="control")
def _unread(target: Target) -> None:
    with _large_lists(target):
        asked = _request("GET", "/v1/events?follow=true") + _request("GET", "/v1/calls?follow=true")
        _stay(target, 100, asked)


@beside(
    "control-calls",
    "20 clients that read the calls of a plugin with large lists",
    _LARGE,
    serves="control",
)
def _calls(target: Target) -> None:
    with _large_lists(target), contextlib.ExitStack() as stack:
        asked = _request("GET", "/v1/calls")
        clients = [stack.enter_context(http2.connect(target.control, asked)) for _ in range(20)]
        end = time.monotonic() + _SECONDS
        for client in clients:
            client.settimeout(1.0)
            with contextlib.suppress(OSError):
                while time.monotonic() < end and client.recv(1 << 20):
                    pass


@beside("control-garbage", "200 connections of no HTTP", Limits(descriptors=30), serves="control")
def _garbage(target: Target) -> None:
    http2.send_garbage(target.control)


@contextlib.contextmanager
def _large_lists(target: Target) -> Iterator[None]:
    """A plugin that has sent four lists of 3 MiB, each another one."""
    socket = target.plugin_dir / "hostile.sock"
    with HostilePlugin(socket, lambda: map(_list, range(4))) as plugin:
        register(target, socket.name, HOSTILE)
        plugin.sent.wait(_SECONDS)
        yield


def _list(number: int) -> bytes:
    return cut((device(b"%d-%d" % (number, each)) for each in count()), 3 << 20)


_PODS = 200
_PODS_LIMITS = Limits(registration=3.0, admission=3.0, memory=250.0, kept=200.0, descriptors=300)
_PAGES = Limits(memory=200.0, kept=150.0, descriptors=_CLIENTS + 100)


def _asked(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@beside("http-pages", f"{_CLIENTS} live pages that are open", _PAGES, serves="http")
def _pages(target: Target) -> None:
    _stay(target, _CLIENTS, _asked("/page/stream"))


@beside(
    "http-unread", "100 clients that ask for /pods, and read nothing", _PODS_LIMITS, serves="http"
)
def _unread_pods(target: Target) -> None:
    _fill(target)
    _stay(target, 100, _asked("/pods") * 50)


@beside(
    "http-flood", "20 clients that read /pods and /metrics without end", _PODS_LIMITS, serves="http"
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
    """Pods that ask for nothing."""
    client = _Client(target.control)
    for number in range(_PODS):
        metadata = {"name": f"attack-{number}", "namespace": "default"}
        spec = {"containers": [{"name": "main", "image": "attack"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        client.request("POST", "/v1/pods", json.dumps(pod))
        client.getresponse().read()


class _Client(http.client.HTTPConnection):
    """Over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self._path)
