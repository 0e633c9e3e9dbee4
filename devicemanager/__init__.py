"""The kubelet's device manager, without a cluster.

What belongs here: the mock kubelet and the shells it is made of. What never does:
decisions, which are ``devicemanager.core``'s, and anything that makes ``import
devicemanager`` slow: the names below are loaded when they are first used.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names
from devicemanager.io.own_packages import install

if TYPE_CHECKING:
    from devicemanager.core.errors import (
        AllocationError,
        DeviceManagerError,
        RequestError,
        RpcError,
        StartError,
        StopError,
    )
    from devicemanager.core.rejection import Rejected
    from devicemanager.core.topology import NumaTopology, NumaTopologyError, TopologyConfigError
    from devicemanager.events.stream import Event, EventKind
    from devicemanager.io.clock import ManualClock
    from devicemanager.kubelet.expectations import Expected
    from devicemanager.kubelet.interface import KubeletInterface
    from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.settings import Settings
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.objects.manifests import ManifestError

__all__ = [
    "Admission",
    "AllocationError",
    "DeviceManagerError",
    "Event",
    "EventKind",
    "Expected",
    "KubeletInterface",
    "ManifestError",
    "ManualClock",
    "MockKubelet",
    "NumaTopology",
    "NumaTopologyError",
    "Rejected",
    "RequestError",
    "RpcError",
    "Settings",
    "StartError",
    "StopError",
    "TopologyConfigError",
    "WaitTimeout",
    "WireError",
]

install()
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Admission": "kubelet.pods.admission",
        "AllocationError": "core.errors",
        "DeviceManagerError": "core.errors",
        "Event": "events.stream",
        "EventKind": "events.stream",
        "Expected": "kubelet.expectations",
        "KubeletInterface": "kubelet.interface",
        "ManifestError": "objects.manifests",
        "ManualClock": "io.clock",
        "MockKubelet": "kubelet.mock",
        "NumaTopology": "core.topology",
        "NumaTopologyError": "core.topology",
        "Rejected": "core.rejection",
        "RequestError": "core.errors",
        "RpcError": "core.errors",
        "Settings": "kubelet.settings",
        "StartError": "core.errors",
        "StopError": "core.errors",
        "TopologyConfigError": "core.topology",
        "WaitTimeout": "kubelet.mock",
        "WireError": "kubelet.wire.errors",
    },
)
