"""The operations of the control API on nodes in a cluster.

Each function runs on a worker thread, so it can block. A test checks that each public method and
property of ``ClusterNode`` has an operation. The test lists the exceptions, each with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Annotated, Any, Concatenate, Final, ParamSpec

from msgspec import Meta

from devicemanager.control.errors import NOT_FOUND, HttpError
from devicemanager.control.nodes import shapes
from devicemanager.control.nodes.protocol import ControlledCluster, Leave, NodeControl
from devicemanager.control.operation import Operation, OperationTable, Workers, WorkersOf
from devicemanager.core.nodestatus.conditions import Pressure

__all__ = ["TABLE"]

P = ParamSpec("P")

TABLE: Final = OperationTable(
    "Control API of nodes in a cluster",
    """\
Controls the nodes of one `devicemanager join`, over HTTP on `control.sock` in its root. An
operation returns once the node has accepted it; the API server is updated soon after. Later
versions can add fields to responses. Unknown fields and parameters of requests are rejected.""",
)

_NODE: Final = "/v1/nodes/{node}"
_POD: Final = _NODE + "/pods/{uid}"


@TABLE.get("/v1/nodes", "name faults is_silent kubelet")
def list_nodes(cluster: ControlledCluster) -> shapes.NodeList:
    """List the nodes that this process runs."""
    # The property is read once, because each read copies the nodes, and nodes can leave in between.
    found = cluster.nodes
    return shapes.NodeList(
        items=[shapes.NodeSummary(**_summary(found[name])) for name in sorted(found)]
    )


@TABLE.get(_NODE, "uid conditions")
def get_node(cluster: ControlledCluster, node: str) -> shapes.Node:
    """Show a node with its conditions and pods."""
    found = _node(cluster, node)
    conditions = [
        shapes.Condition(
            type=each.type, status=each.status, reason=each.reason, message=each.message
        )
        for each in found.conditions()
    ]
    return shapes.Node(
        **_summary(found),
        uid=found.uid,
        conditions=conditions,
        pod_list=list(found.kubelet.pods().values()),
    )


@TABLE.delete(_NODE, "leave shut_down")
def leave(
    cluster: ControlledCluster,
    node: str,
    *,
    how: Annotated[
        Leave,
        Meta(description="delete the Node, keep it, or shut the node down: terminate its pods"),
    ] = "delete",
) -> None:
    """Make a node leave the cluster."""
    # The lookup makes an unknown node a 404, as in the other operations.
    cluster.leave([_node(cluster, node).name], how)


@TABLE.post("/v1/scale", "", workers=Workers.LONG)
def scale_kind(cluster: ControlledCluster, body: shapes.Scale) -> None:
    """Set the number of nodes of a kind. A kind is a group of nodes with the same devices and
    options. If the number decreases, the nodes with the highest indexes leave."""
    cluster.scale(body.kind, body.count)


def _on_node(
    path: str, member: str, workers: WorkersOf = Workers.QUICK
) -> Callable[[Callable[Concatenate[NodeControl, P], None]], Operation[None]]:
    """Return a decorator that makes an operation from a function of one node. The function gets the
    node that the path names."""

    def decorate(act: Callable[Concatenate[NodeControl, P], None]) -> Operation[None]:
        # `wraps` copies the annotations, because Operation reads the types from them.
        @wraps(act)
        def handler(
            cluster: ControlledCluster, node: str, *args: P.args, **arguments: P.kwargs
        ) -> None:
            act(_node(cluster, node), *args, **arguments)

        return TABLE.post(path, member, workers=workers)(handler)

    return decorate


# -- devices and plugins -----------------------------------------------------------------


@_on_node(_NODE + "/fail-device", "fail_device")
def fail_device(node: NodeControl, body: shapes.Device) -> None:
    """Make a device unhealthy."""
    node.fail_device(body.resource, body.device)


@_on_node(_NODE + "/recover-device", "recover_device")
def recover_device(node: NodeControl, body: shapes.Device) -> None:
    """Make a device healthy again."""
    node.recover_device(body.resource, body.device)


@_on_node(_NODE + "/lose-device", "lose_device")
def lose_device(node: NodeControl, body: shapes.Device) -> None:
    """Remove a device from its plugin's device list."""
    node.lose_device(body.resource, body.device)


@_on_node(_NODE + "/return-device", "return_device")
def return_device(node: NodeControl, body: shapes.Device) -> None:
    """Add a removed device to its plugin's device list again."""
    node.return_device(body.resource, body.device)


@_on_node(_NODE + "/stop-plugin", "stop_plugin", Workers.LONG)
def stop_plugin(node: NodeControl, body: shapes.Resource) -> None:
    """Stop a plugin: its devices become unhealthy, and are removed after the grace period."""
    node.stop_plugin(body.resource)


