"""What each operation does with the nodes. Handlers may block; they run on worker threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from devicemanager.control.errors import NOT_FOUND, HttpError
from devicemanager.control.nodes import shapes
from devicemanager.control.nodes.protocol import NodeControl, SteeredCluster, SteeredKubelet
from devicemanager.control.operation import Request
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import Pressure

__all__ = ["evict", "exit_container", "leave", "node", "nodes", "on_node"]

_Handler = Callable[[SteeredCluster, Request], None]


def nodes(cluster: SteeredCluster, _: Request) -> shapes.NodeList:
    found = cluster.nodes
    return shapes.NodeList(
        items=[shapes.NodeSummary(**_summary(found[name])) for name in sorted(found)]
    )


def node(cluster: SteeredCluster, request: Request) -> shapes.Node:
    found = _node(cluster, request)
    conditions = [
        shapes.Condition(
            type=each.type, status=each.status, reason=each.reason, message=each.message
        )
        for each in found.conditions()
    ]
    return shapes.Node(
        **_summary(found), uid=found.uid, conditions=conditions, pod_list=_pods(found)
    )


def leave(cluster: SteeredCluster, request: Request) -> None:
    cluster.leave([_node(cluster, request).name], request.query.how)


def on_node(act: Callable[[NodeControl, Any], None]) -> _Handler:
    """A handler that does something with the node of the path and the request's body."""

    def handler(cluster: SteeredCluster, request: Request) -> None:
        act(_node(cluster, request), request.body)

    return handler


def evict(cluster: SteeredCluster, request: Request) -> None:
    found, uid = _pod(cluster, request)
    found.evict(uid, request.body.resource)


def exit_container(cluster: SteeredCluster, request: Request) -> None:
    found, uid = _pod(cluster, request)
    asked: shapes.Exit = request.body
    found.exit(uid, request.path["container"], asked.exit_code, reason=asked.reason)


def _node(cluster: SteeredCluster, request: Request) -> NodeControl:
    name = request.path["node"]
    found = cluster.nodes.get(name)
    if found is None:
        text = f"there is no node {name[:200]!r} here: /v1/nodes lists those of this process"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)
    return found


def _pod(cluster: SteeredCluster, request: Request) -> tuple[NodeControl, str]:
    found, uid = _node(cluster, request), request.path["uid"]
    if not found.kubelet.has_pod(uid):
        text = f"no pod with UID {uid[:200]!r} is on node {found.name}"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)
    return found, uid


def _summary(found: NodeControl) -> dict[str, Any]:
    """The fields of a ``NodeSummary``."""
    kubelet = found.kubelet
    *short, ready = found.conditions()
    phases = Counter(str(record.phase) for record in kubelet.pods().values())
    return {
        "name": found.name,
        "ready": ready.status,
        "silent": found.is_silent,
        "pressures": [Pressure(each.type) for each in short if each.status],
        "resources": {
            name: shapes.ResourceCounts(
                capacity=counts.capacity, allocatable=counts.allocatable, held=counts.held
            )
            for name, counts in kubelet.telemetry.device_counts().items()
        },
        "pods": dict(sorted(phases.items())),
        "faults": [str(fault) for fault in found.faults.active],
    }


def _pods(found: NodeControl) -> list[shapes.Pod]:
    kubelet = found.kubelet
    return [
        shapes.Pod(
            uid=uid,
            namespace=record.pod.namespace,
            name=record.pod.name,
            phase=str(record.phase),
            reason=record.reason,
            message=record.message,
            devices=_held(kubelet, uid),
        )
        for uid, record in kubelet.pods().items()
    ]


def _held(kubelet: SteeredKubelet, uid: str) -> dict[str, dict[str, list[str]]]:
    """Ids of a pod's devices by container and resource."""
    try:
        return kubelet.devices(uid)
    except RequestError:  # the pod was deleted meanwhile
        return {}
