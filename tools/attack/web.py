"""HTTP without a token: pages without number, scrapers without end, answers nobody reads."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from functools import partial
from pathlib import Path

from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Attack, Limits, Target

_SECONDS = 8.0
_CLIENTS = 1000
_PODS = 200
_LARGE = Limits(registration=3.0, admission=3.0, memory=250.0, kept=200.0, descriptors=300)


def attacks() -> list[Attack]:
    """Each beside a good plugin, on a node with some pods to tell of."""
    many = Limits(memory=200.0, kept=150.0, descriptors=_CLIENTS + 100)
    attack = partial(beside, serves="http")
    return [
        attack("http-pages", f"{_CLIENTS} live pages that are open", _pages, many),
        attack("http-flood", "20 clients that read /pods and /metrics without end", _flood, _LARGE),
        attack("http-unread", "100 clients that ask for /pods, and read nothing", _unread, _LARGE),
    ]


def _asked(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _pages(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(_CLIENTS):
            with contextlib.suppress(OSError):
                stack.enter_context(http2.connect(target.control, _asked("/page/stream")))
        time.sleep(_SECONDS)


def _unread(target: Target) -> None:
    _fill(target)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            with contextlib.suppress(OSError):
                stack.enter_context(http2.connect(target.control, _asked("/pods") * 50))
        time.sleep(_SECONDS)


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
        containers = [{"name": "main", "image": "attack"}]
        metadata = {"name": f"attack-{number}", "namespace": "default"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": containers},
        }
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
