"""The driver's side of Dynamic Resource Allocation: write a DRA driver, or run a simulated one.

Theory of operation. A DRA driver publishes the devices of its node as ResourceSlices. It creates a
registration socket in the kubelet's directory ``plugins_registry``, and a service socket in
``plugins/<driver>``. The kubelet finds the registration socket and calls GetInfo. Then it calls the
service socket: NodePrepareResources before a pod starts, and NodeUnprepareResources after the pod
has ended. An author writes a :class:`Driver`; this package does the rest, for any kubelet.

In:  a :class:`Driver` (``resources``, ``prepare``, optionally ``unprepare`` and ``health``); the
     kubelet's directories; an API server.
Out: ResourceSlices, both sockets with all API versions, CDI files, responses that survive
     restarts.

:class:`DriverServer` owns the parts, each on its own thread: ``keeping`` serves the sockets,
``publishing`` writes the slices that ``slices`` computes, and ``health`` reports health. ``claims``
handles the kubelet's calls, with ``checkpoint``, ``cdi`` and ``metadata``. The simulated driver
(``simulated``) also uses ``services`` and ``sockets``.

Invariants:
* Calls for claims are handled one at a time, even by two instances of a driver.
* A claim is in the checkpoint before its devices are prepared, so a crash cannot lose it.
* An exception in the author's code never ends a thread, and the kubelet always gets a response.
* All slices of a pool have the same generation. Unchanged slices are not written.

This package uses :mod:`devicemanager.client` instead of the Python package ``kubernetes``. The
oldest supported release of ``kubernetes`` has no ``resource.k8s.io/v1``, and its watches do not
recover from errors. This package does not import the mock kubelet. Start reading at ``author``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.driver.errors import ClaimError, DroppedFields
from devicemanager.io.lazy import lazy_names

if TYPE_CHECKING:
    from devicemanager.driver.author import Driver, Resources
    from devicemanager.driver.server import DriverServer
    from devicemanager.driver.serving import serve
    from devicemanager.driver.settings import DriverSettings
    from devicemanager.driver.values import (
        AllocatedDevice,
        Claim,
        Device,
        DeviceHealth,
        DriverResources,
        Pool,
        PreparedDevice,
        Taint,
        Version,
    )
    from devicemanager.plugin.values import ContainerSettings, DeviceSpec, Mount

__all__ = [
    "AllocatedDevice",
    "Claim",
    "ClaimError",
    "ContainerSettings",
    "Device",
    "DeviceHealth",
    "DeviceSpec",
    "Driver",
    "DriverResources",
    "DriverServer",
    "DriverSettings",
    "DroppedFields",
    "Mount",
    "Pool",
    "PreparedDevice",
    "Resources",
    "Taint",
    "Version",
    "serve",
]

# Lazy: a program that uses only value types and errors must not import gRPC.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AllocatedDevice": "values",
        "Claim": "values",
        "ContainerSettings": ".plugin.values",
        "Device": "values",
        "DeviceHealth": "values",
        "DeviceSpec": ".plugin.values",
        "Driver": "author",
        "DriverResources": "values",
        "DriverServer": "server",
        "DriverSettings": "settings",
        "Mount": ".plugin.values",
        "Pool": "values",
        "PreparedDevice": "values",
        "Resources": "author",
        "Taint": "values",
        "Version": "values",
        "serve": "serving",
    },
)
