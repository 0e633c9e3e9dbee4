"""The two ways to register, and one attempt, which can be cancelled at any moment.

``DirectRegistration``: the plugin calls Register on the kubelet's socket. ``WatchedRegistration``:
the kubelet's plugin watcher finds the plugin's socket, calls GetInfo there, and reports the
outcome with NotifyRegistrationStatus.
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
    """A response that has not arrived yet."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None: ...

    def done(self) -> bool: ...


class RegistrationMode(Protocol):
    """How one resource registers, for one session at a time."""

    path: Path
    """The file or directory that must exist before anything is served."""

    def kubelet(self) -> FileIdentity | None:
        """Identify the running kubelet; None if there is none.

        The identity changes when a restart requires a new registration.
        """

    def add_to(self, server: grpc.Server) -> None:
        """Add the service that this mode needs; called once for each new server."""

    def register(self, server: PluginServer, wait: Callable[[PendingResponse], bool]) -> bool:
        """Register once; return False if ``wait`` gave up. Raises RegistrationFailed."""


class DirectRegistration:
    """Register on the kubelet's own socket in the plugin directory."""

    def __init__(self, directory: Path, resource: str, settings: PluginSettings) -> None:
        self.path = directory / KUBELET_SOCKET
        self._resource = resource
        self._timeout = settings.register_timeout

    def kubelet(self) -> FileIdentity | None:
        return FileIdentity.of(self.path)

    def add_to(self, server: grpc.Server) -> None:
        """Add nothing: the kubelet calls no other service."""

    def register(self, server: PluginServer, wait: Callable[[PendingResponse], bool]) -> bool:
        # The kubelet dials the endpoint and opens the ListAndWatch stream before it responds. So
        # the caller must not hold a lock that those need.
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
    """Be registered by the kubelet's plugin watcher.

    A kubelet that starts processes every socket again, so its restarts need no detection.
    """

    def __init__(self, directory: Path, resource: str) -> None:
        self.path = directory
        self._resource = resource
        self._outcome: Future[dp.Empty] = Future()

    def kubelet(self) -> FileIdentity | None:
        # A constant: every socket that is created or removed changes the directory's times.
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
        # Ignored after the first success: the end of the ListAndWatch stream is a better signal.
        with contextlib.suppress(InvalidStateError):
            if request.plugin_registered:
                self._outcome.set_result(dp.Empty())
            else:
                self._outcome.set_exception(RegistrationFailed(request.error))
        return pr.RegistrationStatusResponse()


def registration_mode(directory: Path, resource: str, settings: PluginSettings) -> RegistrationMode:
    """Return the mode that the settings select."""
    if settings.announce:
        return WatchedRegistration(directory, resource)
    return DirectRegistration(directory, resource, settings)


def _text(error: grpc.RpcError) -> str:
    """Return the kubelet's own text on one line, with the status code."""
    if not isinstance(error, grpc.Call):
        return str(error)
    text = " ".join((error.details() or "").split())
    return f"{text} ({error.code().name})"
