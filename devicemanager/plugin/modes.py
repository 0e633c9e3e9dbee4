"""The two ways to register.

Either the plugin calls Register on the kubelet's socket, or the kubelet's plugin watcher
finds the plugin's socket, calls GetInfo there and reports the outcome.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Protocol

import grpc

from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN, KUBELET_SOCKET, VERSION
from devicemanager.plugin.errors import RegistrationFailed
from devicemanager.plugin.registration import Answer, register
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.settings import PluginSettings
from podresources.sockets import FileIdentity
from protos import deviceplugin_v1beta1 as dp
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc

__all__ = ["DirectRegistration", "RegistrationMode", "WatchedRegistration", "registration_mode"]


class RegistrationMode(Protocol):
    """How one resource registers, for one session at a time."""

    path: Path
    """The file or directory without which nothing is served."""

    def kubelet(self) -> FileIdentity | None:
        """Identify the kubelet that runs now. After a restart the identity differs, where
        that is visible and means that we have to register again."""

    def add_to(self, server: grpc.Server) -> None:
        """Add the service that this way of registering needs, once to each new server."""

    def register(self, server: PluginServer, wait: Callable[[Answer], bool]) -> bool:
        """Register once; False if ``wait`` gave up. Raises RegistrationFailed."""


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

    def register(self, server: PluginServer, wait: Callable[[Answer], bool]) -> bool:
        options = server.service.options()
        return register(self.path, server.endpoint, self._resource, options, self._timeout, wait)


class WatchedRegistration(pluginregistration_v1_grpc.RegistrationServicer):
    """Be registered by the kubelet's plugin watcher. A kubelet that starts handles every
    socket anew, so its restarts need not be noticed."""

    def __init__(self, directory: Path, resource: str) -> None:
        self.path = directory
        self._resource = resource
        self._outcome: Future[dp.Empty] = Future()

    def kubelet(self) -> FileIdentity | None:
        # Every socket that comes or goes changes the directory's own times.
        return FileIdentity(0, 0, 0) if self.path.is_dir() else None

    def add_to(self, server: grpc.Server) -> None:
        self._outcome = Future()
        pluginregistration_v1_grpc.add_RegistrationServicer_to_server(self, server)

    def register(self, server: PluginServer, wait: Callable[[Answer], bool]) -> bool:
        outcome = self._outcome
        if not wait(outcome):
            return False
        # The kubelet tries again after a rejection: expect another outcome.
        self._outcome = Future()
        outcome.result()
        return True

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
        return pr.PluginInfo(type=DEVICE_PLUGIN, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: grpc.ServicerContext
    ) -> pr.RegistrationStatusResponse:
        # Once registered, nothing waits for it: the end of the list stream says more.
        with contextlib.suppress(InvalidStateError):
            if request.plugin_registered:
                self._outcome.set_result(dp.Empty())
            else:
                self._outcome.set_exception(RegistrationFailed(request.error))
        return pr.RegistrationStatusResponse()


def registration_mode(directory: Path, resource: str, settings: PluginSettings) -> RegistrationMode:
    """Return the mode that the settings ask for."""
    if settings.announce:
        return WatchedRegistration(directory, resource)
    return DirectRegistration(directory, resource, settings)
