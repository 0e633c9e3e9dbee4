"""How a Node object comes into the API (``registerWithAPIServer``,
pkg/kubelet/kubelet_node_status.go, v1.32)."""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.cluster.client.api import node_path
from devicemanager.cluster.client.errors import ClusterError, Conflict
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import defect
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.nodes.status import NodeStatusUpdater
from devicemanager.cluster.options import SHARD_LABEL, VIRTUAL_LABEL
from devicemanager.objects.status.node import default_labels, node_object

__all__ = ["register"]


def register(
    node: NodeContext, statuses: NodeStatusUpdater, update: Callable[[], None]
) -> JsonObject:
    """Create the Node with its status, or take over the one of a process before us, whose
    status ``update`` then writes. Returns the Node. Raises ApiError, and ClusterError for a Node
    of this name that is none of ours."""
    status = statuses.status()
    options = node.options
    body = node_object(
        node.name,
        status,
        labels=_labels(node),
        annotations=options.annotations,
        taints=options.taints,
    )
    try:
        found = _node(node.api.request("POST", "/api/v1/nodes", body, user=node.user))
    except Conflict:
        found = _taken_over(node)
        statuses.take_over(found.get("status") or {})
        update()
    else:
        statuses.was_written(status)
    return found


def _node(answer: JsonObject) -> JsonObject:
    if found := defect(answer):
        raise ClusterError(f"the API server's answer is no Node: {found}")
    return answer


def _labels(node: NodeContext) -> dict[str, str]:
    options = node.options
    ours = {VIRTUAL_LABEL: "true", SHARD_LABEL: options.shard}
    return {**default_labels(node.name, options.info), **ours, **options.labels}


def _taken_over(node: NodeContext) -> JsonObject:
    """The Node that is there already, with our labels (``updateDefaultLabels``)."""
    path = node_path(node.name)
    found = _node(node.api.request("GET", path, user=node.user))
    labels = found["metadata"].get("labels") or {}
    if VIRTUAL_LABEL not in labels:
        raise ClusterError(
            f"node {node.name} is there already and has no label {VIRTUAL_LABEL}: it is none "
            "of ours; take another name"
        )
    wanted = _labels(node)
    if any(labels.get(name) != value for name, value in wanted.items()):
        body = {"metadata": {"labels": wanted}}
        node.api.request("PATCH", path, body, patch="merge", user=node.user)
    return found
