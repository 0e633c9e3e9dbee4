"""The control API: clients without number, slow ones, ones that never read."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

from tools.attack import http2
from tools.attack.beside import HOSTILE, beside
from tools.attack.messages import cut, device
from tools.attack.model import Attack, Limits, Target
from tools.attack.plugins import HostilePlugin, register

_SECONDS = 8.0
_CLIENTS = 1000
_BODY = 4 << 20
_LARGE = Limits(registration=3.0, admission=3.0, memory=400.0, kept=300.0, descriptors=300)


def attacks() -> list[Attack]:
    """Each beside a good plugin, which has nothing to do with that API."""
    many = Limits(descriptors=_CLIENTS + 100)
    attack = partial(beside, serves="control")
    return [
        attack("control-silent", f"{_CLIENTS} clients that say nothing", _silent, many),
        attack("control-slow", f"{_CLIENTS} clients that say one letter a second", _slow, many),
        attack(
            "control-bodies",
            f"100 clients with {_BODY} bytes of a body each, of which the last never comes",
            _bodies,
            Limits(memory=250.0, kept=200.0, descriptors=200),
        ),
        attack(
            "control-waits", f"{_CLIENTS} clients that wait for what never happens", _waits, many
        ),
        attack("control-unread", "100 clients that read no event and no call", _unread, _LARGE),
        attack(
            "control-calls",
            "20 clients that read the calls of a plugin with large lists",
            _calls,
            _LARGE,
        ),
        attack("control-garbage", "200 connections of no HTTP", _garbage, Limits(descriptors=30)),
    ]


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


def _silent(target: Target) -> None:
    _stay(target, _CLIENTS, b"")


def _slow(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(http2.connect(target.control)) for _ in range(_CLIENTS)]
        for letter in _request("GET", "/v1/pods")[: int(_SECONDS)]:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([letter]))
            time.sleep(1)


def _bodies(target: Target) -> None:
    _stay(target, 100, _request("POST", "/v1/pods", b"x" * (_BODY - 1), length=_BODY))


def _waits(target: Target) -> None:
    body = json.dumps({"kinds": ["stopped"], "timeout": 60}).encode()
    _stay(target, _CLIENTS, _request("POST", "/v1/waits/event", body))


def _unread(target: Target) -> None:
    with _large_lists(target):
        asked = _request("GET", "/v1/events?follow=true") + _request("GET", "/v1/calls?follow=true")
        _stay(target, 100, asked)


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
