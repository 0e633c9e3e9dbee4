"""The registration socket and the service socket of one instance of a driver."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from devicemanager.driver.paths import DriverPaths
from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.served import SERVER_OPTIONS, ServedSocket, replace
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc

__all__ = ["DRA_PLUGIN", "DriverSockets"]

DRA_PLUGIN = "DRAPlugin"
"""Plugin type that a driver reports to the kubelet's plugin watcher."""

# Each open health stream and each hanging call occupies one worker.
_WORKERS = 32
_SERVICE, _REGISTRATION = "service", "registration"

AddServices = Callable[[grpc.Server], None]


class DriverSockets(pluginregistration_v1_grpc.RegistrationServicer):
    """The two sockets of one driver instance, served from ``start`` to ``stop``. Thread-safe."""

    def __init__(
        self,
        driver: str,
        paths: DriverPaths,
        services: Sequence[str],
        add_services: AddServices,
        *,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """``services``: the ``supported_versions`` in the response to GetInfo. GetInfo fails while
        ``ready()`` is False."""
        self.driver = driver
        self.services = tuple(services)
        self.registration_socket = paths.registration_socket
        self.service_socket = paths.service_socket
        self._add_services = add_services
        self._ready = ready
        self._served: dict[str, ServedSocket] = {}
        self._changed = threading.Condition()
        self._statuses: list[pr.RegistrationStatus] = []

    def wait_served(self, timeout: float) -> bool:
        """Wait until both sockets are served; return False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(self.are_reachable, timeout)

    def start(self) -> None:
        """Serve the registration socket and the service socket.

        Raises OSError if a socket cannot be created.
        """
        try:
            # Serve the service socket first: the kubelet calls it right after the registration.
            self.start_service()
            self._serve(_REGISTRATION, self.registration_socket, self._add_registration)
        # Also after Ctrl-C: a service socket without a registration socket must not stay.
        except BaseException:
            self.stop()
            raise
        with self._changed:
            self._changed.notify_all()

    def _add_registration(self, server: grpc.Server) -> None:
        pluginregistration_v1_grpc.add_RegistrationServicer_to_server(self, server)

    def _serve(self, name: str, path: Path, add: AddServices) -> None:
        # The mode that the kubelet gives its own directories for plugins.
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        # Daemon threads, because a call that hangs must not keep the process alive.
        pool = DaemonThreadPoolExecutor(_WORKERS, f"driver-{path.name}")
        server = grpc.server(pool.for_grpc(), options=SERVER_OPTIONS)
        add(server)
        self._served[name] = ServedSocket(server, path.parent, replace(path))

    def stop(self, grace: float = 0.2, *, leave_sockets: bool = False) -> None:
        """Stop serving and remove the sockets; calls in flight get ``grace`` seconds. Idempotent.

        ``leave_sockets``: stop immediately and leave the files, like a driver that is killed.
        """
        # Emptied at once, so that a repeated call has nothing to stop.
        served, self._served = self._served, {}
        # Stop the registration socket first, so that the kubelet makes no further calls.
        for socket in reversed(served.values()):
            if not leave_sockets:
                # Before the server stops, so that no client connects to a dead socket.
                socket.hide()
            socket.close(0 if leave_sockets else grace).wait()

    def stop_service(self) -> None:
        """Stop serving the service socket, but leave its file. The kubelet's connection breaks."""
        with contextlib.suppress(KeyError):
            self._served.pop(_SERVICE).close(0).wait()

    def start_service(self) -> None:
        """Serve the service socket, for the first time or again after ``stop_service``."""
        self._serve(_SERVICE, self.service_socket, self._add_services)

    def are_reachable(self) -> bool:
        """True if both socket files still belong to this instance."""
        # A copy, because other threads can start or stop a server meanwhile.
        served = tuple(self._served.values())
        return len(served) == len((_SERVICE, _REGISTRATION)) and all(
            socket.is_reachable() for socket in served
        )

    # -- registration ----------------------------------------------------------------

    @property
    def statuses(self) -> tuple[tuple[bool, str], ...]:
        """The registration statuses that the kubelet has sent, oldest first. Each is a pair: True
        if the driver was registered, and the error text."""
        with self._changed:
            return tuple((each.plugin_registered, each.error) for each in self._statuses)

    def wait_registered(self, timeout: float = 10.0) -> bool:
        """Wait until the kubelet's latest registration status is a success. Return False after
        ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._statuses) and self._statuses[-1].plugin_registered, timeout
            )

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
        # The kubelet's plugin watcher repeats a failed GetInfo, so a driver can get ready later.
        if not self._ready():
            context.abort(grpc.StatusCode.UNAVAILABLE, "the driver is not ready yet")
        return pr.PluginInfo(
            type=DRA_PLUGIN,
            name=self.driver,
            endpoint=str(self.service_socket),
            supported_versions=self.services,
        )

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: grpc.ServicerContext
    ) -> pr.RegistrationStatusResponse:
        with self._changed:
            # Appended, not replaced: after its restart, the kubelet registers the driver again.
            self._statuses.append(request)
            self._changed.notify_all()
        return pr.RegistrationStatusResponse()
