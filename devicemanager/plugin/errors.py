"""Errors of device plugins, by cause: configuration, the kubelet, or a device."""

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
    """Error in a setting of a plugin. The text names the setting and the fix."""


class RegistrationFailed(PluginError):
    """Error of a registration: the kubelet is unreachable or rejected it. A retry can succeed."""


class DeviceRejected(PluginError):
    """Base class of errors that a plugin's method raises to fail a call with a gRPC code.

    For any other exception, the kubelet gets the code UNKNOWN and the exception's type and text.
    """

    code: ClassVar[str] = "UNKNOWN"


class UnknownDevice(DeviceRejected):
    """Error for a requested device that the plugin does not have, or no longer has."""

    code = "NOT_FOUND"


class UnhealthyDevice(DeviceRejected):
    """Error for a requested device that the plugin has but cannot allocate now."""

    code = "FAILED_PRECONDITION"
