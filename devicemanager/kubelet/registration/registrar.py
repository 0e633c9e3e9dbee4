"""Registration: what a plugin must show before it becomes an endpoint.

``Registrar`` holds the checks, for both ways a plugin can come: the Registration service
(``server``) and the plugin watcher (``watcher``). What waits is a task on one event loop;
what may block, callbacks of events among it, runs on a few threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from devicemanager.core import messages
from devicemanager.core.api.deviceplugin import VERSION
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import EndpointError
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.events.calls.log import CallLog, CallRecorder
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.injection_point import FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import FaultRegistry, Fired
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.registration.connection import Connection, OnError
from devicemanager.kubelet.registration.dialer import Dialer, DialError
from devicemanager.kubelet.registration.event_loop import LoopThread
from devicemanager.kubelet.registration.fault_injection import PluginFaults
from devicemanager.kubelet.settings import Settings

implements(InjectionPoint.REGISTERED, ())  # only actions fire there

OTHER_RESOURCES = ResourceName("other")
"""Registrations of names beyond the first ``_COUNTED`` are counted under this one."""
STOPPING = "the kubelet is stopping"

_COUNTED = 1000
_WORKERS = 8
_LONGEST_NAME = 512
"""Characters of a name that texts show; the longest valid one has 317."""

T = TypeVar("T")


class RegistrationRejected(EndpointError):
    """A registration that failed. The text is what the plugin is told, with gRPC's ``code``;
    ``reason`` is more, for the kubelet's own event."""

    def __init__(self, text: str, reason: str = "", code: str = "UNKNOWN") -> None:
        super().__init__(text)
        self.reason = reason
        self.code = code  # by default what a Go error becomes


class NotConnected(RegistrationRejected):
    """A registration that passed the checks, but whose plugin could not be connected."""


