"""Attack as an NRI plugin: calls that never return, silent connections, updates that accumulate.

Meanwhile, pods of the good plugin are admitted, and their containers start: the NRI runtime calls
its plugins for each of them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from devicemanager.kubelet.nri.connection import Connection
from protos import nri_v1alpha1 as nri
from tools.attack import http2
from tools.attack.beside import beside
from tools.attack.model import Limits, Target
from tools.attack.plugins import field

_REQUEST_SECONDS: Final = 2.0
"""Seconds after which a plugin that does not respond must be disconnected: the default of
containerd."""
_CLOSED_WITHIN: Final = 5.0
"""Factor by which ``_REQUEST_SECONDS`` may be exceeded, because the machine may be busy."""
_TIMES: Final = 3
_CONNECTIONS: Final = 1000
_UPDATES: Final = 400
_LONGEST: Final = 60.0
_nri = partial(beside, serves="nri")

Handler = Callable[[Any], Any]


@contextlib.contextmanager
def _plugin(
    target: Target, name: str, handlers: dict[str, Handler]
) -> Iterator[tuple[Connection, socket.socket]]:
    """Connect and register an NRI plugin during a ``with`` block. Methods without a handler return
    an empty response."""
    methods = nri.DESCRIPTOR.services_by_name["Plugin"].methods_by_name
    empty: dict[str, Handler] = {
        each: (lambda _, each=each: _empty(each))  # type: ignore[misc]  # bound now
        for each in methods
    }
    # It blocks while too many connections wait to be accepted.
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(target.nri))
    connection = Connection(connected, {**empty, **handlers}, serves="Plugin", calls="Runtime")
    threading.Thread(target=connection.serve, daemon=True).start()
    try:
        request = nri.RegisterPluginRequest(plugin_name=name, plugin_idx="10")
        connection.call("RegisterPlugin", request, _LONGEST)
        yield connection, connected
    finally:
        connection.close()


def _empty(method: str) -> Any:
    return nri.Empty() if method == "StateChange" else getattr(nri, f"{method}Response")()


@_nri(
    "nri-hang",
    f"an NRI plugin whose calls never return, and which connects {_TIMES} times",
    # Each pod waits for the timeout of a call once, as with a real runtime.
    Limits(admission=2000.0, kept=60.0),
)
def _hang(target: Target) -> None:
    for _ in range(_TIMES):
        called = threading.Event()

        def hang(_: Any, called: threading.Event = called) -> Any:
            called.set()
            threading.Event().wait()

        with _plugin(target, "hostile", {"CreateContainer": hang}) as (_, connected):
            poller = select.poll()
            poller.register(connected, select.POLLRDHUP)
            if not called.wait(_LONGEST):
                raise TimeoutError("no container was created")
            if not poller.poll(_CLOSED_WITHIN * _REQUEST_SECONDS * 1000):
                raise TimeoutError("an NRI plugin that does not respond is still connected")


@_nri(
    "nri-silent",
    f"{_CONNECTIONS} connections to the NRI socket that do not register",
    # 32 connections are allowed, each with two threads. On a busy machine, the threads of as many
    # closed connections are still ending.
    Limits(threads=2 * 2 * 32 + 20),
)
def _silent(target: Target) -> None:
    configured = threading.Event()

    def configure(_: Any) -> Any:
        configured.set()
        return nri.ConfigureResponse()

    with (
        http2.connections(target.nri, _CONNECTIONS, may_fail=True),
        _plugin(target, "second", {"Configure": configure}),
    ):
        if not configured.wait(_LONGEST):
            raise TimeoutError("silent connections lock out an NRI plugin")


@_nri("nri-updates", f"{_UPDATES} updates of a container with unknown fields of 1 MB")
def _updates(target: Target) -> None:
    synchronized, containers = threading.Event(), list[str]()

    def synchronize(request: Any) -> Any:
        containers.extend(each.id for each in request.containers)
        synchronized.set()
        return nri.SynchronizeResponse()

    with _plugin(target, "hostile", {"Synchronize": synchronize}) as (connection, _):
        synchronized.wait(_LONGEST)
        update = nri.ContainerUpdate(container_id=containers[0])
        update.linux.resources.MergeFromString(field(2000, b"x" * 1_000_000))
        request = nri.UpdateContainersRequest(update=[update])
        for _ in range(_UPDATES):
            connection.call("UpdateContainers", request, _LONGEST)
        time.sleep(1)
