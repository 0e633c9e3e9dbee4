"""Errors of the plugin's side, by cause: configuration, the kubelet, or a device."""

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
    """Base class of the errors that this package raises on purpose."""


class ConfigurationError(PluginError):
    """A setting cannot work; the text names the setting and the fix."""


class RegistrationFailed(PluginError):
    """The kubelet could not be reached or rejected the registration. A retry can succeed."""


class DeviceRejected(PluginError):
    """Base class of errors that a hook raises to fail the call with a certain gRPC code.

    Any other exception reaches the kubelet as UNKNOWN, with its type and text.
    """

    code: ClassVar[str] = "UNKNOWN"


class UnknownDevice(DeviceRejected):
    """The plugin does not have the device, or no longer has it."""

    code = "NOT_FOUND"


class UnhealthyDevice(DeviceRejected):
    """The plugin has the device but cannot allocate it now."""

    code = "FAILED_PRECONDITION"
