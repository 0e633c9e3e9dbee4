"""What can go wrong on the plugin's side, by whose fault it is."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "DeviceRejected",
    "PluginError",
    "RegistrationFailed",
    "UnhealthyDevice",
    "UnknownDevice",
]


class PluginError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigurationError(PluginError):
    """A setting cannot work; the text names it and says what to change."""


class RegistrationFailed(PluginError):
    """The kubelet could not be reached, or it rejected. Trying again may help."""


class DeviceRejected(PluginError):
    """An author's hook raises this to answer with a gRPC code of its choice.

    Any other exception reaches the kubelet as UNKNOWN with its type and text.
    """

    code: ClassVar[str] = "UNKNOWN"


class UnknownDevice(DeviceRejected):
    """The plugin does not have the device, or not any more."""

    code = "NOT_FOUND"


class UnhealthyDevice(DeviceRejected):
    """The plugin has the device but cannot hand it out now."""

    code = "FAILED_PRECONDITION"
