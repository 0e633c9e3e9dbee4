"""The plugin watcher: plugins that announce themselves by a socket in plugins_registry.

A socket that appears (its name not starting with ``.``) is asked GetInfo; a DevicePlugin
with a supported version and a valid name is registered like any other and told so by
NotifyRegistrationStatus. What fails is tried again, later and later, until the socket
vanishes. A socket that vanishes is deregistered.
Follows pkg/kubelet/pluginmanager (v1.36).
"""

from __future__ import annotations

import asyncio
import stat
import threading
from concurrent.futures import Future
from pathlib import Path

import attrs
import grpc

from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN
from devicemanager.core.errors import EndpointError, StartError
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import Fired, first
from devicemanager.io.clock import Clock
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.kubelet.registration.connection import Calls, OnError
from devicemanager.kubelet.registration.event_loop import sleep
from devicemanager.kubelet.registration.fault_injection import not_made
from devicemanager.kubelet.registration.registrar import (
    NotConnected,
    Registrar,
    RegistrationRejected,
    shown,
)
from podresources import sockets
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

implements(InjectionPoint.NOTIFICATION, {Effect.REJECT_NOTIFICATION, Effect.FAIL_NOTIFICATION})

GET_INFO_TIMEOUT = 1.0
NOTIFY_TIMEOUT = 5.0
"""Seconds (pluginmanager/operationexecutor, v1.32)."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 122.0
"""Seconds before a failed registration is tried again; they double
(``exponentialbackoff``, v1.32)."""
_LONGEST_INFO = 1 << 16


@attrs.define(eq=False)
class _Plugin:
    """One socket, and what is registered of it now. It is noted here at once, so that a
    task that is cancelled at any moment can take it back."""

    path: Path
    endpoint: EndpointId | None = None
    is_given_up: bool = False
    """Whether it is not tried again as long as its socket is there."""


class PluginWatcher:
    """Watches one directory, which must exist, from ``start`` to ``stop``."""

    def __init__(
        self,
        directory: Path,
        registrar: Registrar,
        events: EventStream,
        on_error: OnError,
        dial_timeout: float,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._registrar = registrar
        self._events = events
        self._on_error = on_error
        self._dial_timeout = dial_timeout
        self._clock = clock
        kinds = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)
        self._watch = DirectoryWatch(directory, self._seen, kinds)
        # Guards the field below: which socket it was that was found at each path, and the
        # task that lasts as long as it is there.
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[sockets.FileIdentity, Future[None]]] = {}

    def start(self) -> None:
        """Watch, then take up the sockets that are there already. Raises StartError."""
        try:
            self._watch.start()
        except OSError as error:
            raise StartError(f"cannot watch {self._directory}: {error.strerror}") from error
        for path in sorted(self._directory.iterdir()):
            self._changed(path)

    def stop(self) -> None:
        """Stop watching. The registrar ends what is under way."""
        self._watch.stop()

    def _seen(self, change: Change) -> None:
        for name in filter(None, (change.name, change.new_name)):
            self._changed(self._directory / name)

    def _changed(self, path: Path) -> None:
        """A path appeared, vanished or was replaced."""
        if path.name.startswith("."):
            return
        found = _socket_at(path)
        with self._lock:
            known, task = self._known.get(path, (None, None))
            if known == found:
                return
            if task is not None:
                task.cancel()  # deregisters
                del self._known[path]
            if found is not None:
                self._known[path] = found, self._registrar.run(self._follow(path))

    async def _follow(self, path: Path) -> None:
        """Register the plugin and keep it until this task is cancelled; the socket is gone
        then, or the kubelet stops."""
        plugin = _Plugin(path)
        wait = FIRST_WAIT
        try:
            while not await self._attempt(plugin):
                await sleep(self._clock, wait)
                wait = min(2 * wait, LONGEST_WAIT)
            if plugin.is_given_up:
                await self._registrar.in_thread(self._report_given_up, path)
            await asyncio.Event().wait()
        except Exception as error:
            self._on_error(error)
        finally:
            self._deregister(plugin)

    def _deregister(self, plugin: _Plugin) -> None:
        endpoint, plugin.endpoint = plugin.endpoint, None
        if endpoint is not None:
            self._registrar.deregister(endpoint)

    async def _attempt(self, plugin: _Plugin) -> bool:
        """One handshake; false if it failed, which was reported, and is to be tried again."""
        try:
            await self._registrar.dialer.dial(plugin.path, self._dial_timeout)
            options = [sockets.AUTHORITY, ("grpc.max_receive_message_length", _LONGEST_INFO)]
            channel = grpc.insecure_channel(sockets.target(plugin.path), options)
            try:
                await self._handshake(plugin, channel)
            finally:
                await self._registrar.in_thread(channel.close)
        except EndpointError as error:
            # Since v1.36 one that could not be told is no plugin either (k/k#133335).
            if self._registrar.behaviour.watcher_retries:
                self._deregister(plugin)
            await self._registrar.in_thread(self._report, plugin.path, error)
        return plugin.endpoint is not None or plugin.is_given_up

    async def _handshake(self, plugin: _Plugin, channel: grpc.Channel) -> None:
        """Raises EndpointError for a handshake that could not be finished."""
        calls = Calls(channel, self._registrar.recorder(None, str(plugin.path)))
        info = await calls.wait_for(
            pr_grpc.GET_INFO, b"", GET_INFO_TIMEOUT, pr.PluginInfo.FromString
        )
        error = ""
        fired = await self._fired(plugin.path, info)
        try:
            await self._reject_on_purpose(info, fired)
            plugin.endpoint = await self._register(plugin.path, info)
        except RegistrationRejected as rejected:
            error = str(rejected)
            # Up to v1.35 it counted as registered from the checks on.
            is_known = isinstance(rejected, NotConnected)
            plugin.is_given_up = is_known and not self._registrar.behaviour.watcher_retries
        status = pr.RegistrationStatus(plugin_registered=not error, error=error)
        calls = Calls(channel, self._registrar.recorder(info.name, str(plugin.path)))
        if (fault := first(fired, Effect.FAIL_NOTIFICATION)) is not None:
            call = calls.begin(pr_grpc.NOTIFY_REGISTRATION_STATUS, status.SerializeToString())
            raise not_made(fault, call)
        await calls.wait_for(
            pr_grpc.NOTIFY_REGISTRATION_STATUS,
            status.SerializeToString(),
            NOTIFY_TIMEOUT,
            pr.RegistrationStatusResponse.FromString,
        )
        if plugin.endpoint is not None:
            await self._registrar.in_thread(self._registrar.answered, plugin.endpoint)

    async def _fired(self, path: Path, info: pr.PluginInfo) -> tuple[Fired, ...]:
        faults = self._registrar.faults
        if not faults.armed:
            return ()
        occasion = FaultContext(info.name, path.name)
        return await self._registrar.in_thread(faults.at, InjectionPoint.NOTIFICATION, occasion)

    async def _reject_on_purpose(self, info: pr.PluginInfo, fired: tuple[Fired, ...]) -> None:
        """Raises RegistrationRejected if a fault says so."""
        if (fault := first(fired, Effect.REJECT_NOTIFICATION)) is not None:
            resource = ResourceName(info.name)
            rejected = RegistrationRejected(fault["text"], str(fault))
            raise await self._registrar.reject(resource, rejected)

    async def _register(self, path: Path, info: pr.PluginInfo) -> EndpointId:
        resource = ResourceName(info.name)
        if info.type != DEVICE_PLUGIN:
            # Other kinds (DRAPlugin, CSIPlugin) have no handler here.
            text = f"no handler registered for plugin type: {shown(info.type)} at socket {path}"
            raise await self._registrar.reject(resource, RegistrationRejected(text))
        socket = Path(info.endpoint) if info.endpoint else path
        await self._registrar.check(resource, tuple(info.supported_versions), socket)
        dial_failed = self._registrar.behaviour.watcher_dial_failed
        return await self._registrar.connect(resource, socket, str(socket), dial_failed=dial_failed)

    def _report_given_up(self, path: Path) -> None:
        self._events.publish(
            EventKind.REGISTRATION_REJECTED,
            f"plugin {path.name}: not tried again until its socket is a new one: kubelets do so "
            "since 1.36",
        )

    def _report(self, path: Path, error: EndpointError) -> None:
        self._events.publish(
            EventKind.REGISTRATION_REJECTED,
            f"plugin {path.name}: registration handshake failed: {error}",
        )


def _socket_at(path: Path) -> sockets.FileIdentity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return sockets.FileIdentity.from_status(status) if stat.S_ISSOCK(status.st_mode) else None
