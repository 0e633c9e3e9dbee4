"""Virtual nodes in a real Kubernetes cluster.

The cluster's scheduler binds pods to nodes that do not exist as machines. Each has a kubelet of
this project, which admits or rejects pods and allocates devices as a real kubelet does.

Theory of operation.

In:  a kubeconfig; the nodes to add (``NodeSpecs``) with their kubelets; Nodes and pods from the
     API server; events of the kubelets; calls and annotations that make nodes fail.
Out: Node and Lease objects, pod statuses, Kubernetes events, deletions.

* ``cluster``: ``Cluster``, the entry point. It lets nodes join and leave. Start reading there,
  then in ``nodes.node`` and ``pods.pod_sync``.
* ``preflight``: checks before anything changes. ``node_specs``, ``options`` and
  ``container_behaviour``: what the nodes are like, and what their containers do.
* ``client``: requests, leases, LIST and WATCH, shared by all nodes (``connection``).
* ``nodes``: a Node object and what can go wrong with it. ``pods``: the pods of a node.
* ``shard``: several processes that share the nodes.
* ``fake_apiserver``: an API server for tests and demos.

A pod's path: the scheduler binds it; the shared watch delivers it to its node; the node's sync
loop lets the kubelet admit it; the status manager writes the result; the kubelet's events lead
to further writes, until the pod is deleted or its containers end.

Invariants:
* The state is in the API server. A process that takes over nodes restores their pods from the
  devices in the pod statuses.
* No thread per node or pod: work of all nodes shares one work queue, ordered by keys.
* Only kubelets decide about devices, and a kubelet is visible only through ``kubelet``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.cluster.client.errors import ApiError, ClusterError
    from devicemanager.cluster.client.lease_controller import LeaseLag
    from devicemanager.cluster.client.protocol import JsonObject
    from devicemanager.cluster.client.rate_limited_warning import Warn
    from devicemanager.cluster.client.recorder import EventType
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.container_behaviour import (
        ContainerBehaviour,
        PodBehaviour,
        Range,
    )
    from devicemanager.cluster.kubelet import NodeKubelet
    from devicemanager.cluster.node_specs import NodeSpecs
    from devicemanager.cluster.nodes.faults import Fault, NodeFaults
    from devicemanager.cluster.nodes.node import ClusterNode, Leave
    from devicemanager.cluster.options import AsNodes, NodeOptions, OnDeleted
    from devicemanager.cluster.preflight import PreflightResult
    from devicemanager.cluster.shard import Shard
    from devicemanager.core.nodestatus.conditions import NodeCondition, Pressure
    from devicemanager.core.quantity import Quantity
    from devicemanager.objects.status.node import NodeSystemInfo

__all__ = [
    "ApiError",
    "AsNodes",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ContainerBehaviour",
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
    "OnDeleted",
    "PodBehaviour",
    "PreflightResult",
    "Pressure",
    "Quantity",
    "Range",
    "Shard",
    "Warn",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ApiError": "client.errors",
        "AsNodes": "options",
        "Cluster": "cluster",
        "ClusterError": "client.errors",
        "ClusterNode": "nodes.node",
        "ContainerBehaviour": "container_behaviour",
        "EventType": "client.recorder",
        "Fault": "nodes.faults",
        "JsonObject": "client.protocol",
        "Leave": "nodes.node",
        "LeaseLag": "client.lease_controller",
        "NodeCondition": "nodes.node",
        "NodeFaults": "nodes.faults",
        "NodeKubelet": "kubelet",
        "NodeOptions": "options",
        "NodeSpecs": "node_specs",
        "NodeSystemInfo": "options",
        "OnDeleted": "options",
        "PodBehaviour": "container_behaviour",
        "PreflightResult": "preflight",
        "Pressure": "nodes.node",
        "Quantity": "options",
        "Range": "container_behaviour",
        "Shard": "shard",
        "Warn": "client.rate_limited_warning",
    },
)
