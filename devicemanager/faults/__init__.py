"""Faults of the kubelet's side, on purpose: what may be set, what is set, when each fires.

What belongs here: the kinds of faults as data, their one-line form, and the registry that
decides from counters and a seed. What never does: gRPC, files and plugins; whoever meets a
point where a fault may fire asks the registry and does what the fault says.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.faults.chaos import chaos
    from devicemanager.faults.documents import read_faults
    from devicemanager.faults.fault import Fault, FaultError
    from devicemanager.faults.kinds import KINDS, Kind
    from devicemanager.faults.registry import FaultRegistry
    from devicemanager.faults.states import FaultState

__all__ = [
    "KINDS",
    "Fault",
    "FaultError",
    "FaultRegistry",
    "FaultState",
    "Kind",
    "chaos",
    "read_faults",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "KINDS": "kinds",
        "Fault": "fault",
        "FaultError": "fault",
        "FaultRegistry": "registry",
        "FaultState": "states",
        "Kind": "kinds",
        "chaos": "chaos",
        "read_faults": "documents",
    },
)
