"""The Container Device Interface as a runtime reads it: device names to container edits.

``load`` reads all specification files of some directories into a ``Registry``, and
``Registry.resolve`` returns the edits for names of devices, in the order in which a runtime
applies them. Nothing here is specific to the device manager, and nothing changes the host.

Invariants: a file with any error is rejected as a whole and named in ``Registry.errors``; other
files are used nevertheless. A name that two files of one directory define is unresolvable.

Start reading with ``registry``; ``files`` checks one file, ``values`` has its values.
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
