"""For tests of device plugins and of PodResources clients.

What belongs here: the pytest plugin (``pytest_plugin``), the factories behind its
fixtures, and small helpers. What never does: anything that the kubelet or a plugin needs
to run, and, at import time, anything that takes time to load: the pytest plugin is part
of every pytest session on a machine where this distribution is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.io.lazy import lazy_names
from devicemanager.testing.manifest import pod_manifest

if TYPE_CHECKING:
    from devicemanager.testing.factories import MockKubeletFactory, SimulatedPluginFactory
    from devicemanager.testing.hardware import FakeDev, FakeSysfs, HardwareError
    from devicemanager.testing.processes import PluginProcess, ProcessEnded
    from devicemanager.testing.processfactory import PluginProcessFactory
    from devicemanager.testing.replays import ReplayPluginFactory
    from devicemanager.testing.scripts import PodResourcesServerFactory
    from devicemanager.testing.versions import KUBELET_VERSIONS

__all__ = [
    "KUBELET_VERSIONS",
    "FakeDev",
    "FakeSysfs",
    "HardwareError",
    "MockKubeletFactory",
    "PluginProcess",
    "PluginProcessFactory",
    "PodResourcesServerFactory",
    "ProcessEnded",
    "ReplayPluginFactory",
    "SimulatedPluginFactory",
    "pod_manifest",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "FakeDev": "hardware",
        "FakeSysfs": "hardware",
        "HardwareError": "hardware",
        "KUBELET_VERSIONS": "versions",
        "MockKubeletFactory": "factories",
        "PluginProcess": "processes",
        "PluginProcessFactory": "processfactory",
        "PodResourcesServerFactory": "scripts",
        "ProcessEnded": "processes",
        "ReplayPluginFactory": "replays",
        "SimulatedPluginFactory": "factories",
    },
)
