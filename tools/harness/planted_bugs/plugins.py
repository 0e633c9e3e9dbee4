"""Planted bugs in the handling of plugins: registrations, device lists and Allocate responses."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from protos import deviceplugin_v1beta1 as dp
from tools.harness.planted import pause, planted, replace, set_to

_COPIED: Final = 32 << 20
"""Size of the copies of a response in bytes. A response shorter than ``_SHORT`` is not copied."""
_SHORT: Final = 100_000
_LONG: Final = 100
"""Minimum number of devices of a list that the planted bug delays."""


@planted("processes register without limit")
def _registrations() -> None:
    from devicemanager.kubelet.registration import registrar

    replace(registrar.check_registrations, lambda processes, pid, settings, replaces=False: None)


@planted("lists of one length are equal")
def _same_length() -> None:
    from devicemanager.kubelet.wire import lists

    def decode(self: Any, devices: list[bytes]) -> Any:
        same = len(devices) == len(self._devices)
        return self._columns if same else _columns(devices)  # type: ignore[name-defined]  # noqa: F821

    replace(lists.ListReader._decode, decode)


@planted("an endpoint can be any path")
def _endpoint() -> None:
    from devicemanager.kubelet.registration import server

    replace(server.endpoint_problem, lambda name: None)


@planted("one plugin is dialed at a time")
def _in_turn() -> None:
    from devicemanager.kubelet.registration import dialer

    dial, turn = dialer.Dialer.dial, asyncio.Lock()

    async def dial_in_turn(self: Any, path: Any, seconds: float) -> int:
        async with turn:
            return await dial(self, path, min(seconds, 0.05))

    set_to(dialer.Dialer, "dial", dial_in_turn)


@planted("messages have no limit")
def _messages() -> None:
    from devicemanager.kubelet.registration import connection
    from podresources import sockets

    name = "grpc.max_receive_message_length"
    server, channel = sockets.server_options, connection._channel_options

    def options(settings: Any) -> list[tuple[str, Any]]:
        # Of two values, gRPC uses the first one.
        return [*((key, value) for key, value in channel(settings) if key != name), (name, -1)]

    set_to(sockets, "server_options", lambda: [*server(), (name, -1)])
    set_to(connection, "_channel_options", options)


@planted("metadata is stored")
def _metadata() -> None:
    from devicemanager.kubelet.registration import server as registration
    from podresources import sockets

    most = 1 << 30
    unlimited = [("grpc.max_metadata_size", most), ("grpc.absolute_max_metadata_size", most)]
    server, register, stored = sockets.server_options, registration.RegistrationServer._register, []

    def storing(self: Any, request: Any, context: Any, send: Any) -> None:
        stored.append(context.invocation_metadata())
        register(self, request, context, send)

    set_to(sockets, "server_options", lambda: [*server(), *unlimited])
    set_to(registration.RegistrationServer, "_register", storing)


@planted("lists are counted with the lock held")
def _lists() -> None:
    from devicemanager.kubelet.manager.plugin_handler import ClientHandler

    update = ClientHandler.update

    def update_slowly(self: Any, endpoint: Any, columns: Any) -> None:
        # As slow as a loop over devices and NUMA nodes, but without using a CPU. The list of the
        # good plugin is short.
        count = len(columns.ids) + sum(len(each or ()) for each in columns.numa)
        with self._state.lock:
            pause(min(20.0, 2.0 + count * 1e-4) if count >= _LONG else 0.0)
        update(self, endpoint, columns)

    set_to(ClientHandler, "update", update_slowly)


@planted("responses are copied")
def _responses() -> None:
    from devicemanager.kubelet.registration.connection import Connection

    allocate, copies, decoded = Connection.allocate, list[bytearray](), list[dict[str, str]]()

    def copying(self: Any, device_ids: Any) -> Any:
        answer = allocate(self, device_ids)
        for each in answer.responses:
            copies.append(bytearray(each) * (_COPIED // max(len(each), _SHORT)))
            decoded.append(dict(dp.ContainerAllocateResponse.FromString(each).envs))
        return answer

    set_to(Connection, "allocate", copying)


@planted("directories are searched")
def _search() -> None:
    from devicemanager.kubelet.registration import watcher

    changed = watcher.PluginWatcher._changed

    def search(self: Any, path: Any) -> None:
        for each in (path, *self._directory.glob("*/**/*")):
            changed(self, each)

    set_to(watcher.PluginWatcher, "_changed", search)


@planted("any file is opened")
def _opened() -> None:
    from devicemanager.kubelet.registration import dialer, watcher

    found, connect = watcher._socket_at, dialer.Attempt._connect

    def open_all(directory: Any) -> None:
        for path in directory.iterdir():
            if not (path.is_socket() or path.is_dir()):
                path.open("rb").close()  # a FIFO blocks

    def found_slowly(path: Any) -> Any:
        open_all(path.parent)
        return found(path)

    def connect_slowly(self: Any, peer: Any) -> bool:
        open_all(self._path.parent)
        return connect(self, peer)

    set_to(watcher, "_socket_at", found_slowly)
    set_to(dialer.Attempt, "_connect", connect_slowly)
