"""Fault injection on the kubelet's side: what can be set, what is set, and when it fires.

Purpose: a plugin must survive a kubelet that rejects a registration, loses a stream or
restarts at the wrong moment. A fault makes the mock kubelet do this when a test needs it.

Inputs: faults as values, lines or files (``fault``), and the injection points that the
kubelet's code reaches. Outputs: the faults that fire there (``registry``), as events and as
``Fired`` values that the code at the injection point carries out.

Theory of operation. ``kinds`` is the table of all kinds; each row names an ``Effect``, and
each effect belongs to one ``InjectionPoint``. Code at an injection point calls
``FaultRegistry.at(point, context)`` and selects what to do by the effect of the faults
returned. It declares the effects that it implements with ``implements``, at import.

Invariants:
* Nothing here acts: this package uses no gRPC, sockets or subprocesses (``[tool.rooms]``).
* A kind runs only the code of its effect. An effect without code is an error at import.
* Decisions depend on counters and a seed, never on time: the same matches fire the same faults.
* Without faults, an injection point costs one attribute lookup.

Start reading in ``injection_point``, then ``kinds``. ``states`` has the counters of a fault
that is set, ``chaos`` chooses faults at random.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.faults.fault import Fault, FaultError, read_faults
    from devicemanager.faults.injection_point import Effect, InjectionPoint
    from devicemanager.faults.kinds import KINDS, Kind, Option
    from devicemanager.faults.random_faults import chaos
    from devicemanager.faults.registry import FaultRegistry
    from devicemanager.faults.states import FaultState

__all__ = [
    "KINDS",
    "Effect",
    "Fault",
    "FaultError",
    "FaultRegistry",
    "FaultState",
    "InjectionPoint",
    "Kind",
    "Option",
    "chaos",
    "read_faults",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "KINDS": "kinds",
        "Effect": "injection_point",
        "Fault": "fault",
        "FaultError": "fault",
        "FaultRegistry": "registry",
        "FaultState": "states",
        "InjectionPoint": "injection_point",
        "Kind": "kinds",
        "Option": "kinds",
        "chaos": "random_faults",
        "read_faults": "fault",
    },
)
