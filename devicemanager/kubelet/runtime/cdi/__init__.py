"""CDI devices: names to container edits, through specification files.

What belongs here: the Container Device Interface as a runtime reads it. What never does:
gRPC, and anything that changes a host. Nothing here is specific to the device manager.
"""

from devicemanager.kubelet.runtime.cdi.registry import DEFAULT_DIRECTORIES, Registry, load
from devicemanager.kubelet.runtime.cdi.values import (
    CdiDeviceNode,
    CdiError,
    CdiHook,
    CdiMount,
    CdiNetDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    UnresolvedCdiDevices,
)

__all__ = [
    "DEFAULT_DIRECTORIES",
    "CdiDeviceNode",
    "CdiError",
    "CdiHook",
    "CdiMount",
    "CdiNetDevice",
    "CdiSpec",
    "CdiSpecError",
    "ContainerEdits",
    "Registry",
    "UnresolvedCdiDevices",
    "load",
]
