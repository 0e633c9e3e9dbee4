"""Register the plugins that the plugin watcher finds: one handler for each type of plugin.

The watcher dials a socket and calls GetInfo. Then it passes the plugin to the ``TypeHandler`` of
its type. Finally it calls NotifyRegistrationStatus. The kubelet does the same (``PluginHandler``,
pkg/kubelet/pluginmanager/cache/types.go, v1.36).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from devicemanager.core import messages
from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.kubelet.registration.registrar import Registrar, Texts
from protos import pluginregistration_v1 as pr


class Registration(Protocol):
    """One registered plugin, until ``deregister`` is called."""

    def answered(self) -> None:
        """Do the work that must wait until the plugin knows that it is registered.

        Called when the plugin has responded to NotifyRegistrationStatus. Can block.
        """

    def deregister(self) -> None:
        """Remove the plugin. Called when its socket has vanished. Must not block."""


class TypeHandler(Protocol):
    """Handler of the plugins of one type. Its method runs on the event loop of the registrar."""

    async def register(self, path: Path, info: pr.PluginInfo, pid: int) -> Registration:
        """Check and register the plugin whose registration socket is ``path``.

        ``pid`` is the plugin's process ID, or 0 if unknown. If the registration fails, raises
        RegistrationRejected with the error text for the plugin. If only the connection to the
        plugin fails, raises the subclass NotConnected. Kubelets before 1.36 do not retry then.
        """


class DevicePluginHandler:
    """Handler of plugins of the type ``DevicePlugin``."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def register(self, path: Path, info: pr.PluginInfo, pid: int) -> Registration:
        resource = ResourceName(info.name)
        # A plugin can serve the device plugin API on another socket than the registration API.
        socket = Path(info.endpoint) if info.endpoint else path
        texts = Texts(
            messages.WATCHED_BAD_VERSION,
            messages.WATCHED_BAD_RESOURCE_NAME,
            self._registrar.behaviour.watcher_dial_failed,
            messages.WATCHED_FAILED,
        )
        await self._registrar.check(resource, tuple(info.supported_versions), socket, texts)
        # Named by its socket: another plugin can register the same resource at another socket.
        endpoint = await self._registrar.connect(resource, socket, str(socket), texts=texts)
        return _RegisteredPlugin(self._registrar, endpoint)


class _RegisteredPlugin:
    def __init__(self, registrar: Registrar, endpoint: EndpointId) -> None:
        self._registrar = registrar
        self._endpoint = endpoint

    def answered(self) -> None:
        self._registrar.answered(self._endpoint)

    def deregister(self) -> None:
        self._registrar.deregister(self._endpoint)
