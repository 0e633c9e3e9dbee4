"""Fault injection in the mock kubelet: the kinds of faults, and when a fault fires.

Purpose: a plugin must survive a kubelet that rejects a registration, loses a stream or
restarts at the wrong moment. A fault makes the mock kubelet do this when a test needs it.

An injection point is a place in the kubelet's code where faults can fire. Inputs: faults, as
Python objects, lines of text or files (``fault``); and calls from the code at injection points.
Outputs: the faults that fire (``registry``). Each of them is published as an event, and returned as
a ``Fired`` value to the code at the injection point.

Theory of operation. ``kinds`` is the table of all kinds of faults. A kind has one ``Effect``, and
an effect belongs to one ``InjectionPoint``. The code at an injection point calls
``FaultRegistry.at(point, context)`` and carries out the effects of the faults returned. At import,
the module of that code declares with ``implements`` which effects it carries out.

Invariants:
* This package only decides which faults fire; other packages carry them out. It uses no gRPC,
  sockets or subprocesses (``[tool.rooms]`` in ``pyproject.toml`` enforces this).
* A kind runs only the code of its effect. An effect without code is an error at import.
* Whether a fault fires depends on counters and a seed, never on time. If a test is repeated with
  the same seed and the same calls, the same faults fire.
* Without faults, an injection point costs one attribute lookup.

Start reading in ``injection_point``, then ``kinds``. ``states`` has the counters of a fault that is
set, and ``random_faults`` chooses faults at random.
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
