"""From run options to what a container would get: a fragment of an OCI configuration.

Field names are those of the OCI runtime specification 1.2, and 1.3 for ``netDevices``.
Rendering reads the host (device numbers) and changes nothing on it. What never belongs
here: gRPC, protobuf, starting containers.
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
