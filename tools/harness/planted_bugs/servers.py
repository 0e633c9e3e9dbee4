"""Planted bugs in servers of the kubelet: the control API, HTTP and PodResources."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import Any
from urllib.parse import unquote

from tools.harness.planted import pause, planted, replace, set_to


@planted("silent clients stay connected")
def _silent() -> None:
    from devicemanager.control import http_server

    replace(http_server._Connection._wait_for_request, lambda self: None)


@planted("unread responses are not counted")
def _backlog() -> None:
    from podresources import backlog

    replace(backlog.Backlog.add, lambda self, call, size: True)


@planted("clients that do not read stay connected")
def _unread() -> None:
    from devicemanager.kubelet.registration import server
    from podresources import accepted

    replace(accepted.disconnect_unread, lambda bound, seconds, wait: 0)
    # The calls of a client that does not read stay open, so the limit of open calls helps, too.
    others = (each for each in server._OPTIONS if each[0] != "grpc.max_concurrent_streams")
    set_to(server, "_OPTIONS", tuple(others))


@planted("the Host header is not checked")
def _host() -> None:
    from devicemanager.control import access

    replace(access.Access._check_host, lambda self, host: None)


@planted("requests are not checked")
def _requests() -> None:
    from podresources import service

    replace(service.check_request, lambda path, kind, request: None)


@planted("any body is decoded")
def _bodies() -> None:
    from devicemanager.control import request

    def decode(operation: Any, body: bytes) -> Any:
        return typed_json.decode(body, operation.body)  # type: ignore[name-defined]  # noqa: F821

    replace(request.decode_body, decode)


class _Front:
    """Listener in front of a gRPC server, with a thread for each connection.

    The thread waits for the first bytes of a client, then forwards bytes in both directions. If
    ``keeps`` is true, descriptors of closed connections stay open.
    """

    def __init__(self, path: str, server: str, *, keeps: bool) -> None:
        self._server, self._keeps = server, keeps
        self._kept: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(4096)
        self._start(self._accept)

    @staticmethod
    def _start(work: Any, *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
            first = client.recv(24, socket.MSG_WAITALL)
            if first.startswith(b"PRI"):
                server.connect(self._server)
                server.sendall(first)
                _forward(client, server)
            client.shutdown(socket.SHUT_RDWR)
        self._kept.append(client)
        if not self._keeps:
            self._kept.pop().close()


def _forward(one: socket.socket, other: socket.socket) -> None:
    peers = {one: other, other: one}
    while True:
        for each in select.select(peers, (), ())[0]:
            if not (data := each.recv(1 << 16)):
                return
            peers[each].sendall(data)


def _listen_in_front(*, keeps: bool) -> None:
    from grpc._server import _Server

    listen, fronts = _Server.add_insecure_port, list[_Front]()

    def add(self: Any, address: str) -> int:
        path = unquote(address.removeprefix("unix:"))
        port = listen(self, f"{address}~")
        fronts.append(_Front(path, f"{path}~", keeps=keeps))
        return port

    set_to(_Server, "add_insecure_port", add)


@planted("each connection has a thread")
def _threads() -> None:
    _listen_in_front(keeps=False)


@planted("descriptors stay open")
def _descriptors() -> None:
    _listen_in_front(keeps=True)
    from devicemanager.control.http_server import _Connection

    lost, kept = _Connection.connection_lost, []

    def keep(self: Any, exc: Exception | None) -> None:
        copy = self.transport.get_extra_info("socket").dup()
        copy.shutdown(socket.SHUT_RDWR)
        kept.append(copy)
        lost(self, exc)

    set_to(_Connection, "connection_lost", keep)


@planted("each call is remembered")
def _remembered() -> None:
    from grpc import _server

    handle, calls = _server._handle_call, list[bytearray]()

    def remember(*arguments: Any) -> Any:
        calls.append(bytearray(10_000))
        return handle(*arguments)

    set_to(_server, "_handle_call", remember)


@planted("bodies are not counted")
def _budget() -> None:
    from devicemanager.control.request import Budget

    replace(Budget.take, lambda self, count: None)


@planted("each wait has a thread")
def _waits() -> None:
    from devicemanager.control.router import OperationRouter

    async def until(self: Any, wait: Any) -> bytes:
        return await _in_own_thread(wait.timeout)

    set_to(OperationRouter, "_until", until)


@planted("each page has a thread")
def _pages() -> None:
    from importlib import import_module

    # The package has a function of this name, too.
    routes = import_module("devicemanager.observe.web.page.routes")

    async def stream(updates: Any, request: Any) -> Any:
        return await _in_own_thread(60.0)

    set_to(routes, "_stream", stream)


async def _in_own_thread(seconds: float) -> bytes:
    import anyio.to_thread

    await anyio.to_thread.run_sync(time.sleep, seconds, limiter=anyio.CapacityLimiter(10_000))
    return b"{}"


@planted("responses are buffered")
def _buffered() -> None:
    from devicemanager.control.http_server import _Connection

    set_to(_Connection, "pause_writing", lambda self: None)


@planted("pods are listed with the lock held")
def _locked() -> None:
    from devicemanager.kubelet.manager.manager import DeviceManager
    from devicemanager.observe.web import answers
    from podresources.service import Service

    begin, managers = DeviceManager.__init__, list[Any]()

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        managers.append(self)

    def locked(work: Any) -> Any:
        def slow(*arguments: Any) -> Any:
            with managers[-1].state.lock:
                pause(0.5)
            return work(*arguments)

        return slow

    set_to(DeviceManager, "__init__", init)
    set_to(answers, "pods", locked(answers.pods))
    set_to(Service, "answer", locked(Service.answer))


@planted("calls are read with the lock held")
def _calls() -> None:
    from devicemanager.events.calls.log import CallLog

    later = CallLog.later

    def locked(self: Any, number: int) -> Any:
        with self._lock:
            pause(6.0)
        return later(self, number)

    set_to(CallLog, "later", locked)


@planted("each byte extends the time")
def _parts() -> None:
    from devicemanager.observe.web.streams import _Upgraded

    receive = _Upgraded.receive

    def received(self: Any, data: bytes) -> bool:
        receive(self, data)
        return True

    set_to(_Upgraded, "receive", received)


@planted("streams have no limit")
def _streams() -> None:
    from devicemanager.observe.web import spdy

    set_to(spdy, "_MAX_STREAMS", 1 << 31)


@planted("headers have no limit")
def _headers() -> None:
    from devicemanager.observe.web import spdy

    set_to(spdy, "_MAX_HEADERS", 0)


@planted("frames have no limit")
def _frames() -> None:
    from devicemanager.observe.web import spdy

    set_to(spdy, "_MAX_FRAME", 1 << 24)


@planted("SPDY clients are not paused")
def _paused() -> None:
    from uvicorn.protocols.http.flow_control import FlowControl

    from devicemanager.control.http_server import _Connection

    def pause(self: Any) -> None:
        FlowControl.pause_writing(self.flow)

    set_to(_Connection, "pause_writing", pause)


@planted("each frame copies the rest")
def _rest() -> None:
    from devicemanager.observe.web.spdy import Connection

    def handle(self: Any) -> bool:
        while len(self._waiting) >= 8:
            size = int.from_bytes(self._waiting[5:8])
            self._waiting = self._waiting[8 + size :]
        return True

    set_to(Connection, "_handle", handle)
