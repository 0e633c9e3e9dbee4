"""The other side of the socket: write a device plugin, or run a simulated one.

What belongs here: what a plugin's author writes against (:class:`Plugin`,
:class:`Lister`, :class:`Manager`, :func:`serve` and the value types), the gRPC server and
the registration underneath, and a simulated plugin on top. What never does: anything of
the kubelet's side. Plugins made here run against any kubelet and cannot know which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.io.lazy import lazy_names
from devicemanager.plugin.errors import (
    ConfigurationError,
    DeviceRejected,
    PluginError,
    UnhealthyDevice,
    UnknownDevice,
)

if TYPE_CHECKING:
    from devicemanager.plugin.author import Lister, Plugin, StaticLister
    from devicemanager.plugin.manager import Manager
    from devicemanager.plugin.serving import serve
    from devicemanager.plugin.settings import PluginSettings
    from devicemanager.plugin.values import ContainerSettings, Device, DeviceSpec, Mount

__all__ = [
    "ConfigurationError",
    "ContainerSettings",
    "Device",
    "DeviceRejected",
    "DeviceSpec",
    "Lister",
    "Manager",
    "Mount",
    "Plugin",
    "PluginError",
    "PluginSettings",
    "StaticLister",
    "UnhealthyDevice",
    "UnknownDevice",
    "serve",
]

# Who wants the value types, or to catch an error, must not pay for importing grpc.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ContainerSettings": "values",
        "Device": "values",
        "DeviceSpec": "values",
        "Lister": "author",
        "Manager": "manager",
        "Mount": "values",
        "Plugin": "author",
        "PluginSettings": "settings",
        "StaticLister": "author",
        "serve": "serving",
    },
)
