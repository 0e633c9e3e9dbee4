"""The kubelet's device manager, without a cluster.

What belongs here: the mock kubelet and the shells it is made of. What never does:
decisions, which are ``devicemanager.core``'s, and anything that makes ``import
devicemanager`` slow: the names below are loaded when they are first used.
"""

from __future__ import annotations

from devicemanager.lazy import TYPE_CHECKING, lazy_names
from devicemanager.packages import install

if TYPE_CHECKING:
    from devicemanager.clock import ManualClock
    from devicemanager.core.errors import (
        AllocationError,
        DeviceManagerError,
        RequestError,
        RpcError,
        StartError,
        StopError,
    )
    from devicemanager.core.refusal import Refused
    from devicemanager.core.topology import NumaTopology, NumaTopologyError, TopologyConfigError
    from devicemanager.events import Event, EventKind
    from devicemanager.kubelet.expected import Expected
    from devicemanager.kubelet.interface import KubeletInterface
    from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
    from devicemanager.manifests import ManifestError
    from devicemanager.pods.admission import Admission
    from devicemanager.settings import Settings
    from devicemanager.wire.errors import WireError

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
    "Refused",
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
        "Admission": "pods.admission",
        "AllocationError": "core.errors",
        "DeviceManagerError": "core.errors",
        "Event": "events",
        "EventKind": "events",
        "Expected": "kubelet.expected",
        "KubeletInterface": "kubelet.interface",
        "ManifestError": "manifests",
        "ManualClock": "clock",
        "MockKubelet": "kubelet.mock",
        "NumaTopology": "core.topology",
        "NumaTopologyError": "core.topology",
        "Refused": "core.refusal",
        "RequestError": "core.errors",
        "RpcError": "core.errors",
        "Settings": "settings",
        "StartError": "core.errors",
        "StopError": "core.errors",
        "TopologyConfigError": "core.topology",
        "WaitTimeout": "kubelet.mock",
        "WireError": "wire.errors",
    },
)
