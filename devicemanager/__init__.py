"""The kubelet's device manager, without a cluster.

What belongs here: the mock kubelet and the shells it is made of. What never does:
decisions, which are ``devicemanager.core``'s, and anything that makes ``import
devicemanager`` slow: the names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

_LAZY = {
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
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"{__name__}.{_LAZY[name]}")
    except ImportError as error:
        if shadow := _shadow():
            raise ImportError(
                f"{shadow} stands in the way of a package that comes with devicemanager: "
                "rename it, or move it into a package of yours"
            ) from error
        raise
    return getattr(module, name)


def _shadow() -> str | None:
    """The file that is imported instead of a package installed beside this one."""
    from importlib.util import find_spec
    from pathlib import Path

    beside = Path(__file__).resolve().parents[1]
    for name in ("checkpoint", "podresources", "protos"):
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is not None and Path(origin).resolve().parents[1] != beside:
            return origin
    return None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
