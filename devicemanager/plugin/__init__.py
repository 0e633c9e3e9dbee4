"""The plugin's side of the socket: write a device plugin, or run a simulated or recorded plugin.

Theory of operation. A device plugin serves the DevicePlugin API on a unix socket in the kubelet's
plugin directory, and registers that socket with the kubelet. An author writes a :class:`Plugin`,
and this package (the *framework*) serves and registers it. The package does not import the mock
kubelet, and its plugins run with any kubelet.

In:  a :class:`Plugin` (``devices`` and ``allocate``), or a :class:`Lister` of several plugins; the
     plugin directory; :class:`PluginSettings`.
Out: served sockets, registrations, device lists, checked responses.

A :class:`Manager` runs each resource of a lister on its own thread. The thread repeats three
steps: observe the sockets and streams, choose the next action, and carry it out. A session is one
server with its registration. It ends when the kubelet restarts, when the plugin's socket is
removed, or when the last ListAndWatch stream ends. Then the plugin re-registers in a new session.

Invariants:
* The author's code gets only device IDs that are in the newest list.
* An exception in the author's code never ends a thread of the framework, and the kubelet always
  gets a response.
* A socket is visible only while it is served, and only its own server removes it.
* A missed file event delays a reaction but never prevents it.

Start reading at ``author`` (base classes for authors), then ``manager``, ``resource``,
``service``. ``common`` has modules that DRA drivers can also use. ``simulated`` is a plugin with
virtual devices and faults, ``recording`` records and replays plugins, ``processes`` runs plugins
as processes.
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
    from devicemanager.plugin.author import DeviceLists, Lister, NameLists, Plugin, StaticLister
    from devicemanager.plugin.manager import Manager
    from devicemanager.plugin.resource import ResourceState, ResourceStatus
    from devicemanager.plugin.serving import serve
    from devicemanager.plugin.settings import PluginSettings
    from devicemanager.plugin.values import ContainerSettings, Device, DeviceSpec, Mount

__all__ = [
    "ConfigurationError",
    "ContainerSettings",
    "Device",
    "DeviceLists",
    "DeviceRejected",
    "DeviceSpec",
    "Lister",
    "Manager",
    "Mount",
    "NameLists",
    "Plugin",
    "PluginError",
    "PluginSettings",
    "ResourceState",
    "ResourceStatus",
    "StaticLister",
    "UnhealthyDevice",
    "UnknownDevice",
    "serve",
]

# Lazy: a program that uses only value types and errors must not import gRPC.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ContainerSettings": "values",
        "Device": "values",
        "DeviceLists": "author",
        "DeviceSpec": "values",
        "Lister": "author",
        "Manager": "manager",
        "Mount": "values",
        "NameLists": "author",
        "Plugin": "author",
        "PluginSettings": "settings",
        "ResourceState": "resource",
        "ResourceStatus": "resource",
        "StaticLister": "author",
        "serve": "serving",
    },
)
