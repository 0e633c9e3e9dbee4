"""Virtual nodes in a real Kubernetes cluster.

The cluster's scheduler binds pods to nodes that nobody racked; each of these has a device
manager of its own, which admits or rejects as a kubelet would. What belongs here: talking to
the API server. What never does: decisions about devices.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.cluster.client.errors import ApiError, ClusterError
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.facts import Facts, Range
    from devicemanager.cluster.nodes.node import ClusterNode
    from devicemanager.cluster.options import NodeOptions

__all__ = ["ApiError", "Cluster", "ClusterError", "ClusterNode", "Facts", "NodeOptions", "Range"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ApiError": "client.errors",
        "Cluster": "cluster",
        "ClusterError": "client.errors",
        "ClusterNode": "nodes.node",
        "Facts": "facts",
        "NodeOptions": "options",
        "Range": "facts",
    },
)
