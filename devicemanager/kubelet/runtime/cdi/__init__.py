"""The Container Device Interface (CDI): resolve device names to edits of a container.

``load`` reads all specification files of some directories into a ``Registry``. ``Registry.resolve``
returns the edits for device names, in the order in which a container runtime applies them. The
package is independent of the device manager and does not change the host.

Invariants: a file with an error is rejected as a whole and listed in ``Registry.errors``; the
other files are used. A name that two files of one directory define cannot be resolved.

Start reading with ``registry``; ``files`` reads one file, ``values`` defines the results.
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
