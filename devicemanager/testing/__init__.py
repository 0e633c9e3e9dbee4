"""For tests of device plugins and of PodResources clients.

What belongs here: the pytest plugin (``pytest_plugin``), the factories behind its
fixtures, and small helpers. What never does: anything that the kubelet or a plugin needs
to run, and, at import time, anything that takes time to load: the pytest plugin is part
of every pytest session on a machine where this distribution is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devicemanager.testing.manifest import pod_manifest

if TYPE_CHECKING:
    from devicemanager.testing.factories import MockKubeletFactory, SimulatedPluginFactory

__all__ = ["MockKubeletFactory", "SimulatedPluginFactory", "pod_manifest"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from devicemanager.testing import factories

    return getattr(factories, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
