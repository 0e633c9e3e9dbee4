"""Settings of a driver, with the default of each field."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import attrs

from devicemanager.core.api.deviceplugin import PLUGINS_REGISTRY_DIRECTORY
from devicemanager.driver.paths import CDI_DIRECTORY, PLUGINS_DIRECTORY, DriverPaths

__all__ = ["DriverSettings", "driver_paths"]

_Path = str | os.PathLike[str]


@attrs.frozen(kw_only=True)
class DriverSettings:
    """Settings of a driver.

    The defaults come from environment variables, with the names that dra-example-driver uses. So
    the same program runs with a real and a mock kubelet.
    """

    node_name: str = ""
    """Name of the Node; default: ``NODE_NAME``, then the host name."""
    rolling_update: str = ""
    """UID of the driver's pod, if two instances may run at once.

    Default: ``POD_UID``, then empty (only one instance).
    """
    data_dir: _Path = ""
    """Directory of the service socket and the checkpoint.

    Default: the subdirectory with the driver's name in ``KUBELET_PLUGINS_DIRECTORY_PATH``, or else
    in ``/var/lib/kubelet/plugins``.
    """
    registrar_dir: _Path = ""
    """The kubelet's directory for registration sockets.

    Default: ``KUBELET_REGISTRAR_DIRECTORY_PATH``, then ``/var/lib/kubelet/plugins_registry``.
    """
    cdi_dir: _Path = ""
    """Directory of CDI files; default: ``CDI_ROOT``, then ``/var/run/cdi``."""
    metadata: bool = False
    """True if containers get a file with the attributes of their devices (KEP-5304)."""
    kubeconfig: _Path | None = None
    """Path of a kubeconfig. Default: ``KUBECONFIG``, then ``~/.kube/config``, then the pod's
    service account."""

    def for_driver(self, driver: str) -> DriverSettings:
        """Return a copy of the settings for the named driver. Empty settings get their defaults.
        The paths of directories become absolute."""
        plugins = _variable("KUBELET_PLUGINS_DIRECTORY_PATH", PLUGINS_DIRECTORY)
        registrar = _variable("KUBELET_REGISTRAR_DIRECTORY_PATH", PLUGINS_REGISTRY_DIRECTORY)
        return attrs.evolve(
            self,
            node_name=self.node_name or _variable("NODE_NAME", socket.gethostname()),
            rolling_update=self.rolling_update or _variable("POD_UID", ""),
            # The kubelet gets the path of the service socket, and the runtime gets the paths of
            # metadata files. Both have another working directory.
            data_dir=Path(self.data_dir or Path(plugins, driver)).absolute(),
            registrar_dir=Path(self.registrar_dir or registrar).absolute(),
            cdi_dir=Path(self.cdi_dir or _variable("CDI_ROOT", CDI_DIRECTORY)).absolute(),
        )


def driver_paths(settings: DriverSettings, driver: str) -> DriverPaths:
    """Return the paths of a driver instance. Raises the same errors as ``DriverPaths.of``."""
    return DriverPaths.of(
        driver,
        Path(settings.registrar_dir),
        Path(settings.data_dir),
        Path(settings.cdi_dir),
        settings.rolling_update,
    )


def _variable(name: str, default: str) -> str:
    return os.environ.get(name) or default
