"""Settings of the driver under test."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

import attrs

from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.driver.paths import check_driver_name
from devicemanager.plugin.errors import ConfigurationError

__all__ = ["PLACEHOLDERS", "VARIABLES", "DriverUnderTest"]

PLACEHOLDERS: Final = {
    "kubeconfig": "file for the API server",
    "node_name": "name of the Node",
    "registrar_dir": "the kubelet's directory plugins_registry",
    "plugins_dir": "the kubelet's directory plugins",
    "cdi_dir": "directory of CDI files",
    "pod_uid": "UID of the driver's pod",
}
"""Placeholders in the driver's command and environment variables, beside ``root``."""

VARIABLES: Final = {
    "KUBECONFIG": "{kubeconfig}",
    "NODE_NAME": "{node_name}",
    "KUBELET_REGISTRAR_DIRECTORY_PATH": "{registrar_dir}",
    "KUBELET_PLUGINS_DIRECTORY_PATH": "{plugins_dir}",
    "CDI_ROOT": "{cdi_dir}",
    "POD_UID": "{pod_uid}",
}
"""Environment variables that every driver gets: those of dra-example-driver."""


def _as_drivers(names: Iterable[str]) -> tuple[str, ...]:
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


@attrs.frozen(kw_only=True)
class DriverUnderTest(PluginUnderTest):
    """DRA driver that the suite starts, stops and restarts. Raises CheckError for invalid values.

    ``PLACEHOLDERS`` and ``{root}`` are replaced in its command and environment variables.
    """

    resources: tuple[str, ...] = attrs.field(default=(), converter=_as_drivers)
    """Name of the driver. If it is empty, the suite uses the name that the driver registers."""
    private_root: bool = False
    """True if the driver has fixed paths: it is run in a private mount namespace."""
    previous: tuple[str, ...] | None = attrs.field(default=None, converter=_as_words)
    """Command of an earlier version of the driver, for checks of upgrades."""
    reboot: bool = False
    """True if the checks may simulate a reboot, with another boot ID."""

    @property
    def is_private(self) -> bool:
        """True if the driver runs in a private mount namespace with paths as on a node."""
        return self.private_root or self.hardware.has_directories

    def has_option(self, name: str) -> bool:
        return bool(getattr(self, name))

    @property
    def advice(self) -> str:
        if self.is_private:
            return "the driver should use /var/lib/kubelet/plugins_registry"
        words = [*self.command, *self.env.values()]
        if any(f"{{{name}}}" in word for name in (*PLACEHOLDERS, "root") for word in words):
            return "the driver should use the directories from its command or environment"
        return (
            f"only the variables {', '.join(VARIABLES)} name the directories: use placeholders "
            "such as {registrar_dir} in the command, or --private-root if the paths are fixed"
        )
