"""Registration: what a plugin must show before it becomes an endpoint.

``Registrar`` holds the checks, for both ways a plugin can come: the Registration
service here, and the plugin watcher (``pluginwatcher``).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from devicemanager.api.deviceplugin import VERSION
from devicemanager.api.names import is_extended_resource_name
from devicemanager.core import messages
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import PluginError
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.events import EventKind, EventStream
from devicemanager.manager.handler import ClientHandler
from devicemanager.registration.connection import Connection, DialError
from devicemanager.settings import Settings

MAX_FILE_NAME = 255
_WORKERS = 32
"""Registrations that may be dialed at a time; more wait."""


class RegistrationRefused(PluginError):
    """A registration that failed; the text is what the plugin is told."""


class Registrar:
    """Checks registrations, dials plugins and follows their lists.

    ``on_error`` gets exceptions that are bugs of ours, from the threads they happen on.
    """

    def __init__(
        self,
        handler: ClientHandler,
        settings: Settings,
        events: EventStream,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._events = events
        self._on_error = on_error
        self.quirks = settings.quirks
        self._stopping = threading.Event()
        # Guards _asking, _endpoints and _counts.
        self._lock = threading.Lock()
        self._asking: set[Connection] = set()
        self._endpoints: dict[Connection, Path] = {}
        self._counts: Counter[ResourceName] = Counter()

    def counts(self) -> dict[ResourceName, int]:
        """Registrations per resource, refused ones included
        (``kubelet_device_plugin_registration_total``)."""
        with self._lock:
            return dict(self._counts)

    def register(
        self,
        resource: ResourceName,
        versions: tuple[str, ...],
        socket: Path,
        announced_at: Path | None = None,
    ) -> None:
        """Take a plugin in: version, name, dial, options, in this order, then its lists.

        ``announced_at`` is the socket that ``deregister`` will be told of, for plugins
        that the watcher found.

        Raises RegistrationRefused with the kubelet's text
        (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go, v1.32).
        """
        self._count(resource)
        try:
            _check(resource, versions)
            self._connect(resource, socket, announced_at)
        except RegistrationRefused as refused:
            self._report_refusal(resource, f"{resource!r} at {socket.name!r}", refused)
            raise

    def refuse(self, resource: ResourceName, reason: str) -> RegistrationRefused:
        """Count and report a registration that is refused for another reason."""
        self._count(resource)
        refused = RegistrationRefused(reason)
        self._report_refusal(resource, repr(resource), refused)
        return refused

    def _count(self, resource: ResourceName) -> None:
        with self._lock:
            self._counts[resource] += 1

    def _report_refusal(
        self, resource: ResourceName, what: str, refused: RegistrationRefused
    ) -> None:
        self._events.publish(
            EventKind.REGISTRATION_REFUSED,
            f"registration of {what} refused: {refused}",
            resource=resource,
        )

    def _connect(self, resource: ResourceName, socket: Path, announced_at: Path | None) -> None:
        try:
            endpoint = Connection.dial(socket, self._settings, self._stopping)
        except DialError as error:
            raise RegistrationRefused(messages.DIAL_FAILED.format(error=error)) from error
        try:
            options = self._options(endpoint)
        except PluginError as error:
            self._give_up(endpoint)
            raise RegistrationRefused(messages.OPTIONS_FAILED.format(error=error)) from error
        with self._lock:
            stopping = self._stopping.is_set()
            if not stopping:
                self._endpoints[endpoint] = announced_at or socket
        if stopping:
            endpoint.close()
            raise RegistrationRefused("the kubelet is stopping")
        # By its name in the plugin directory, or by its path wherever the watcher found it.
        name = socket.name if announced_at is None else str(socket)
        try:
            id_ = self._handler.connect(resource, name, options, endpoint)
        except PluginError as error:
            self._discard(endpoint)
            raise RegistrationRefused(str(error)) from error
        self._follow(id_, endpoint)

    def _give_up(self, endpoint: Connection) -> None:
        """Close the connection of a refused registration; with Q3 it stays open."""
        if "Q3" not in self.quirks:
            return endpoint.close()
        with self._lock:
            self._endpoints[endpoint] = endpoint.path

    def _options(self, endpoint: Connection) -> PluginOptions:
        """GetDevicePluginOptions, which ``interrupt`` cuts short."""
        with self._lock:
            self._asking.add(endpoint)
        try:
            if self._stopping.is_set():
                raise PluginError("the kubelet is stopping")
            return endpoint.options()
        finally:
            with self._lock:
                self._asking.discard(endpoint)

    def _discard(self, endpoint: Connection) -> None:
        endpoint.close()
        with self._lock:
            self._endpoints.pop(endpoint, None)

    def _follow(self, id_: EndpointId, endpoint: Connection) -> None:
        def on_list(columns: Columns) -> None:
            self._handler.update(id_, columns)

        def on_end(cause: str) -> None:
            self._handler.disconnect(id_, cause)
            self._discard(endpoint)

        endpoint.watch(on_list, on_end, self._on_error)

    def deregister(self, socket: Path) -> None:
        """Close the connections of a plugin whose announcing socket is gone."""
        with self._lock:
            gone = [endpoint for endpoint, path in self._endpoints.items() if path == socket]
        for endpoint in gone:
            endpoint.close()

    def interrupt(self) -> None:
        """Give up dialing and asking; what registers from now on is refused."""
        self._stopping.set()
        with self._lock:
            asking = list(self._asking)
        for endpoint in asking:
            endpoint.close()

    def stop(self) -> None:
        """Close every connection and wait for the list threads."""
        self.interrupt()
        with self._lock:
            endpoints = list(self._endpoints)
        for endpoint in endpoints:
            endpoint.close()
        for endpoint in endpoints:
            endpoint.join()


def _check(resource: ResourceName, versions: tuple[str, ...]) -> None:
    if VERSION not in versions:
        version = messages.go_quoted(",".join(versions))[1:-1]
        raise RegistrationRefused(messages.BAD_VERSION.format(version=version))
    if not is_extended_resource_name(resource):
        quoted = messages.go_quoted(resource)[1:-1]
        raise RegistrationRefused(messages.BAD_RESOURCE_NAME.format(resource=quoted))
