"""The plugin watcher: finds sockets in ``plugins_registry`` and registers their plugins.

Theory of operation. Each socket in the directory has one task on the registrar's event loop.
Sockets whose names start with ``.`` are ignored. The task runs as long as the socket exists:

1. Handshake: dial the socket, call GetInfo, register the plugin, and report the result with
   NotifyRegistrationStatus.
2. If the handshake failed, wait and repeat it. The wait doubles up to two minutes.
3. If it succeeded, wait until the task is cancelled.

The handler of the plugin's type (``handlers``) checks and registers it in step 1.

When the socket vanishes or is replaced by another socket (compared by file identity), the task is
cancelled. Its ``finally`` block deregisters the plugin. The task can be cancelled at any step,
because ``_Plugin.registration`` is set as soon as the handler has registered the plugin. Kubelets
before v1.36 do not retry every failure: if version and name of a plugin are valid, but it cannot be
connected, they retry only when its socket is replaced.

File events only trigger a check of the path. Lost, repeated or late events can therefore only
delay a registration.

Follows pkg/kubelet/pluginmanager (v1.36).
"""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

import attrs
import grpc

from devicemanager.core import messages
from devicemanager.core.errors import EndpointError, StartError
from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import Fired, first
from devicemanager.io.clock import Clock
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.kubelet.registration.connection import Calls, OnError
from devicemanager.kubelet.registration.event_loop import sleep
from devicemanager.kubelet.registration.fault_injection import not_made
from devicemanager.kubelet.registration.handlers import Registration, TypeHandler
from devicemanager.kubelet.registration.registrar import (
    LimitReached,
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
"""Timeout of NotifyRegistrationStatus in seconds. ``GET_INFO_TIMEOUT`` is the timeout of GetInfo.
Both are as in the kubelet (pluginmanager/operationexecutor, v1.32)."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 122.0
"""The first and the longest wait before a failed registration is retried, in seconds. The wait
doubles (``exponentialbackoff``, v1.32)."""
_LONGEST_INFO = 1 << 16


@attrs.define(eq=False)
class _Plugin:
    """A plugin's socket and its current registration, which a cancelled task must undo."""

    path: Path
    registration: Registration | None = None
    is_given_up: bool = False
    """True if the failed registration is retried only when the socket is replaced."""
    is_over_limit: bool = False
    """True if the plugin's process has too many registrations. The watcher then retries less often,
    because frequent retries would delay other plugins."""


class PluginWatcher:
    """Watcher that registers the plugins in one directory, which must exist.

    ``handlers`` maps each supported type of plugins to a function that returns the handler. The
    function is called for each plugin, and may block.
    """

    def __init__(
        self,
        directory: Path,
        registrar: Registrar,
        handlers: Mapping[str, Callable[[], TypeHandler]],
        events: EventStream,
        on_error: OnError,
        dial_timeout: float,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._registrar = registrar
        self._handlers = handlers
        self._events = events
        self._on_error = on_error
        self._dial_timeout = dial_timeout
        self._clock = clock
        kinds = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)
        self._watch = DirectoryWatch(directory, self._seen, kinds)
        # Guards _known: the socket found at each path, and its task.
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[sockets.FileIdentity, Future[None]]] = {}

    def start(self) -> None:
        """Start watching, and register the plugins of sockets that already exist.

        Raises StartError if the directory cannot be watched.
        """
        try:
            self._watch.start()
        except OSError as error:
            raise StartError(f"cannot watch {self._directory}: {error.strerror}") from error
        # Sorted, so that plugins register in the same order in each run.
        for path in sorted(self._directory.iterdir()):
            self._changed(path)

    def stop(self) -> None:
        """Stop watching the directory. The registrar cancels the tasks of the sockets."""
        self._watch.stop()

    def _seen(self, change: Change) -> None:
        for name in filter(None, (change.name, change.new_name)):
            self._changed(self._directory / name)

    def _changed(self, path: Path) -> None:
        """Check a path that may have appeared, vanished or been replaced, and update its task."""
        if path.name.startswith("."):
            return
        found = _socket_at(path)
        with self._lock:
            # Compared by identity, because a socket that was replaced belongs to another process.
            known, task = self._known.get(path, (None, None))
            if known == found:
                return
            if task is not None:
                task.cancel()  # deregisters
                del self._known[path]
            if found is not None:
                self._known[path] = found, self._registrar.run(self._follow(path))

    async def _follow(self, path: Path) -> None:
        """Register the plugin, and deregister it when the task is cancelled.

        The task is cancelled when the socket vanishes or when the kubelet stops.
        """
        plugin = _Plugin(path)
        wait = FIRST_WAIT
        try:
            while not await self._attempt(plugin):
                await sleep(self._clock, LONGEST_WAIT if plugin.is_over_limit else wait)
                wait = min(2 * wait, LONGEST_WAIT)
            if plugin.is_given_up:
                await self._registrar.in_thread(self._report_given_up, path)
            # Registered or given up: wait until the socket vanishes.
            await asyncio.Event().wait()
        except Exception as error:
            self._on_error(error)
        finally:
            self._deregister(plugin)

    @staticmethod
    def _deregister(plugin: _Plugin) -> None:
        # Cleared first, because this method is called again when the task is cancelled.
        registration, plugin.registration = plugin.registration, None
        if registration is not None:
            registration.deregister()

    async def _attempt(self, plugin: _Plugin) -> bool:
        """Make one handshake. Return False if it failed and must be retried."""
        try:
            pid = await self._registrar.dialer.dial(plugin.path, self._dial_timeout)
            options = [sockets.AUTHORITY, ("grpc.max_receive_message_length", _LONGEST_INFO)]
            # Every attempt has a new channel: gRPC's backoff would delay the next attempt.
            channel = grpc.insecure_channel(sockets.target(plugin.path), options)
            try:
                await self._handshake(plugin, channel, pid)
            finally:
                # On the pool, because closing can block.
                await self._registrar.in_thread(channel.close)
        except EndpointError as error:
            # Since v1.36 the registration is withdrawn if the plugin cannot be notified of it
            # (k/k#133335).
            if self._registrar.behaviour.watcher_retries:
                self._deregister(plugin)
            await self._registrar.in_thread(self._report, plugin.path, error)
        return plugin.registration is not None or plugin.is_given_up

    async def _handshake(self, plugin: _Plugin, channel: grpc.Channel, pid: int) -> None:
        """Call GetInfo, register the plugin, and notify it of the result.

        Raises EndpointError if one of the calls fails.
        """
        calls = Calls(channel, self._registrar.recorder(None, str(plugin.path)))
        info = await calls.wait_for(
            pr_grpc.GET_INFO, b"", GET_INFO_TIMEOUT, pr.PluginInfo.FromString
        )
        error = ""
        fired = await self._fired(plugin.path, info)
        try:
            await self._inject_rejection(info, fired)
            plugin.registration = await self._register(plugin.path, info, pid)
        except RegistrationRejected as rejected:
            error = str(rejected)
            # Up to v1.35 the kubelet considers a plugin registered when it has passed the checks.
            plugin.is_over_limit = isinstance(rejected, LimitReached)
            is_known = isinstance(rejected, NotConnected)
            plugin.is_given_up = is_known and not self._registrar.behaviour.watcher_retries
        status = pr.RegistrationStatus(plugin_registered=not error, error=error)
        # A second recorder, because the resource is known only after GetInfo.
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
        if plugin.registration is not None:
            await self._registrar.in_thread(plugin.registration.answered)

    async def _fired(self, path: Path, info: pr.PluginInfo) -> tuple[Fired, ...]:
        faults = self._registrar.faults
        if not faults.armed:
            return ()
        context = FaultContext(info.name, path.name)
        return await self._registrar.in_thread(faults.at, InjectionPoint.NOTIFICATION, context)

    async def _inject_rejection(self, info: pr.PluginInfo, fired: tuple[Fired, ...]) -> None:
        """Raise RegistrationRejected if one of the faults rejects the registration."""
        if (fault := first(fired, Effect.REJECT_NOTIFICATION)) is not None:
            resource = ResourceName(info.name)
            rejected = RegistrationRejected(fault["text"], str(fault))
            raise await self._registrar.report(resource, rejected)

    async def _register(self, path: Path, info: pr.PluginInfo, pid: int) -> Registration:
        handler = self._handlers.get(info.type)
        if handler is None:
            # The mock has no handler for other types, such as CSIPlugin.
            text = messages.WATCHED_NO_HANDLER.format(type=shown(info.type), socket=path)
            rejected = RegistrationRejected(text)
            raise await self._registrar.report(ResourceName(info.name), rejected)
        # On the pool, because the first plugin of a type can load modules.
        return await (await self._registrar.in_thread(handler)).register(path, info, pid)

    def _report_given_up(self, path: Path) -> None:
        self._events.publish(
            EventKind.REGISTRATION_REJECTED,
            f"plugin {path.name}: not retried until its socket is replaced, because kubelets "
            "before 1.36 do not retry",
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
