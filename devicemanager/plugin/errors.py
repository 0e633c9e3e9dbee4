"""What can go wrong on the plugin's side, by whose fault it is."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "DeviceRefused",
    "PluginError",
    "RegistrationFailed",
    "UnhealthyDevice",
    "UnknownDevice",
]


class PluginError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigurationError(PluginError):
    """Nothing will work until whoever started the plugin changes a setting."""


class RegistrationFailed(PluginError):
    """The kubelet could not be reached, or it refused. Trying again may help."""


class DeviceRefused(PluginError):
    """An author's hook raises this to answer with a gRPC code of its choice.

    Any other exception reaches the kubelet as UNKNOWN with its type and text.
    """

    code: ClassVar[str] = "UNKNOWN"


class UnknownDevice(DeviceRefused):
    """The device is not, or no longer, one of the plugin's."""

    code = "NOT_FOUND"


class UnhealthyDevice(DeviceRefused):
    """The device is there but cannot be handed out now."""

    code = "FAILED_PRECONDITION"