class Registrar:
    """Checks registrations, dials plugins and follows their lists.

    ``on_error`` gets exceptions that are bugs of ours, from the threads they happen on.
    ``calls`` records what is asked and answered; without it nothing is.
    """

    def __init__(
        self,
        handler: ClientHandler,
        settings: Settings,
        events: EventStream,
        on_error: OnError,
        calls: CallLog | None = None,
        faults: FaultRegistry | None = None,
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._events = events
        self._on_error = on_error
        self._calls = calls
        self.quirks = settings.quirks
        self.behaviour = settings.behaviour
        self.faults = faults or FaultRegistry()
        self.dialer = Dialer()
        self._loop = LoopThread()
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        # Guards the four below.
        self._lock = threading.Lock()
        self._connecting: set[Connection] = set()
        """Those of plugins that are not taken in yet."""
        self._counts: Counter[ResourceName] = Counter()
        self._processes: Counter[int] = Counter()
        """Registrations of each process, those that are not taken in yet among them."""
        self._on_answer: dict[EndpointId, tuple[Fired, ...]] = {}

    def counts(self) -> dict[ResourceName, int]:
        """Registrations per resource, rejected ones included
        (``kubelet_device_plugin_registration_total``)."""
        with self._lock:
            return dict(self._counts)

    def recorder(self, resource: str | None, plugin: str) -> CallRecorder | None:
        """What records the calls of one plugin, if anything does."""
        return None if self._calls is None else self._calls.recorder(resource, plugin)

    # -- tasks -----------------------------------------------------------------------

    def run(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a task on the event loop; ``interrupt`` cancels it. Raises OSError or
        RuntimeError if the loop cannot be made."""
        return self._loop.run(task)

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run what may block on a thread. What it raises and is no answer to the plugin is
        reported, and rejects the registration."""
        return await asyncio.wrap_future(self._pool.submit(self._guarded, call, *arguments))

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except RegistrationRejected:
            raise
        except BaseException as error:
            # Also SystemExit and the like, from a callback: it must not end the loop.
            self._on_error(error)
            raise RegistrationRejected(f"a bug of the device manager: {error!r}") from error

    # -- registration ----------------------------------------------------------------

    async def check(self, resource: ResourceName, versions: tuple[str, ...], socket: Path) -> None:
        """Count a registration and check its version, then its name.

        Raises RegistrationRejected with the kubelet's text
        (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go, v1.32).
        """
        self._count(resource)
        try:
            _check(resource, versions)
        except RegistrationRejected as rejected:
            await self._report(resource, socket, rejected)
            raise

    async def connect(
        self,
        resource: ResourceName,
        socket: Path,
        name: str,
        *,
        options: PluginOptions | None = None,
        dial_failed: str = messages.DIAL_FAILED,
    ) -> EndpointId:
        """Take in a plugin that passed the checks: dial, options, then its lists.

        ``name`` is what tells this plugin from others that offer the resource. It is asked
        for its options unless they are given. ``dial_failed`` is the text for a plugin that
        cannot be dialed. Raises NotConnected with the kubelet's text.
        """
        try:
            return await self._connect(resource, socket, name, options, dial_failed)
        except RegistrationRejected as rejected:
            await self._report(resource, socket, rejected)
            raise NotConnected(str(rejected), rejected.reason) from rejected

    async def reject(
        self, resource: ResourceName, rejected: RegistrationRejected
    ) -> RegistrationRejected:
        """Count and report a registration that is rejected for another reason."""
        self._count(resource)
        return await self.report(resource, rejected)

    async def report(
        self, resource: ResourceName, rejected: RegistrationRejected
    ) -> RegistrationRejected:
        """Report that a registration is rejected for another reason."""
        await self.in_thread(self._report_rejection, resource, repr(shown(resource)), rejected)
        return rejected

    async def _report(
        self, resource: ResourceName, socket: Path, rejected: RegistrationRejected
    ) -> None:
        what = f"{shown(resource)!r} at {socket.name!r}"
        await self.in_thread(self._report_rejection, resource, what, rejected)

    def _count(self, resource: ResourceName) -> None:
        """Count by name, but not by any number of names: who is rejected may name anything."""
        with self._lock:
            is_new = resource not in self._counts
            if is_new and (len(self._counts) >= _COUNTED or len(resource) > _LONGEST_NAME):
                resource = OTHER_RESOURCES
            self._counts[resource] += 1

    def _report_rejection(
        self, resource: ResourceName, what: str, rejected: RegistrationRejected
    ) -> None:
        reason = f" ({rejected.reason})" if rejected.reason else ""
        self._events.publish(
            EventKind.REGISTRATION_REJECTED,
            f"registration of {what} rejected: {rejected}{reason}",
            resource=shown(resource),
        )

    async def _connect(
        self,
        resource: ResourceName,
        socket: Path,
        name: str,
        options: PluginOptions | None,
        dial_failed: str,
    ) -> EndpointId:
        try:
            pid = await self.dialer.dial(socket, self._settings.dial_timeout)
        except DialError as error:
            # Whatever it was, the kubelet has waited until its deadline.
            text = dial_failed.format(error=messages.DEADLINE_EXCEEDED, socket=socket)
            raise RegistrationRejected(text, str(error)) from error
        self._take_place(pid, resource, name)
        faults = PluginFaults(self.faults, resource, name)
        connection = Connection(socket, self._settings, self.recorder(resource, name), faults)
        taken_in: Future[EndpointId] = Future()
        taken_in.set_running_or_notify_cancel()  # whoever waits may go, the thread goes on

        def serve() -> None:
            self._serve(connection, taken_in, resource, name, options, pid)

        with self._lock:
            self._connecting.add(connection)
        try:
            connection.run(serve)
        except RuntimeError as error:
            self._connected(connection)
            self._leave_place(pid)
            connection.close()
            raise RegistrationRejected(f"the kubelet has no thread left: {error}") from error
        try:
            return await asyncio.wrap_future(taken_in)
        except asyncio.CancelledError:
            # Nobody will take it any more: the socket is gone, or the kubelet stops. If it is
            # taken in all the same, its list's end takes it out again.
            self._pool.submit(connection.close)
            raise

    def _take_place(self, pid: int, resource: ResourceName, name: str) -> None:
        """One process may not take all threads and descriptors for itself, also not with
        plugins that never say their options. Plugins that share the kubelet's own process, as
        in tests, are trusted."""
        limit = self._settings.max_registrations_per_process
        if pid in (0, os.getpid()):
            limit = None
        # One that registers again has two until the older one has ended.
        replaces = self._handler.is_connected(resource, name)
        with self._lock:
            has = self._processes[pid]
            if limit is not None and has >= limit + replaces:
                raise RegistrationRejected(
                    f"process {pid} has {has} registrations, and "
                    f"Settings.max_registrations_per_process is {limit}"
                )
            self._processes[pid] += 1

    def _leave_place(self, pid: int) -> None:
        with self._lock:
            self._processes -= Counter((pid,))  # in place: drops those that reach 0

    def _connected(self, connection: Connection) -> None:
        """It is taken in now, or will not be."""
        with self._lock:
            self._connecting.discard(connection)

    def _serve(
        self,
        connection: Connection,
        taken_in: Future[EndpointId],
        resource: ResourceName,
        name: str,
        options: PluginOptions | None,
        pid: int,
    ) -> None:
        """One registration, on its connection's thread: ask for the options unless they are
        given, take the plugin in, read its lists until they end."""
        try:
            endpoint, is_read = self._guarded(self._take_in, connection, resource, name, options)
        except RegistrationRejected as rejected:
            self._leave_place(pid)
            taken_in.set_exception(rejected)
            return
        finally:
            self._connected(connection)
        taken_in.set_result(endpoint)
        if is_read:
            self._follow(endpoint, connection, pid)

    def _take_in(
        self,
        connection: Connection,
        resource: ResourceName,
        name: str,
        options: PluginOptions | None,
    ) -> tuple[EndpointId, bool]:
        """Also tells whether its lists are to be read. Raises RegistrationRejected."""
        try:
            if options is None:
                options = connection.options()
        except EndpointError as error:
            self._give_up(connection)
            raise RegistrationRejected(messages.OPTIONS_FAILED.format(error=error)) from error
        except BaseException:
            connection.close()
            raise
        try:
            socket = str(connection.path)
            endpoint = self._handler.connect(resource, name, options, connection, socket)
        except EndpointError as error:
            connection.close()
            raise RegistrationRejected(str(error)) from error
        return endpoint, not (self.faults.armed and self._ends_here(endpoint, resource, name))

    def _give_up(self, connection: Connection) -> None:
        """Close the connection of a rejected registration; with Q3 it stays open."""
        if "Q3" in self.quirks:
            self._handler.keep_open(connection)
        else:
            connection.close()

    def _ends_here(self, endpoint: EndpointId, resource: ResourceName, name: str) -> bool:
        """Whether a fault is to end this process once the plugin has its answer: then its list
        is not asked for any more."""
        occasion = FaultContext(resource, Path(name).name)
        fired = self.faults.at(InjectionPoint.REGISTERED, occasion, start=False)
        if fired:
            with self._lock:
                self._on_answer[endpoint] = fired
        return any(each.kind.ends_process for each in fired)

    def answered(self, endpoint: EndpointId) -> None:
        """The plugin has been told that it is registered."""
        if self._on_answer:
            with self._lock:
                fired = self._on_answer.pop(endpoint, ())
            for each in fired:
                each.start()

    def _follow(self, endpoint: EndpointId, connection: Connection, pid: int) -> None:
        def on_list(columns: Columns) -> None:
            if self.faults.armed:
                connection.list_came()
            self._handler.update(endpoint, columns)

        def on_end(cause: str) -> None:
            self._ended(endpoint, pid, cause)

        connection.watch(on_list, on_end, self._on_error)

    def _ended(self, endpoint: EndpointId, pid: int, cause: str) -> None:
        self._leave_place(pid)
        self._handler.disconnect(endpoint, cause)

    def deregister(self, endpoint: EndpointId) -> None:
        """Close the connection of a plugin whose announcing socket is gone."""
        self._handler.close_connection(endpoint)

    # -- end -------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Give up dialing and asking; what registers from now on is rejected."""
        self._loop.stop()

    def stop(self) -> None:
        """Wait for what is under way. The handler closes the connections."""
        self.interrupt()
        with self._lock:
            connecting = [*self._connecting]
        for connection in connecting:
            connection.join()
        self._pool.shutdown()


def shown(name: str) -> str:
    """A name as texts show it: not at any length."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _check(resource: ResourceName, versions: tuple[str, ...]) -> None:
    if VERSION not in versions:
        version = messages.go_quoted(shown(",".join(versions)))[1:-1]
        raise RegistrationRejected(messages.BAD_VERSION.format(version=version))
    if not is_extended_resource_name(resource):
        quoted = messages.go_quoted(shown(resource))[1:-1]
        raise RegistrationRejected(messages.BAD_RESOURCE_NAME.format(resource=quoted))
