"""Register plugins: all steps from the first check to the last device list of a plugin.

Theory of operation. The Registration service (``server``) and the plugin watcher (``watcher``)
call ``check`` and ``connect`` in a task on the event loop. A registration takes these steps:

1. ``check``: reject an unsupported version or an invalid resource name.
2. Dial: wait until the plugin's socket is served, for up to ``dial_timeout``.
3. Reserve a slot: the number of registrations per process is limited (``_reserve_slot``).
4. On the new connection's thread: call GetDevicePluginOptions, and pass the connection to the
   device manager. Kubelets up to v1.24 use the options in the Register request instead.
5. On the same thread: read the ListAndWatch stream until it ends. Free the slot and notify the
   device manager.

The task waits for step 4 and returns to ``server`` or ``watcher``, which answers the plugin.
The plugin's first list can arrive before that answer, as in the kubelet.

Waiting is done by tasks on the event loop. Code that can block, including callbacks of events, runs
on a thread pool (``in_thread``), and its exceptions cannot end the loop.

A registration in progress is canceled if the kubelet stops or the watched socket vanishes. Its
connection is then closed on the thread pool, because closing can block. If the device manager
already has the connection, the end of the ListAndWatch stream removes it. If no thread can be
started, the registration is rejected.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from devicemanager.core import messages
from devicemanager.core.api.deviceplugin import VERSION
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import EndpointError
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.core.printable import counted
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

STOPPING = "the kubelet is stopping"

_WORKERS = 8
_SHARES = 4
"""One process can take at most 1/4 of the free registrations."""
_LONGEST_NAME = 512
"""Maximum length of a name in texts. The longest valid name has 317 characters."""

T = TypeVar("T")


class RegistrationRejected(EndpointError):
    """Error for a failed registration.

    The plugin gets the text of the error, with the gRPC status ``code``. ``reason`` has more
    details for the kubelet's event.
    """

    def __init__(self, text: str, reason: str = "", code: str = "UNKNOWN") -> None:
        super().__init__(text)
        self.reason = reason
        self.code = code  # the default is the status of a Go error


class NotConnected(RegistrationRejected):
    """Error for a plugin that passed ``Registrar.check`` but could not be connected."""


class LimitReached(RegistrationRejected):
    """Error for a process that has too many registrations. A real kubelet has no such limit."""


# Not an attrs class: attrs generates its methods at every start.
class Texts(NamedTuple):
    """Error texts for a plugin.

    The defaults are the texts of the Registration service. The plugin watcher has different texts,
    which are set in the module ``handlers``.
    """

    bad_version: str = messages.BAD_VERSION
    bad_resource_name: str = messages.BAD_RESOURCE_NAME
    dial_failed: str = messages.DIAL_FAILED
    failed: str = "{error}"
    """Text for an error that occurs after version and name were accepted. ``{error}`` stands for
    the error."""


_OF_SERVICE = Texts()


def check_registrations(
    processes: Counter[int], pid: int, settings: Settings, *, replaces: bool = False
) -> None:
    """Raise LimitReached if the process ``pid`` may not have one more registration.

    ``processes`` has the number of registrations by process ID. ``replaces``: True if the new
    registration replaces an earlier registration of the same process.
    """
    count, per_process = processes[pid], settings.max_registrations_per_process
    # A process ID of 0 means that the process is in another PID namespace, as all others of this
    # number may be: they share only the total.
    if pid and per_process is not None and count >= per_process + replaces:
        raise LimitReached(
            f"process {pid} already has {counted(count, 'registration')}: the limit is "
            f"{per_process} (Settings.max_registrations_per_process)"
        )
    most = settings.max_registrations
    if most is None or replaces:
        return
    total = processes.total() - processes[os.getpid()]
    free = most - total
    # Processes that fork share what is left, and cannot take all of it.
    if free <= 0 or (pid and count >= -(-free // _SHARES)):
        raise LimitReached(
            f"process {pid} has {counted(count, 'registration')} and can have no more: all "
            f"processes have {total}, and the limit is {most} (Settings.max_registrations); one "
            "process can have at most a quarter of the registrations that are left"
        )


class Registrar:
    """Registrar of plugins: checks registrations, connects to plugins, reads their device lists.

    Thread-safe. ``on_error`` is called with exceptions that are bugs of devicemanager, on the
    thread where they happen. ``calls`` records all RPCs; with None they are not recorded.
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
        # A few threads are enough: only callbacks of tests can block for long.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        # Guards the three fields below.
        self._lock = threading.Lock()
        self._connecting: set[Connection] = set()
        """Plugin connections that the device manager does not have yet."""
        self._processes: Counter[int] = Counter()
        """Number of registrations of each plugin process, including registrations in progress. The
        keys are process IDs."""
        self._on_answer: dict[EndpointId, tuple[Fired, ...]] = {}

    def recorder(self, resource: str | None, plugin: str) -> CallRecorder | None:
        """Return a recorder for the calls of one plugin; None if calls are not recorded."""
        return None if self._calls is None else self._calls.recorder(resource, plugin)

    # -- tasks -----------------------------------------------------------------------

    def run(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a task on the event loop and return its future; ``interrupt`` cancels the task.

        Raises OSError or RuntimeError if the loop cannot be created.
        """
        return self._loop.run(task)

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function that may block, on another thread, and return its result.

        An exception other than RegistrationRejected is reported as a bug, and raised as
        RegistrationRejected.
        """
        return await asyncio.wrap_future(self._pool.submit(self._guarded, call, *arguments))

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except RegistrationRejected:
            raise
        except BaseException as error:
            # This includes SystemExit from a callback of events, which must not end the event loop.
            self._on_error(error)
            raise RegistrationRejected(f"a bug of the device manager: {error!r}") from error

    # -- registration ----------------------------------------------------------------

    async def check(
        self,
        resource: ResourceName,
        versions: tuple[str, ...],
        socket: Path,
        texts: Texts = _OF_SERVICE,
    ) -> None:
        """Check the API version and the resource name of a registration.

        Raises RegistrationRejected with the kubelet's text if version or name is invalid
        (pkg/kubelet/cm/devicemanager/plugin/v1beta1, server.go and handler.go, v1.32).
        """
        try:
            _check(resource, versions, texts)
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
        texts: Texts = _OF_SERVICE,
    ) -> EndpointId:
        """Connect to a plugin after ``check``, and read its device lists in the background.

        Returns the ID of the registration. ``name`` distinguishes plugins of the same resource.
        If ``options`` is None, GetDevicePluginOptions is called. Raises NotConnected, with the
        kubelet's text, if the plugin cannot be connected; LimitReached if its process has too many
        registrations.
        """
        try:
            return await self._connect(resource, socket, name, options, texts.dial_failed)
        except RegistrationRejected as rejected:
            kind = LimitReached if isinstance(rejected, LimitReached) else NotConnected
            failed = kind(texts.failed.format(error=rejected), rejected.reason)
            await self._report(resource, socket, failed)
            raise failed from rejected

    async def report(
        self, resource: ResourceName, rejected: RegistrationRejected
    ) -> RegistrationRejected:
        """Publish an event for a rejected registration, and return ``rejected``.

        The caller raises the returned error.
        """
        await self.in_thread(self._report_rejection, resource, repr(shown(resource)), rejected)
        return rejected

    async def _report(
        self, resource: ResourceName, socket: Path, rejected: RegistrationRejected
    ) -> None:
        what = f"{shown(resource)!r} at {socket.name!r}"
        await self.in_thread(self._report_rejection, resource, what, rejected)

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
            # Dialed before a channel is opened: gRPC would need a thread to wait for a connection.
            pid = await self.dialer.dial(socket, self._settings.dial_timeout)
        except DialError as error:
            # The kubelet's error does not depend on the cause: it always reports its deadline.
            text = dial_failed.format(error=messages.DEADLINE_EXCEEDED, socket=socket)
            raise RegistrationRejected(text, str(error)) from error
        self._reserve_slot(pid, resource, name)
        faults = PluginFaults(self.faults, resource, name)
        connection = Connection(socket, self._settings, self.recorder(resource, name), faults)
        result: Future[EndpointId] = Future()
        result.set_running_or_notify_cancel()  # not cancellable, because the thread would continue

        def serve() -> None:
            self._serve(connection, result, resource, name, options, pid)

        with self._lock:
            # ``stop`` waits for these connections, which the device manager does not have yet.
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
            # The watched socket vanished, or the kubelet stops. If the connection is passed to the
            # device manager before it is closed, the end of its stream removes it.
            self._pool.submit(connection.close)
            raise

    def _reserve_slot(self, pid: int, resource: ResourceName, name: str) -> None:
        """Count a registration of a process; raise RegistrationRejected if it has too many.

        Without limits, plugins could exhaust all threads and file descriptors. Plugins in the
        kubelet's own process, as in tests, are not limited.
        """
        # A plugin that re-registers has two connections until the older one has ended.
        replaces = self._handler.is_connected(resource, name)
        with self._lock:
            if pid != os.getpid():
                check_registrations(self._processes, pid, self._settings, replaces=replaces)
            self._processes[pid] += 1

    def _free_slot(self, pid: int) -> None:
        with self._lock:
            self._processes -= Counter((pid,))  # in place: removes counts of 0

    def _connected(self, connection: Connection) -> None:
        """Record that a connection was passed to the device manager, or that it never will be."""
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
        """Run the connection's thread: pass the connection to the manager and read its lists."""
        try:
            # Guarded, because exceptions of this thread would be lost otherwise.
            endpoint, is_read = self._guarded(self._take_in, connection, resource, name, options)
        except RegistrationRejected as rejected:
            self._free_slot(pid)
            result.set_exception(rejected)
            return
        finally:
            self._connected(connection)
        result.set_result(endpoint)
        # The result is set first, so that Register is answered while the first list is read.
        if is_read:
            self._follow(endpoint, connection, pid)

    def _take_in(
        self,
        connection: Connection,
        resource: ResourceName,
        name: str,
        options: PluginOptions | None,
    ) -> tuple[EndpointId, bool]:
        """Call GetDevicePluginOptions if needed, and pass the connection to the device manager.

        Returns the number of the registration, and True if its lists must be read. Raises
        RegistrationRejected if the call or the registration fails.
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
        """Close the connection of a rejected registration, or leave it open with quirk Q3."""
        if "Q3" in self.quirks:
            self._handler.keep_open(connection)
        else:
            connection.close()

    def _ends_here(self, endpoint: EndpointId, resource: ResourceName, name: str) -> bool:
        """True if an injected fault ends the kubelet's process after the response to Register.

        The plugin's lists are not read in this case.
        """
        context = FaultContext(resource, Path(name).name)
        # The faults are started in ``answered``: the plugin gets its response before the process
        # ends.
        fired = self.faults.at(InjectionPoint.REGISTERED, context, start=False)
        if fired:
            with self._lock:
                self._on_answer[endpoint] = fired
        return any(each.kind.ends_process for each in fired)

    def answered(self, endpoint: EndpointId) -> None:
        """Start the injected faults that had to wait until Register was answered."""
        # Checked without the lock, because without faults the mapping is always empty.
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
        """Close the connection of a plugin whose socket in ``plugins_registry`` has vanished."""
        self._handler.close_connection(endpoint)

    # -- end -------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Cancel all tasks; later registrations are rejected."""
        self._loop.stop()

    def stop(self) -> None:
        """Cancel all tasks, and wait until the connections of unfinished registrations have ended.

        The device manager closes the connections that it already has.
        """
        self.interrupt()
        with self._lock:
            connecting = [*self._connecting]
        for connection in connecting:
            # These connections end by themselves, because their tasks have been cancelled.
            connection.join()
        self._pool.shutdown()


def shown(name: str) -> str:
    """Return a name for use in messages.

    A name of more than 512 characters is cut to 512 characters, followed by ``...``.
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _check(resource: ResourceName, versions: tuple[str, ...], texts: Texts) -> None:
    # The order of the checks decides the text: the kubelet checks the version first.
    if VERSION not in versions:
        quoted = messages.go_quoted(shown(",".join(versions)))[1:-1]
        listed = shown(" ".join(versions))
        raise RegistrationRejected(texts.bad_version.format(version=quoted, versions=listed))
    if not is_extended_resource_name(resource):
        quoted = messages.go_quoted(shown(resource))[1:-1]
        raise RegistrationRejected(texts.bad_resource_name.format(resource=quoted))