@_on_node(_NODE + "/start-plugin", "start_plugin", Workers.LONG)
def start_plugin(node: NodeControl, body: shapes.Resource) -> None:
    """Start a stopped plugin, which registers again."""
    node.start_plugin(body.resource)


@_on_node(_NODE + "/zero-capacity", "zero_capacity")
def zero_capacity(node: NodeControl, body: shapes.ZeroCapacity) -> None:
    """Make a plugin advertise no devices, or advertise all its devices again."""
    node.zero_capacity(body.resource, body.zero)


# -- DRA drivers -------------------------------------------------------------------------


@_on_node(_NODE + "/fail-prepare", "fail_prepare")
def fail_prepare(node: NodeControl, body: shapes.FailPrepare) -> None:
    """Make the next NodePrepareResources calls to a DRA driver fail. Pods that wait for these calls
    stay Pending."""
    node.fail_prepare(body.driver, body.times)


@_on_node(_NODE + "/fail-unprepare", "fail_unprepare")
def fail_unprepare(node: NodeControl, body: shapes.FailUnprepare) -> None:
    """Make NodeUnprepareResources calls to a DRA driver fail, or succeed again. Pods that wait for
    these calls stay Terminating."""
    node.fail_unprepare(body.driver, body.fails)


@_on_node(_NODE + "/delay-prepare", "delay_prepare")
def delay_prepare(node: NodeControl, body: shapes.DelayPrepare) -> None:
    """Delay the responses of a DRA driver to NodePrepareResources."""
    node.delay_prepare(body.driver, body.seconds)


# -- conditions --------------------------------------------------------------------------


@_on_node(_NODE + "/not-ready", "not_ready")
def set_not_ready(node: NodeControl, body: shapes.NotReady) -> None:
    """Make a node not ready, or ready again."""
    node.not_ready(body.message)


@_on_node(_NODE + "/pressure", "pressure")
def set_pressure(node: NodeControl, body: shapes.Pressures) -> None:
    """Set the pressure conditions of a node. The node then rejects pods, as a kubelet under
    pressure does."""
    node.pressure(body.conditions)


@_on_node(_NODE + "/silent", "silent")
def silence(node: NodeControl, body: shapes.Silence) -> None:
    """Stop or resume all writes of a node to the API server."""
    node.silent(body.silent)


@_on_node(_NODE + "/reboot", "reboot", Workers.LONG)
def reboot_node(node: NodeControl) -> None:
    """Reboot a node: all containers stop, and every pod is admitted again."""
    node.reboot()


@_on_node(_NODE + "/restart", "restart", Workers.LONG)
def restart_kubelet(node: NodeControl) -> None:
    """Restart the kubelet of a node. Containers keep running."""
    node.restart()


# -- pods --------------------------------------------------------------------------------


# An eviction has the threads of ``ENDING``, so it works even if hanging plugins block all other
# worker threads.
@_on_node(_POD + "/evict", "evict", Workers.ENDING)
def evict_pod(node: NodeControl, uid: str, body: shapes.Eviction) -> None:
    """Evict a pod, as a kubelet does if the node is low on a resource."""
    _check_pod(node, uid)
    node.evict(uid, body.resource)


@_on_node(_POD + "/containers/{container}/exit", "exit", Workers.LONG)
def exit_container(node: NodeControl, uid: str, container: str, body: shapes.Exit) -> None:
    """Make a running container exit."""
    _check_pod(node, uid)
    node.exit(uid, container, body.exit_code, reason=body.reason)


# -- shared ------------------------------------------------------------------------------


def _node(cluster: ControlledCluster, name: str) -> NodeControl:
    found = cluster.nodes.get(name)
    if found is None:
        # Truncated, because a path can have kilobytes.
        text = f"unknown node {name[:200]!r}: use one of the nodes that /v1/nodes lists"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)
    return found


def _check_pod(node: NodeControl, uid: str) -> None:
    # The node also rejects an unknown UID, but its RequestError would become 409 instead of 404.
    if not node.kubelet.has_pod(uid):
        text = f"unknown pod UID {uid[:200]!r}: /v1/nodes/{node.name} lists the pods of the node"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)


def _summary(node: NodeControl) -> dict[str, Any]:
    """Return the fields of a ``NodeSummary`` for a node."""
    kubelet = node.kubelet
    *pressures, ready = node.conditions()
    # The pods' records are cheaper than their descriptions, and there can be thousands of nodes.
    phases = Counter(str(record.phase) for record in kubelet.pod_store.records())
    return {
        "name": node.name,
        "ready": ready.status,
        "silent": node.is_silent,
        "pressures": [Pressure(each.type) for each in pressures if each.status],
        "resources": {
            name: shapes.ResourceCounts(
                capacity=counts.capacity, allocatable=counts.allocatable, held=counts.held
            )
            for name, counts in kubelet.telemetry.device_counts().items()
        },
        "pods": dict(sorted(phases.items())),
        "faults": [str(fault) for fault in node.faults.active],
    }
