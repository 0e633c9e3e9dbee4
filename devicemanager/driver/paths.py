"""File names of a driver's sockets and directories.

Drivers built on the Go library (``k8s.io/dynamic-resource-allocation/kubeletplugin``, v0.37) use
the same names. So a rolling update can switch from such a driver to a driver of this package, or
back.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import attrs

from devicemanager.core.api.deviceplugin import PLUGINS_REGISTRY_DIRECTORY
from devicemanager.core.api.names import is_dns1123_subdomain
from devicemanager.plugin.errors import ConfigurationError
from podresources.sockets import MAX_PATH_BYTES, check_path

__all__ = [
    "CDI_DIRECTORY",
    "PLUGINS_DIRECTORY",
    "DriverPaths",
    "check_driver_name",
    "in_kubelet_directory",
]

PLUGINS_DIRECTORY = "/var/lib/kubelet/plugins"
"""Directory that contains the data directories of all drivers."""

CDI_DIRECTORY = "/var/run/cdi"
"""Directory in which container runtimes look for dynamically created CDI devices."""

_MAX_DRIVER_NAME = 63


@attrs.frozen
class DriverPaths:
    """Directories and sockets of one instance of a driver. All paths are absolute."""

    registrar_dir: Path
    data_dir: Path
    cdi_dir: Path
    registration_socket: Path
    service_socket: Path

    @classmethod
    def of(
        cls, driver: str, registrar_dir: Path, data_dir: Path, cdi_dir: Path, uid: str = ""
    ) -> DriverPaths:
        """Return the paths of one driver instance.

        ``uid``: UID of the pod in which the instance runs, if a rolling update can run two
        instances at once; otherwise empty. Raises ConfigurationError if the driver name makes the
        path of a socket too long, and SocketPathError if the path is too long for another reason.
        """
        infix = f"-{uid}" if uid else ""
        found = cls(
            registrar_dir,
            data_dir,
            cdi_dir,
            _first_fitting(registrar_dir, _registration_names(driver, uid)),
            data_dir / f"dra{infix}.sock",
        )
        for path in (found.registration_socket, found.service_socket):
            if len(driver) > _MAX_DRIVER_NAME and len(os.fsencode(path)) > MAX_PATH_BYTES:
                raise ConfigurationError(
                    f"driver name {driver[:_MAX_DRIVER_NAME]}… has {len(driver)} characters, which "
                    "makes the path of a socket too long: use a name with at most "
                    f"{_MAX_DRIVER_NAME} characters"
                )
            check_path(path)
        return found


def in_kubelet_directory(driver: str, root: Path, uid: str = "") -> DriverPaths:
    """Return the paths of one driver instance, below the kubelet's directory ``root``.

    CDI files are in ``<root>/cdi``. Raises the same errors as ``DriverPaths.of``.
    """
    registrar = root / Path(PLUGINS_REGISTRY_DIRECTORY).name
    data = root / Path(PLUGINS_DIRECTORY).name / driver
    return DriverPaths.of(driver, registrar, data, root / "cdi", uid)


def check_driver_name(name: object) -> str:
    """Return ``name`` if it is a valid driver name.

    Raises ConfigurationError if the API server would reject the name.
    """
    if not isinstance(name, str) or len(name) > _MAX_DRIVER_NAME or not is_dns1123_subdomain(name):
        raise ConfigurationError(
            f"invalid driver name {name!r}: use a DNS name such as gpu.vendor.com with at most "
            f"{_MAX_DRIVER_NAME} characters"
        )
    return name


def _registration_names(driver: str, uid: str) -> list[str]:
    """Return the possible names of the registration socket, preferred first."""
    if not uid:
        return [f"{driver}-reg.sock"]
    # A driver name with a UID can exceed the maximum length of a socket path. Digests are shorter,
    # and still differ between the instances.
    short, both = _digest(uid, 8), _digest(f"{driver}\0{uid}", 16)
    return [f"{driver}-{uid}-reg.sock", f"{driver}-{short}-reg.sock", f"dra-{both}-reg.sock"]


def _digest(text: str, size: int) -> str:
    raw = hashlib.sha256(text.encode()).digest()[:size]
    # The standard alphabet of Base64 has a slash, which cannot be part of a file name.
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _first_fitting(directory: Path, names: list[str]) -> Path:
    """Return the path of the first name that is short enough; else of the last name."""
    paths = [directory / name for name in names]
    fitting = (path for path in paths if len(os.fsencode(path)) <= MAX_PATH_BYTES)
    return next(fitting, paths[-1])
