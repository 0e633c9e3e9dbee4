"""The socket of the runtime, and the plugins that are connected to it."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from devicemanager.core.errors import AllocationError, StartError
from devicemanager.core.printable import printable
from devicemanager.kubelet.nri.connection import CallFailed, Connection, Disconnected, Handlers
from podresources.errors import PodResourcesError
from podresources.sockets import prepare, published
from protos import nri_v1alpha1 as nri

__all__ = ["NriPlugin", "PluginServer"]

# Defaults of containerd (pkg/api/timeouts.go of nri v0.11).
_REGISTRATION_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 2.0
_BACKLOG: Final = 1024
"""Maximum number of connections that wait to be accepted. A plugin in Go does not wait: it fails to
connect if the limit is reached."""
_MOST_CONNECTIONS: Final = 32
"""Maximum number of open connections, because each needs a thread. A node has few NRI plugins."""
_ACCEPT_PAUSE: Final = 0.2
"""Seconds before the next attempt to accept, for example while no descriptor is free."""
_LONGEST_NAME: Final = 253
_NAME = "devicemanager"
_VERSION = "v0.11.0"
"""Version of NRI whose API the runtime implements."""


@attrs.define(eq=False)
class NriPlugin:
    """A connected plugin; its name is set when it registers."""

    connection: Connection
    registered: threading.Event = attrs.field(factory=threading.Event)
    index: str = ""
    base: str = ""
    events: int = 0

    @property
    def name(self) -> str:
        """Index and name, such as ``00-dra.cpu``. Plugins are called in the order of the names."""
        return f"{self.index}-{self.base}"

    def wants(self, event: int) -> bool:
        """True if the plugin subscribes to an event. A plugin with an empty event mask subscribes
        to all."""
        return not self.events or bool(self.events >> (event - 1) & 1)

    def call(self, method: str, request: Any) -> Any:
        """Call the plugin, and return its response.

        Raises CallFailed if the plugin responds with an error. Raises Disconnected if it does not
        respond in time, or if its connection ends.
        """
        return self.connection.call(method, request, _REQUEST_SECONDS)


class PluginServer:
    """Server on the runtime's socket, with the connected plugins. Thread-safe.

    The function ``synchronize`` is called with each plugin that has been configured. It must call
    the plugin's Synchronize, and then pass the plugin to ``add``. The function ``update`` responds
    to the plugins' calls of UpdateContainers. The function ``report`` is called with one line of
    text each time a plugin connects, disconnects or fails.
    """

    def __init__(
        self,
        path: Path,
        synchronize: Callable[[NriPlugin], None],
        update: Callable[[nri.UpdateContainersRequest], nri.UpdateContainersResponse],
        report: Callable[[str], None],
    ) -> None:
        self._path = path
        self._synchronize = synchronize
        self._update = update
        self._report = report
        # Guards the fields below.
        self._changed = threading.Condition()
        self._plugins: list[NriPlugin] = []
        self._listener: socket.socket | None = None
        self._connections: set[Connection] = set()
        self._silent: dict[NriPlugin, None] = {}
        """Connected plugins that have not registered, in the order in which they connected."""
        self._is_full = False

    # -- life --------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on the socket. Raises StartError if that fails."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            prepare(self._path)
            with published(self._path) as private:
                listener.bind(str(private))
                listener.listen(_BACKLOG)
        except PodResourcesError as error:
            listener.close()
            raise StartError(str(error)) from error
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="nri", daemon=True).start()

    def close(self) -> None:
        """Disconnect all plugins, and remove the socket. Idempotent."""
        with self._changed:
            listener, self._listener = self._listener, None
            self._changed.notify_all()  # the pause of ``_accept`` ends
        if listener is None:
            return
        # Ends ``accept`` on the other thread, which ``close`` alone does not.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self._path.unlink(missing_ok=True)
        self.disconnect()

    def disconnect(self) -> None:
        """Disconnect all plugins. They may connect again."""
        with self._changed:
            connections = list(self._connections)
        for each in connections:
            each.close()

    # -- plugins -----------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Return the names of the plugins, in the order in which the runtime calls them."""
        with self._changed:
            return tuple(each.name for each in self._plugins)

    def wait(self, base: str, timeout: float) -> bool:
        """Wait until the plugin ``base`` is connected. Return False after ``timeout`` seconds.

        ``base`` is the name without the index, such as ``dra.cpu``.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: any(each.base == base for each in self._plugins), timeout
            )

    def subscribers(self, event: int) -> list[NriPlugin]:
        """Return the plugins that subscribe to an event, in the order in which to call them."""
        with self._changed:
            return [each for each in self._plugins if each.wants(event)]

    def call(self, plugin: NriPlugin, method: str, request: Any) -> Any:
        """Call a plugin, and return its response.

        If the plugin does not respond in time, disconnect the plugin and return None. Raises
        AllocationError if the plugin responds with an error.
        """
        try:
            return plugin.call(method, request)
        except CallFailed as error:
            text = printable(str(error))
            raise AllocationError(f"NRI plugin {plugin.name}: {method} failed: {text}") from None
        except Disconnected as error:
            self._report(f"NRI plugin {plugin.name}: {method}: {error}")
            plugin.connection.close()
            self._remove(plugin)
            return None

    def add(self, plugin: NriPlugin) -> None:
        """Add a synchronized plugin. From now on the plugin gets events.

        Raises Disconnected if the plugin's connection has ended.
        """
        with self._changed:
            # The connection can end during Synchronize. In this case, ``_remove`` has already run,
            # so a plugin that is added now would never be removed.
            if plugin.connection not in self._connections:
                raise Disconnected("the connection has ended")
            self._plugins.append(plugin)
            self._plugins.sort(key=lambda each: each.name)
            self._changed.notify_all()

    def _remove(self, plugin: NriPlugin) -> None:
        with self._changed:
            self._forget(plugin)
            was_added = plugin in self._plugins
            if was_added:
                self._plugins.remove(plugin)
        if was_added:
            self._report(f"NRI plugin {plugin.name} disconnected")

    def _forget(self, plugin: NriPlugin) -> None:
        """Forget a connection that ends. Must be called with the lock held."""
        self._connections.discard(plugin.connection)
        self._silent.pop(plugin, None)
        plugin.registered.set()  # the thread that waits for it must not outlive the connection

    # -- connections -------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            # Either the listener was closed, or no descriptor or memory is free. That can change.
            except OSError:
                with self._changed:
                    if self._changed.wait_for(lambda: self._listener is None, _ACCEPT_PAUSE):
                        return
                continue
            plugin = self._new_plugin(connected)
            if not self._is_allowed(plugin):
                plugin.connection.close()
                continue
            try:
                _start(self._serve, plugin)
                # On another thread, because ``_serve`` reads the responses.
                _start(self._configure, plugin)
            except RuntimeError:  # no thread can be started
                plugin.connection.close()
                self._remove(plugin)

    def _new_plugin(self, connected: socket.socket) -> NriPlugin:
        plugin: NriPlugin
        handlers: Handlers = {
            "RegisterPlugin": lambda request: self._register(plugin, request),
            "UpdateContainers": self._update,
        }
        plugin = NriPlugin(Connection(connected, handlers, serves="Runtime", calls="Plugin"))
        return plugin

    def _register(self, plugin: NriPlugin, request: nri.RegisterPluginRequest) -> nri.Empty:
        _check_name(request)
        plugin.index, plugin.base = request.plugin_idx, request.plugin_name
        with self._changed:
            self._silent.pop(plugin, None)
        plugin.registered.set()
        return nri.Empty()

    def _is_allowed(self, plugin: NriPlugin) -> bool:
        """Add a new connection, and return True.

        If the limit is reached, first close the oldest connection on which no plugin has
        registered. If plugins have registered on all connections, keep them all and return False.
        Also return False after ``close``.
        """
        with self._changed:
            if self._listener is None:
                return False
            was_full, self._is_full = self._is_full, len(self._connections) >= _MOST_CONNECTIONS
            # Otherwise connections that do not register would lock out plugins.
            oldest = next(iter(self._silent), None) if self._is_full else None
            if oldest is not None:
                self._forget(oldest)
            is_allowed = oldest is not None or not self._is_full
            if is_allowed:
                self._connections.add(plugin.connection)
                self._silent[plugin] = None
        if oldest is not None:
            oldest.connection.close()
        # Once, because a program can connect again immediately.
        if self._is_full and not was_full:
            self._report(
                f"an NRI plugin was disconnected: {_MOST_CONNECTIONS} connections are open, "
                "which is the limit"
            )
        return is_allowed

    def _serve(self, plugin: NriPlugin) -> None:
        plugin.connection.serve()
        self._remove(plugin)

    def _configure(self, plugin: NriPlugin) -> None:
        if not plugin.registered.wait(_REGISTRATION_SECONDS):
            self._report(f"an NRI plugin did not register within {_REGISTRATION_SECONDS:g} s")
            plugin.connection.close()
            return
        if not plugin.index:
            return  # it disconnected before it registered
        try:
            plugin.events = plugin.call("Configure", _configuration()).events
            self._synchronize(plugin)
        except (CallFailed, Disconnected) as error:
            self._report(f"NRI plugin {plugin.name} was not added: {error}")
            plugin.connection.close()
            return
        self._report(f"NRI plugin {plugin.name} connected")


def _start(function: Callable[..., None], argument: object) -> None:
    threading.Thread(target=function, args=(argument,), name="nri-plugin", daemon=True).start()


def _check_name(request: nri.RegisterPluginRequest) -> None:
    """Raise ValueError for an invalid index or name."""
    if not re.fullmatch(r"[0-9]{2}", request.plugin_idx):
        shown = printable(request.plugin_idx)
        raise ValueError(f"invalid plugin index {shown!r}: expected two digits")
    name = request.plugin_name
    if not name or "/" in name or len(name) > _LONGEST_NAME or printable(name) != name:
        raise ValueError(
            f"invalid plugin name {printable(name)!r}: expected at most {_LONGEST_NAME} printable "
            "characters without /"
        )


def _configuration() -> nri.ConfigureRequest:
    return nri.ConfigureRequest(
        runtime_name=_NAME,
        runtime_version=_VERSION,
        registration_timeout=int(_REGISTRATION_SECONDS * 1000),
        request_timeout=int(_REQUEST_SECONDS * 1000),
        NRI_version=_VERSION,
    )
