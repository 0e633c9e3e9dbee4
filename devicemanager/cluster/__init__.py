"""Virtual nodes in a real Kubernetes cluster.

The cluster's scheduler binds pods to nodes that do not exist as machines. Each node has a mock
kubelet, which admits or rejects pods and allocates devices like a real kubelet.

Theory of operation.

In:  a kubeconfig; the nodes to add (``NodeSpecs``) with their kubelets; Nodes and pods from the
     API server; events of the kubelets; calls and annotations that make nodes fail.
Out: Node and Lease objects, pod statuses, Kubernetes events, deletions of stopped pods.

* ``cluster``: ``Cluster``, the entry point. It lets nodes join and leave. Start reading there,
  then in ``nodes.node`` and ``pods.pod_sync``.
* ``preflight``: checks before anything changes. ``node_specs`` and ``options``: names, kubelets
  and options of nodes. ``container_behaviour``: when containers start and exit.
* ``connection``: requests, leases, LIST and WATCH (``devicemanager.client``), shared by all nodes.
* ``nodes``: the Node object of a node, and node faults. ``pods``: the pods of a node.
* ``shard``: distribution of the nodes among several processes.

The path of a pod: The scheduler binds the pod to a node. The shared watch delivers it to the node.
The node's sync loop passes it to the kubelet, which admits or rejects it. The status manager
writes the result. Later events of the kubelet cause further writes, until the pod is deleted or
its containers have exited.

``devicemanager.apiserver`` is an API server for tests and demos of all this.

Invariants:
* The state is in the API server. When a process takes over nodes, it reads the allocated devices
  from pod statuses.
* No node or pod has its own thread. All nodes share one work queue; work with the same key runs
  in order.
* Only kubelets decide about devices. Other modules use a kubelet only through the protocol in
  ``kubelet``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.client.errors import ApiError, ClusterError
    from devicemanager.client.lease_controller import LeaseLag
    from devicemanager.client.protocol import JsonObject
    from devicemanager.client.rate_limited_warning import Warn
    from devicemanager.client.recorder import EventType
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.container_behaviour import ContainerBehaviour, PodBehaviour
    from devicemanager.cluster.driver_layouts import DriverLayout, PoolLayout, simulated_driver
    from devicemanager.cluster.durations import Range
    from devicemanager.cluster.kubelet import NodeKubelet
    from devicemanager.cluster.node_specs import NodeSpecs, Numbering
    from devicemanager.cluster.nodes.faults import Fault, NodeFaults
    from devicemanager.cluster.nodes.node import ClusterNode, Leave
    from devicemanager.cluster.options import AsNodes, NodeOptions, OnDeleted
    from devicemanager.cluster.preflight import PreflightResult
    from devicemanager.cluster.shard import Shard
    from devicemanager.core.nodestatus.conditions import NodeCondition, Pressure
    from devicemanager.core.quantity import Quantity
    from devicemanager.core.responses import Responses
    from devicemanager.core.usage import Amount, Usage
    from devicemanager.objects.status.node import NodeSystemInfo

__all__ = [
    "Amount",
    "ApiError",
    "AsNodes",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ContainerBehaviour",
    "DriverLayout",
    "EventType",
    "Fault",
    "JsonObject",
    "LeaseLag",
    "Leave",
    "NodeCondition",
    "NodeFaults",
    "NodeKubelet",
    "NodeOptions",
    "NodeSpecs",
    "NodeSystemInfo",
    "Numbering",
    "OnDeleted",
    "PodBehaviour",
    "PoolLayout",
    "PreflightResult",
    "Pressure",
    "Quantity",
    "Range",
    "Responses",
    "Shard",
    "Usage",
    "Warn",
    "simulated_driver",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Amount": ".core.usage",
        "ApiError": ".client.errors",
        "AsNodes": "options",
        "Cluster": "cluster",
        "ClusterError": ".client.errors",
        "ClusterNode": "nodes.node",
        "ContainerBehaviour": "container_behaviour",
        "DriverLayout": "driver_layouts",
        "EventType": ".client.recorder",
        "Fault": "nodes.faults",
        "JsonObject": ".client.protocol",
        "Leave": "nodes.node",
        "LeaseLag": ".client.lease_controller",
        "NodeCondition": "nodes.node",
        "NodeFaults": "nodes.faults",
        "NodeKubelet": "kubelet",
        "NodeOptions": "options",
        "NodeSpecs": "node_specs",
        "NodeSystemInfo": "options",
        "Numbering": "node_specs",
        "OnDeleted": "options",
        "PodBehaviour": "container_behaviour",
        "PoolLayout": "driver_layouts",
        "PreflightResult": "preflight",
        "Pressure": "nodes.node",
        "Quantity": "options",
        "Range": "durations",
        "Responses": ".core.responses",
        "Shard": "shard",
        "Usage": ".core.usage",
        "Warn": ".client.rate_limited_warning",
        "simulated_driver": "driver_layouts",
    },
)
