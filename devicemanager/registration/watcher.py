"""The plugin watcher: plugins that announce themselves by a socket in plugins_registry.

A socket that appears (its name not starting with ``.``) is asked GetInfo; a DevicePlugin
with a supported version and a valid name is registered like any other and told so by
NotifyRegistrationStatus. A socket that vanishes is deregistered.
Follows pkg/kubelet/pluginmanager (v1.32).
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devicemanager.api.deviceplugin import DEVICE_PLUGIN
from devicemanager.core.errors import StartError
from devicemanager.core.ids import ResourceName
from devicemanager.events import EventKind, EventStream
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.registration.connection import rpc_error
from devicemanager.registration.registrar import Registrar, RegistrationRefused
from podresources import sockets
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

GET_INFO_TIMEOUT = 1.0
"""Seconds; the plugin manager sets this for GetInfo and for the notification."""
_WORKERS = 4


class PluginWatcher:
    """Watches one directory, which must exist, from ``start`` to ``stop``."""

    def __init__(
        self,
        directory: Path,
        registrar: Registrar,
        events: EventStream,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._directory = directory
        self._registrar = registrar
        self._events = events
        self._on_error = on_error
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="plugin-watcher")
        kinds = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)
        self._watch = DirectoryWatch(directory, self._seen, kinds)
        # Guards _known: which socket it was that was taken up at each path.
        self._lock = threading.Lock()
        self._known: dict[Path, sockets.FileIdentity] = {}

    def start(self) -> None:
        """Watch, then take up the sockets that are there already. Raises StartError."""
        try:
            self._watch.start()
        except OSError as error:
            raise StartError(f"cannot watch {self._directory}: {error.strerror}") from error
        for path in sorted(self._directory.iterdir()):
            self._changed(path)

    def stop(self) -> None:
        """Stop watching; handshakes under way end with their deadlines."""
        self._watch.stop()
        self._pool.shutdown(cancel_futures=True)

    def _seen(self, change: Change) -> None:
        for name in filter(None, (change.name, change.new_name)):
            self._changed(self._directory / name)

    def _changed(self, path: Path) -> None:
        """A path appeared, vanished or was replaced."""
        if path.name.startswith("."):
            return
        found = _socket_at(path)
        with self._lock:
            known = self._known.get(path)
            if known == found:
                return
            if found is None:
                del self._known[path]
            else:
                self._known[path] = found
        try:
            if known is not None:
                self._pool.submit(self._registrar.deregister, path)
            if found is not None:
                self._pool.submit(self._take_up, path)
        except RuntimeError:
            return  # stopping

    def _take_up(self, path: Path) -> None:
        try:
            with grpc.insecure_channel(sockets.target(path), [sockets.AUTHORITY]) as channel:
                self._handshake(path, pr_grpc.RegistrationStub(channel))
        except grpc.RpcError as error:
            self._events.publish(
                EventKind.REGISTRATION_REFUSED,
                f"plugin {path.name}: registration handshake failed: {rpc_error(error)}",
            )
        except Exception as error:
            self._on_error(error)
        with self._lock:
            # If it went while it was dialed, nothing was connected yet when that was told.
            # Under the lock, so that a successor at this path cannot be hit.
            if path not in self._known:
                self._registrar.deregister(path)

    def _handshake(self, path: Path, stub: pr_grpc.RegistrationStub) -> None:
        info = stub.GetInfo(pr.InfoRequest(), timeout=GET_INFO_TIMEOUT, wait_for_ready=True)
        error = ""
        try:
            self._register(path, info)
        except RegistrationRefused as refused:
            error = str(refused)
        status = pr.RegistrationStatus(plugin_registered=not error, error=error)
        stub.NotifyRegistrationStatus(status, timeout=GET_INFO_TIMEOUT)

    def _register(self, path: Path, info: pr.PluginInfo) -> None:
        resource = ResourceName(info.name)
        if info.type != DEVICE_PLUGIN:
            # Other kinds (DRAPlugin, CSIPlugin) have no handler here.
            raise self._registrar.refuse(
                resource,
                f"no handler registered for plugin type: {info.type} at socket {path}",
            )
        endpoint = Path(info.endpoint) if info.endpoint else path
        self._registrar.register(resource, tuple(info.supported_versions), endpoint, path)


def _socket_at(path: Path) -> sockets.FileIdentity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return sockets.FileIdentity.from_status(status) if stat.S_ISSOCK(status.st_mode) else None
