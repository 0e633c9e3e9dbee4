"""The two modes of registration with a kubelet; an attempt can be cancelled at any time.

``DirectRegistration``: the plugin calls Register on the kubelet's socket. ``WatchedRegistration``:
the kubelet's plugin watcher finds the plugin's socket, calls GetInfo on this socket, and reports
the outcome with NotifyRegistrationStatus.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, Protocol

import grpc

from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN, KUBELET_SOCKET, VERSION
from devicemanager.plugin.errors import RegistrationFailed
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.settings import PluginSettings
from podresources.sockets import CHANNEL_OPTIONS, FileIdentity, target
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc, pluginregistration_v1_grpc
from protos import pluginregistration_v1 as pr

__all__ = [
    "DirectRegistration",
    "PendingResponse",
    "RegistrationMode",
    "WatchedRegistration",
    "registration_mode",
]


class PendingResponse(Protocol):
    """The kubelet's response to a registration, as a future."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None: ...

    def done(self) -> bool: ...


class RegistrationMode(Protocol):
    """Way in which a plugin is registered: by its Register call, or by the plugin watcher.

    An object of this type is used for one ``PluginServer`` at a time.
    """

    path: Path
    """File or directory that must exist before the plugin is served."""

    def kubelet(self) -> FileIdentity | None:
        """Return the identity of the running kubelet; None if no kubelet is running.

        The identity changes when a restart requires a new registration.
        """

    def add_to(self, server: grpc.Server) -> None:
        """Add to ``server`` the gRPC service of this mode, if any.

        Called before the server starts.
        """

    def register(self, server: PluginServer, wait: Callable[[PendingResponse], bool]) -> bool:
        """Try to register once, and return True if the kubelet accepts.

        ``wait`` waits for the kubelet's response. If ``wait`` returns False, cancel the attempt and
        return False. Raises RegistrationFailed if the kubelet is unreachable or rejects the
        registration.
        """


class DirectRegistration:
    """Registration by a Register call on the kubelet's socket in the plugin directory."""

    def __init__(self, directory: Path, resource: str, settings: PluginSettings) -> None:
        self.path = directory / KUBELET_SOCKET
        self._resource = resource
        self._timeout = settings.register_timeout

    def kubelet(self) -> FileIdentity | None:
        return FileIdentity.of(self.path)

    def add_to(self, server: grpc.Server) -> None:
        """Add no service, because the kubelet calls only the DevicePlugin service."""

    def register(self, server: PluginServer, wait: Callable[[PendingResponse], bool]) -> bool:
        # The kubelet dials the endpoint and opens the ListAndWatch stream before it responds. So
        # the caller must not hold a lock that the handlers of these calls need.
        request = dp.RegisterRequest(
            version=VERSION,
            endpoint=server.endpoint,
            resource_name=self._resource,
            options=server.service.options(),
        )
        with grpc.insecure_channel(target(self.path), options=CHANNEL_OPTIONS) as channel:
            stub = deviceplugin_v1beta1_grpc.RegistrationStub(channel)
            call = stub.Register.future(request, timeout=self._timeout)
            if not wait(call):
                call.cancel()
                return False
            try:
                call.result()
            except grpc.RpcError as error:
                raise RegistrationFailed(_text(error)) from error
        return True


class WatchedRegistration(pluginregistration_v1_grpc.RegistrationServicer):
    """Registration by the kubelet's plugin watcher, which finds the plugin's socket.

    A starting kubelet processes all existing sockets, so the plugin need not detect restarts of the
    kubelet.
    """

    def __init__(self, directory: Path, resource: str) -> None:
        self.path = directory
        self._resource = resource
        self._outcome: Future[dp.Empty] = Future()

    def kubelet(self) -> FileIdentity | None:
        # Return a constant, because every created or removed socket changes the directory's times.
        return FileIdentity(0, 0, 0) if self.path.is_dir() else None

    def add_to(self, server: grpc.Server) -> None:
        self._outcome = Future()
        pluginregistration_v1_grpc.add_RegistrationServicer_to_server(self, server)

    def register(self, server: PluginServer, wait: Callable[[PendingResponse], bool]) -> bool:
        outcome = self._outcome
        if not wait(outcome):
            return False
        # The kubelet retries after a rejection: prepare for the next outcome.
        self._outcome = Future()
        outcome.result()
        return True

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
        return pr.PluginInfo(type=DEVICE_PLUGIN, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: grpc.ServicerContext
    ) -> pr.RegistrationStatusResponse:
        # Calls after the first success are ignored: the end of the ListAndWatch stream is a better
        # signal that the registration was lost.
        with contextlib.suppress(InvalidStateError):
            if request.plugin_registered:
                self._outcome.set_result(dp.Empty())
            else:
                self._outcome.set_exception(RegistrationFailed(request.error))
        return pr.RegistrationStatusResponse()


def registration_mode(directory: Path, resource: str, settings: PluginSettings) -> RegistrationMode:
    """Return a WatchedRegistration if ``settings.announce`` is True, else a DirectRegistration."""
    if settings.announce:
        return WatchedRegistration(directory, resource)
    return DirectRegistration(directory, resource, settings)


def _text(error: grpc.RpcError) -> str:
    """Return the kubelet's error text on one line, with the gRPC status code."""
    if not isinstance(error, grpc.Call):
        return str(error)
    text = " ".join((error.details() or "").split())
    return f"{text} ({error.code().name})"
