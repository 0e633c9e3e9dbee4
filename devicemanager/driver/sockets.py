"""The registration socket and the service socket of one instance of a driver.

Drivers built on the Go library have the same file names, so that a rolling update from one to the
other works: ``<driver>-reg.sock`` and ``dra.sock``, or with the UID of the driver's pod
``<driver>-<uid>-reg.sock`` and ``dra-<uid>.sock``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from podresources.sockets import FileIdentity, check_path, remove_if_same, target
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc

__all__ = ["DRA_PLUGIN", "DriverSockets"]

DRA_PLUGIN = "DRAPlugin"
"""The type that a driver reports to the kubelet's plugin watcher."""

_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1))
_WORKERS = 32

AddServices = Callable[[grpc.Server], None]


class DriverSockets(pluginregistration_v1_grpc.RegistrationServicer):
    """The two sockets of one instance; both are served from ``start`` to ``stop``. Thread-safe.

    ``root`` is the kubelet's directory, such as ``/var/lib/kubelet``.
    """

    def __init__(
        self,
        driver: str,
        root: Path,
        services: Sequence[str],
        add_services: AddServices,
        *,
        uid: str = "",
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """``services`` is ``supported_versions`` of the registration. While ``ready()`` is false,
        GetInfo fails. Raises SocketPathError if a socket's path is too long."""
        self.driver = driver
        self.services = tuple(services)
        infix = f"-{uid}" if uid else ""
        self.registration_socket = root / "plugins_registry" / f"{driver}{infix}-reg.sock"
        self.service_socket = root / "plugins" / driver / f"dra{infix}.sock"
        for path in (self.registration_socket, self.service_socket):
            check_path(path)
        self._add_services = add_services
        self._ready = ready
        self._servers: list[tuple[grpc.Server, Path, FileIdentity | None]] = []
        self._changed = threading.Condition()
        self._statuses: list[pr.RegistrationStatus] = []

    def start(self) -> None:
        """Serve both sockets. Raises OSError if a socket cannot be created."""
        try:
            # The service first: the kubelet calls it right after the registration.
            self._serve(self.service_socket, self._add_services)
            self._serve(self.registration_socket, self._add_registration)
        except BaseException:
            self.stop()
            raise

    def _add_registration(self, server: grpc.Server) -> None:
        pluginregistration_v1_grpc.add_RegistrationServicer_to_server(self, server)

    def _serve(self, path: Path, add: AddServices) -> None:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        pool = DaemonThreadPoolExecutor(_WORKERS, f"driver-{path.name}")
        server = grpc.server(pool.for_grpc(), options=_OPTIONS)
        add(server)
        # gRPC removes the path that it bound when it stops, even if another program owns it then.
        # Therefore it binds a hidden name, and the public name is a link.
        bound = path.with_name(f".{secrets.token_hex(3)}")
        check_path(bound)
        try:
            server.add_insecure_port(target(bound))
            server.start()
            path.unlink(missing_ok=True)
            bound.rename(path)
        except BaseException as error:
            server.stop(None)
            bound.unlink(missing_ok=True)
            if isinstance(error, RuntimeError):
                raise OSError(f"cannot listen on {path}: {error}") from error
            raise
        self._servers.append((server, path, FileIdentity.of(path)))

    def stop(self, grace: float = 0.2, *, leave_sockets: bool = False) -> None:
        """Stop serving and remove the sockets; running calls get ``grace`` seconds. Idempotent.

        ``leave_sockets``: leave the files behind, as a driver that is killed does.
        """
        servers, self._servers = self._servers, []
        # The registration socket first, so that the kubelet makes no further calls.
        for server, path, identity in reversed(servers):
            if not leave_sockets:
                remove_if_same(path, identity)
            server.stop(0 if leave_sockets else grace).wait()

    def stop_service(self) -> None:
        """Stop the service socket only, and leave its file: the connection breaks."""
        with contextlib.suppress(StopIteration):
            found = next(each for each in self._servers if each[1] == self.service_socket)
            self._servers.remove(found)
            found[0].stop(0).wait()

    def start_service(self) -> None:
        """Serve the service socket again after ``stop_service``."""
        self._serve(self.service_socket, self._add_services)

    # -- registration ----------------------------------------------------------------

    @property
    def statuses(self) -> tuple[tuple[bool, str], ...]:
        """What the kubelet has reported so far: True if registered, and the error."""
        with self._changed:
            return tuple((each.plugin_registered, each.error) for each in self._statuses)

    def wait_registered(self, timeout: float = 10.0) -> bool:
        """Wait until the kubelet's latest report is a success; return False after ``timeout``."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._statuses) and self._statuses[-1].plugin_registered, timeout
            )

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
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
            self._statuses.append(request)
            self._changed.notify_all()
        return pr.RegistrationStatusResponse()
