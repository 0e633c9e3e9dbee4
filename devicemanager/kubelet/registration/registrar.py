"""Register plugins: the checks and steps that every plugin goes through.

Theory of operation. The Registration service (``server``) and the plugin watcher (``watcher``)
call ``check`` and ``connect`` in a task on the event loop. A registration takes these steps:

1. ``check``: count it; reject an unsupported version, then an invalid resource name.
2. Dial: wait until the plugin's socket is served, up to ``dial_timeout``.
3. Reserve a slot: the number of registrations per process is limited (``_reserve_slot``).
4. On the new connection's own thread: call GetDevicePluginOptions, unless the options are
   known, and give the connection to the manager.
5. On the same thread: read the ListAndWatch stream until it ends, then free the slot and notify
   the manager.

The task waits for step 4 and returns to ``server`` or ``watcher``, which answers the plugin.
The plugin's first list can arrive before that answer, as in the kubelet.

Two things can stop a registration in the middle. The kubelet stops, or the watched socket
vanishes: the task is cancelled, and the connection is closed on the pool, because closing can
block. If the manager has already added it, the end of its ListAndWatch stream removes it. Or no
thread can be started: the registration is rejected.

What waits is a task on the event loop. What can block runs on the pool (``in_thread``), also
callbacks of events, and no exception of these ends the loop.
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
"""Registrations of further resource names are counted under this name."""
STOPPING = "the kubelet is stopping"

_COUNTED = 1000
_WORKERS = 8
_LONGEST_NAME = 512
"""Characters of a name that texts show; the longest valid name has 317."""

T = TypeVar("T")


class RegistrationRejected(EndpointError):
    """A registration failed. The plugin gets the text, with the gRPC status ``code``.

    ``reason`` has more details, for the kubelet's own event.
    """

    def __init__(self, text: str, reason: str = "", code: str = "UNKNOWN") -> None:
        super().__init__(text)
        self.reason = reason
        self.code = code  # the default is the status of a Go error


class NotConnected(RegistrationRejected):
    """A registration passed the checks, but the plugin could not be connected."""


class Registrar:
    """Registrar: checks registrations, dials plugins and reads their lists; thread-safe.

    ``on_error`` gets exceptions that are bugs of devicemanager, on the thread where they
    happen. ``calls`` records all RPCs; None records nothing.
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
        # Few threads: what blocks here is short, except for callbacks of tests.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        # Guards the four fields below.
        self._lock = threading.Lock()
        self._connecting: set[Connection] = set()
        """Connections of plugins that the manager does not know yet."""
        self._counts: Counter[ResourceName] = Counter()
        self._processes: Counter[int] = Counter()
        """Registrations by process ID, including those in progress."""
        self._on_answer: dict[EndpointId, tuple[Fired, ...]] = {}

    def counts(self) -> dict[ResourceName, int]:
        """Return the number of registrations per resource, rejected ones included
        (``kubelet_device_plugin_registration_total``)."""
        with self._lock:
            return dict(self._counts)

    def recorder(self, resource: str | None, plugin: str) -> CallRecorder | None:
        """Return a recorder for the calls of one plugin, if calls are recorded."""
        return None if self._calls is None else self._calls.recorder(resource, plugin)

    # -- tasks -----------------------------------------------------------------------

    def run(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a task on the event loop; ``interrupt`` cancels it.

        Raises OSError or RuntimeError if the loop cannot be created.
        """
        return self._loop.run(task)

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that can block on the pool.

        An exception other than RegistrationRejected is reported as a bug and rejects the
        registration.
        """
        return await asyncio.wrap_future(self._pool.submit(self._guarded, call, *arguments))

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except RegistrationRejected:
            raise
        except BaseException as error:
            # Also SystemExit, from a callback of events: it must not end the event loop.
            self._on_error(error)
            raise RegistrationRejected(f"a bug of the device manager: {error!r}") from error

    # -- registration ----------------------------------------------------------------

    async def check(self, resource: ResourceName, versions: tuple[str, ...], socket: Path) -> None:
        """Count a registration, then check its version and its name.

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
        """Register a plugin that passed the checks: dial, options, then its lists.

        ``name`` distinguishes the plugin from others of the resource. Its options are requested
        unless they are given. ``dial_failed`` is the text for a plugin that cannot be dialed.
        Raises NotConnected with the kubelet's text.
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
        """Report a registration that is rejected for another reason."""
        await self.in_thread(self._report_rejection, resource, repr(shown(resource)), rejected)
        return rejected

    async def _report(
        self, resource: ResourceName, socket: Path, rejected: RegistrationRejected
    ) -> None:
        what = f"{shown(resource)!r} at {socket.name!r}"
        await self.in_thread(self._report_rejection, resource, what, rejected)

    def _count(self, resource: ResourceName) -> None:
        """Count a registration by name. Only the first 1000 names are counted separately,
        because an unchecked registration can have any name."""
        with self._lock:
            is_new = resource not in self._counts
            # An unbounded dict would let a flood of invalid names use up the memory.
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
            # Before a channel exists: gRPC needs a thread to wait for a connection.
            pid = await self.dialer.dial(socket, self._settings.dial_timeout)
        except DialError as error:
            # The kubelet's error does not depend on the cause: its dialing ends at the deadline.
            text = dial_failed.format(error=messages.DEADLINE_EXCEEDED, socket=socket)
            raise RegistrationRejected(text, str(error)) from error
        self._reserve_slot(pid, resource, name)
        faults = PluginFaults(self.faults, resource, name)
        connection = Connection(socket, self._settings, self.recorder(resource, name), faults)
        result: Future[EndpointId] = Future()
        result.set_running_or_notify_cancel()  # not cancellable: the thread continues anyway

        def serve() -> None:
            self._serve(connection, result, resource, name, options, pid)

        with self._lock:
            # ``stop`` joins these: the manager does not know them yet.
            self._connecting.add(connection)
        try:
            connection.run(serve)
        except RuntimeError as error:
            self._connected(connection)
            self._free_slot(pid)
            connection.close()
            raise RegistrationRejected(f"the kubelet cannot start a thread: {error}") from error
        try:
            return await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            # The watched socket vanished, or the kubelet stops. If the manager
            # takes the connection in before it is closed, the end of its list
            # stream removes it again.
            self._pool.submit(connection.close)
            raise

    def _reserve_slot(self, pid: int, resource: ResourceName, name: str) -> None:
        """Count a connection of a process, and reject it if the process has too many.

        Otherwise one process could use up all threads and file descriptors, even with plugins
        that never answer. Plugins in the kubelet's own process, as in tests, are trusted.
        """
        limit = self._settings.max_registrations_per_process
        # A process ID of 0 is one of another pid namespace: it cannot be counted.
        if pid in (0, os.getpid()):
            limit = None
        # A plugin that re-registers has two connections until the older one has ended.
        replaces = self._handler.is_connected(resource, name)
        with self._lock:
            count = self._processes[pid]
            if limit is not None and count >= limit + replaces:
                raise RegistrationRejected(
                    f"process {pid} has {count} registrations, and "
                    f"Settings.max_registrations_per_process is {limit}"
                )
            self._processes[pid] += 1

    def _free_slot(self, pid: int) -> None:
        with self._lock:
            self._processes -= Counter((pid,))  # in place: removes counts of 0

    def _connected(self, connection: Connection) -> None:
        """Record that the manager has, or never will have, the connection."""
        with self._lock:
            self._connecting.discard(connection)

    def _serve(
        self,
        connection: Connection,
        result: Future[EndpointId],
        resource: ResourceName,
        name: str,
        options: PluginOptions | None,
        pid: int,
    ) -> None:
        """Serve one registration, on its connection's thread: options, the manager, then its
        lists."""
        try:
            # The connection's thread has no other owner: without a guard its exceptions would be
            # lost.
            endpoint, is_read = self._guarded(self._take_in, connection, resource, name, options)
        except RegistrationRejected as rejected:
            self._free_slot(pid)
            result.set_exception(rejected)
            return
        finally:
            self._connected(connection)
        result.set_result(endpoint)
        # After the result is set, so that Register is answered while the first list is read.
        if is_read:
            self._follow(endpoint, connection, pid)

    def _take_in(
        self,
        connection: Connection,
        resource: ResourceName,
        name: str,
        options: PluginOptions | None,
    ) -> tuple[EndpointId, bool]:
        """Get the plugin's options and give its connection to the manager.

        Returns its number, and whether its lists are to be read. Raises RegistrationRejected.
        """
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
        """Close the connection of a rejected registration; with Q3 leave it open."""
        if "Q3" in self.quirks:
            self._handler.keep_open(connection)
        else:
            connection.close()

    def _ends_here(self, endpoint: EndpointId, resource: ResourceName, name: str) -> bool:
        """True if an injected fault ends this process after the response to the plugin.

        Its lists are not read then.
        """
        context = FaultContext(resource, Path(name).name)
        # Chosen now, started in ``answered``: the plugin gets its response before the process ends.
        fired = self.faults.at(InjectionPoint.REGISTERED, context, start=False)
        if fired:
            with self._lock:
                self._on_answer[endpoint] = fired
        return any(each.kind.ends_process for each in fired)

    def answered(self, endpoint: EndpointId) -> None:
        """Start the faults that were waiting until the plugin had its response."""
        # Checked without the lock: without faults this is always empty.
        if self._on_answer:
            with self._lock:
                fired = self._on_answer.pop(endpoint, ())
            for each in fired:
                each.start()

    def _follow(self, endpoint: EndpointId, connection: Connection, pid: int) -> None:
        def on_list(columns: Columns) -> None:
            if self.faults.armed:
                connection.list_arrived()
            self._handler.update(endpoint, columns)

        def on_end(cause: str) -> None:
            self._ended(endpoint, pid, cause)

        connection.watch(on_list, on_end, self._on_error)

    def _ended(self, endpoint: EndpointId, pid: int, cause: str) -> None:
        self._free_slot(pid)
        self._handler.disconnect(endpoint, cause)

    def deregister(self, endpoint: EndpointId) -> None:
        """Close the connection of a plugin whose announcing socket is gone."""
        self._handler.close_connection(endpoint)

    # -- end -------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Cancel all tasks; later registrations are rejected."""
        self._loop.stop()

    def stop(self) -> None:
        """Cancel all tasks and wait for the connections in progress. The manager closes the
        others."""
        self.interrupt()
        with self._lock:
            connecting = [*self._connecting]
        for connection in connecting:
            # Connections that are not taken in end by themselves: the loop has cancelled their
            # tasks.
            connection.join()
        self._pool.shutdown()


def shown(name: str) -> str:
    """Return a name as texts show it, cut if it is very long."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _check(resource: ResourceName, versions: tuple[str, ...]) -> None:
    # The order of the checks decides the text: the kubelet checks the version first.
    if VERSION not in versions:
        version = messages.go_quoted(shown(",".join(versions)))[1:-1]
        raise RegistrationRejected(messages.BAD_VERSION.format(version=version))
    if not is_extended_resource_name(resource):
        quoted = messages.go_quoted(shown(resource))[1:-1]
        raise RegistrationRejected(messages.BAD_RESOURCE_NAME.format(resource=quoted))
