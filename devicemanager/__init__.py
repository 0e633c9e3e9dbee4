"""The kubelet's device manager, without a cluster.

What belongs here: the mock kubelet and the shells it is made of. What never does:
decisions, which are ``devicemanager.core``'s, and anything that makes ``import
devicemanager`` slow: the names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devicemanager.clock import ManualClock
    from devicemanager.core.topology import NumaTopology
    from devicemanager.events import Event, EventKind
    from devicemanager.kubelet import MockKubelet, WaitTimeout
    from devicemanager.outcome import Admission
    from devicemanager.settings import Settings

__all__ = [
    "Admission",
    "Event",
    "EventKind",
    "ManualClock",
    "MockKubelet",
    "NumaTopology",
    "Settings",
    "WaitTimeout",
]

_LAZY = {
    "Admission": "outcome",
    "Event": "events",
    "EventKind": "events",
    "ManualClock": "clock",
    "MockKubelet": "kubelet",
    "NumaTopology": "core.topology",
    "Settings": "settings",
    "WaitTimeout": "kubelet",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
