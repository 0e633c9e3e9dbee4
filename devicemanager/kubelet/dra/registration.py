"""Register DRA drivers that the plugin watcher finds (plugins of the type ``DRAPlugin``).

Follows ``ValidatePlugin`` and ``RegisterPlugin`` (pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go,
v1.36), and their callers (pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from devicemanager.core import messages
from devicemanager.core.dra.drivers import Instance
from devicemanager.core.dra.errors import DriverRejected
from devicemanager.core.ids import ResourceName
from devicemanager.kubelet.dra.instances import Instances
from devicemanager.kubelet.registration.handlers import Registration
from devicemanager.kubelet.registration.registrar import (
    NotConnected,
    Registrar,
    RegistrationRejected,
)
from protos import pluginregistration_v1 as pr

__all__ = ["DraPluginHandler"]

_NODE_ROOT = Path("/var/lib/kubelet")
_STAGES = {"validate": messages.WATCHED_INVALID, "register": messages.WATCHED_FAILED}


class DraPluginHandler:
    """Handler for the registration of DRA drivers, which are plugins of the type ``DRAPlugin``."""

    def __init__(self, registrar: Registrar, instances: Instances, root: Path) -> None:
        """``root`` is the kubelet's root directory."""
        self._registrar = registrar
        self._instances = instances
        self._root = root

    async def register(self, path: Path, info: pr.PluginInfo, pid: int) -> Registration:
        # A driver can serve its calls and its registration on different sockets.
        driver = _Driver(self._instances, info, self._endpoint(info) or str(path), pid)
        try:
            await self._registrar.in_thread(driver.register)
        except RegistrationRejected as rejected:
            raise await self._registrar.report(ResourceName(info.name), rejected) from rejected
        except asyncio.CancelledError:
            # The thread may still be registering the driver. Then it removes the instance at its
            # end.
            driver.deregister()
            raise
        return driver

    def _endpoint(self, info: pr.PluginInfo) -> str:
        """Return the path of a driver's service socket, as this process sees it.

        ``devicemanager exec`` runs a driver in a private mount namespace, in which this kubelet's
        directory has the path of a real kubelet's directory. The driver then reports a path below
        the real directory. If that path does not exist here, return the path below this kubelet's
        directory.
        """
        endpoint = Path(info.endpoint)
        if endpoint.is_relative_to(_NODE_ROOT) and not endpoint.exists():
            here = self._root / endpoint.relative_to(_NODE_ROOT)
            return str(here) if here.exists() else info.endpoint
        return info.endpoint


class _Driver:
    """A driver instance that is being registered, or is registered."""

    def __init__(self, instances: Instances, info: pr.PluginInfo, endpoint: str, pid: int) -> None:
        self._instances = instances
        self._info = info
        self._endpoint = endpoint
        self._pid = pid
        # Guards the fields below: the socket can vanish during the registration.
        self._lock = threading.Lock()
        self._instance: Instance | None = None
        self._is_gone = False

    def register(self) -> None:
        """Register the instance. Raises RegistrationRejected with the message for the driver."""
        info = self._info
        try:
            instance = self._instances.register(
                info.name, self._endpoint, tuple(info.supported_versions), self._pid
            )
        except DriverRejected as rejected:
            text = _STAGES[rejected.stage].format(error=rejected)
            # Before 1.36, the kubelet does not retry a plugin that has passed the validation.
            kind = RegistrationRejected if rejected.stage == "validate" else NotConnected
            raise kind(text) from rejected
        with self._lock:
            self._instance, is_gone = instance, self._is_gone
        if is_gone:
            self._instances.deregister(instance)

    def answered(self) -> None:
        """Do nothing: ``register`` has opened the connection."""

    def deregister(self) -> None:
        with self._lock:
            self._is_gone, instance = True, self._instance
        if instance is not None:
            self._instances.deregister(instance)
