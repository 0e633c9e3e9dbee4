"""Render a container's run options to a part of an OCI configuration, as a runtime would.

In:  ``RunOptions``, the CDI devices in a ``Registry``, and device nodes of the host.
Out: a ``Fragment``, which has JSON values and a list of conflicts; or ``OciError``.

Field names are those of the OCI runtime specification 1.2, and of 1.3 for ``netDevices``. If two
sources define the same variable, mount or device, the later source has precedence, as in a
container runtime, and the conflict is listed. ``checks`` rejects values that a runtime could
interpret differently from the kubelet.

Nothing on the host is changed. Start reading with ``render``; ``container`` combines the settings
of all sources.
"""

from devicemanager.kubelet.runtime.oci.checks import OciError
from devicemanager.kubelet.runtime.oci.hostnodes import HostNode, HostNodes, read_nodes
from devicemanager.kubelet.runtime.oci.render import PCI_ANNOTATION_PREFIX, Fragment, apply, render

__all__ = [
    "PCI_ANNOTATION_PREFIX",
    "Fragment",
    "HostNode",
    "HostNodes",
    "OciError",
    "apply",
    "read_nodes",
    "render",
]
