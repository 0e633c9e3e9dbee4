"""Every operation on nodes, in one table. A test fails if a public member of ``ClusterNode`` is
neither here nor in ``NOT_HERE``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from devicemanager.control.nodes import handlers, shapes
from devicemanager.control.nodes.handlers import on_node
from devicemanager.control.openapi import About, build
from devicemanager.control.operation import Operation, call

__all__ = ["NOT_HERE", "OPERATIONS", "document", "operation"]

_NODE: Final = "/v1/nodes/{node}"
_POD: Final = _NODE + "/pods/{uid}"

OPERATIONS: Final[tuple[Operation, ...]] = (
    call(
        "listNodes",
        "GET",
        "/v1/nodes",
        "name faults is_silent kubelet",
        "List the nodes of this process.",
        handlers.nodes,
        answer=shapes.NodeList,
    ),
    call(
        "getNode",
        "GET",
        _NODE,
        "uid conditions pods",
        "Show a node with its conditions and its pods.",
        handlers.node,
        answer=shapes.Node,
    ),
    call(
        "leave",
        "DELETE",
        _NODE,
        "leave shut_down",
        "Let a node leave the cluster.",
        handlers.leave,
        query=shapes.LeaveQuery,
    ),
    call(
        "failDevice",
        "POST",
        _NODE + "/fail-device",
        "fail_device",
        "Make a device unhealthy.",
        on_node(lambda node, asked: node.fail_device(asked.resource, asked.device)),
        body=shapes.Device,
    ),
    call(
        "recoverDevice",
        "POST",
        _NODE + "/recover-device",
        "recover_device",
        "Make a device healthy.",
        on_node(lambda node, asked: node.recover_device(asked.resource, asked.device)),
        body=shapes.Device,
    ),
    call(
        "loseDevice",
        "POST",
        _NODE + "/lose-device",
        "lose_device",
        "Let the plugin list a device no more.",
        on_node(lambda node, asked: node.lose_device(asked.resource, asked.device)),
        body=shapes.Device,
    ),
    call(
        "returnDevice",
        "POST",
        _NODE + "/return-device",
        "return_device",
        "Let the plugin list a device again that was lost.",
        on_node(lambda node, asked: node.return_device(asked.resource, asked.device)),
        body=shapes.Device,
    ),
    call(
        "stopPlugin",
        "POST",
        _NODE + "/stop-plugin",
        "stop_plugin",
        "End a plugin: its devices are unhealthy, and gone after the grace period.",
        on_node(lambda node, asked: node.stop_plugin(asked.resource)),
        body=shapes.Resource,
    ),
    call(
        "startPlugin",
        "POST",
        _NODE + "/start-plugin",
        "start_plugin",
        "Register a plugin again that ended.",
        on_node(lambda node, asked: node.start_plugin(asked.resource)),
        body=shapes.Resource,
    ),
    call(
        "zeroCapacity",
        "POST",
        _NODE + "/zero-capacity",
        "zero_capacity",
        "Let a plugin list nothing, or its devices again.",
        on_node(lambda node, asked: node.zero_capacity(asked.resource, asked.zero)),
        body=shapes.ZeroCapacity,
    ),
    call(
        "setNotReady",
        "POST",
        _NODE + "/not-ready",
        "not_ready",
        "Make a node not ready, or ready again.",
        on_node(lambda node, asked: node.not_ready(asked.message)),
        body=shapes.NotReady,
    ),
    call(
        "setPressure",
        "POST",
        _NODE + "/pressure",
        "pressure",
        "Say what a node is short of: it rejects pods as a kubelet does.",
        on_node(lambda node, asked: node.pressure(asked.conditions)),
        body=shapes.Pressures,
    ),
    call(
        "silence",
        "POST",
        _NODE + "/silent",
        "silent",
        "Let nobody hear of a node: no lease, no status; or end that.",
        on_node(lambda node, asked: node.silent(asked.silent)),
        body=shapes.Silence,
    ),
    call(
        "rebootNode",
        "POST",
        _NODE + "/reboot",
        "reboot",
        "Start the machine anew: no container runs, every pod is admitted again.",
        on_node(lambda node, _: node.reboot()),
    ),
    call(
        "restartKubelet",
        "POST",
        _NODE + "/restart",
        "restart",
        "Start a node's kubelet anew; containers keep running.",
        on_node(lambda node, _: node.restart()),
    ),
    call(
        "evictPod",
        "POST",
        _POD + "/evict",
        "evict",
        "Let the kubelet end a pod because the node is low on something.",
        handlers.evict,
        body=shapes.Eviction,
    ),
    call(
        "exitContainer",
        "POST",
        _POD + "/containers/{container}/exit",
        "exit",
        "Let a running container end by itself.",
        handlers.exit_container,
        body=shapes.Exit,
    ),
)

NOT_HERE: Final[Mapping[str, str]] = {
    "options": "given to the node when it joins; of `join`, its flags",
    "is_over": "a node that has left is not listed any more",
    "join": "whoever made the node does that",
    "do": "takes a function of Python",
    "say": "a line of the node itself, for people",
    "look": "every operation that changes the status does it",
    "record": "an event of the node itself",
    "seen": "what the API server tells a node",
}
"""Members of ClusterNode without an operation, and why."""


def operation(name: str) -> Operation:
    """The row of that name."""
    return _BY_NAME[name]


_BY_NAME = {each.name: each for each in OPERATIONS}

_ABOUT: Final = About(
    "Control API of nodes in a cluster",
    """\
Steers the nodes of one `devicemanager join`, over HTTP on `control.sock` in its root. An
operation answers once the node has taken it up; the API server is told soon after. Answers may get
new fields; unknown fields and parameters of requests are rejected.""",
)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document as plain data. Nobody may change it."""
    return build(OPERATIONS, _ABOUT)
