"""The kubelet's device manager, without a cluster.

What belongs here: the mock kubelet and the shells it is made of. What never does:
decisions, which are ``devicemanager.core``'s, and anything that makes ``import
devicemanager`` slow: the names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.lazy import lazy_names
from devicemanager.packages import install

if TYPE_CHECKING:
    from devicemanager.clock import ManualClock
    from devicemanager.core.errors import RequestError
    from devicemanager.core.refusal import Refused
    from devicemanager.core.topology import NumaTopology
    from devicemanager.events import Event, EventKind
    from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
    from devicemanager.manifests import ManifestError
    from devicemanager.pods.admission import Admission
    from devicemanager.settings import Settings

__all__ = [
    "Admission",
    "Event",
    "EventKind",
    "ManifestError",
    "ManualClock",
    "MockKubelet",
    "NumaTopology",
    "Refused",
    "RequestError",
    "Settings",
    "WaitTimeout",
]

install()
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Admission": "pods.admission",
        "Event": "events",
        "EventKind": "events",
        "ManifestError": "manifests",
        "ManualClock": "clock",
        "MockKubelet": "kubelet.mock",
        "NumaTopology": "core.topology",
        "Refused": "core.refusal",
        "RequestError": "core.errors",
        "Settings": "settings",
        "WaitTimeout": "kubelet.mock",
    },
)
