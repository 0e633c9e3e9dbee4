"""Settings of the driver under test."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

import attrs

from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.placeholders import OF_DRIVERS
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.driver.paths import check_driver_name
from devicemanager.plugin.errors import ConfigurationError

__all__ = ["PLACEHOLDERS", "VARIABLES", "DriverUnderTest"]

PLACEHOLDERS: Final = OF_DRIVERS
"""Placeholders in the driver's command and environment variables, with their meanings. A driver can
also use the placeholder ``root``."""

VARIABLES: Final = {
    "KUBECONFIG": "{kubeconfig}",
    "NODE_NAME": "{node_name}",
    "KUBELET_REGISTRAR_DIRECTORY_PATH": "{registrar_dir}",
    "KUBELET_PLUGINS_DIRECTORY_PATH": "{plugins_dir}",
    "CDI_ROOT": "{cdi_dir}",
    "POD_UID": "{pod_uid}",
}
"""Environment variables that every driver gets. dra-example-driver reads the same variables."""


def _as_drivers(names: Iterable[str]) -> tuple[str, ...]:
    # A string is iterable, too: each of its characters would become a name.
    if isinstance(names, str):
        raise CheckError(f"invalid drivers {names!r}: expected a list of names")
    try:
        return tuple(check_driver_name(name) for name in names)
    except ConfigurationError as error:
        raise CheckError(str(error)) from None


def _as_words(command: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if command is None:
        return None
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    if not words:
        raise CheckError("the command of --previous is empty")
    return words


def _as_directory(path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    if not Path(path).is_dir():
        problem = "is not a directory" if Path(path).exists() else "does not exist"
        raise CheckError(f"--rootfs: {path} {problem}")
    # Absolute: a driver has its own working directory.
    return Path(path).resolve()


@attrs.frozen(kw_only=True)
class DriverUnderTest(PluginUnderTest):
    """DRA driver that the suite starts, stops and restarts. Raises CheckError for invalid values.

    ``PLACEHOLDERS`` and ``{root}`` are replaced in its command and environment variables.
    """

    resources: tuple[str, ...] = attrs.field(default=(), converter=_as_drivers)
    """The name of the driver, as the only element. If the tuple is empty, the suite uses the name
    that the driver registers."""
    private_root: bool = False
    """True if the driver has the fixed paths of a node, such as ``/var/lib/kubelet/plugins``. The
    suite then runs it in a private mount namespace, in which these are the mock kubelet's
    directories."""
    previous: tuple[str, ...] | None = attrs.field(default=None, converter=_as_words)
    """Command of an earlier version of the driver, for checks of upgrades. If None, these checks
    are skipped."""
    rootfs: Path | None = attrs.field(default=None, converter=_as_directory)
    """Directory with the file system of the driver's container image. The driver runs in this file
    system, in a private mount namespace. None for the file system of this host."""
    kind: ClassVar[str] = "driver"
    node_paths_option: ClassVar[str] = "--private-root"
    reboot: bool = False
    """True if the checks may simulate a reboot, with another boot ID."""
    nri: bool = False
    """True if the driver is also an NRI (Node Resource Interface) plugin.

    The placeholder ``{nri_socket}`` is the socket of the NRI runtime. If the command and the
    environment variables lack this placeholder, the suite runs the driver in a private mount
    namespace. There, the socket is ``/var/run/nri/nri.sock``.
    """

    @property
    def is_private(self) -> bool:
        """True if the driver runs in a private mount namespace with paths as on a node."""
        needs_nri = self.nri and not any("{nri_socket}" in word for word in self._words)
        is_container = self.rootfs is not None
        # Other directories can appear at fixed paths only in a private mount namespace.
        return self.private_root or is_container or needs_nri or self.hardware.has_directories

    @property
    def has_node_paths(self) -> bool:
        return self.is_private

    @property
    def _words(self) -> tuple[str, ...]:
        """The texts in which placeholders are replaced."""
        return (*self.command, *self.env.values())

    def has_option(self, name: str) -> bool:
        return bool(getattr(self, name))

    @property
    def advice(self) -> str:
        if self.is_private:
            return "the driver should use /var/lib/kubelet/plugins_registry"
        if any(f"{{{name}}}" in word for name in (*PLACEHOLDERS, "root") for word in self._words):
            return "the driver should use the directories from its command or environment"
        return (
            f"only the variables {', '.join(VARIABLES)} name the directories: use placeholders "
            "such as {registrar_dir} in the command, or --private-root if the paths are fixed"
        )
