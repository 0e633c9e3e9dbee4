"""What crosses the control API of nodes. The OpenAPI document is made from these classes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from devicemanager.control.nodes.protocol import Leave
from devicemanager.control.shapes import schema
from devicemanager.core.nodestatus.conditions import Pressure

__all__ = [
    "Condition",
    "Device",
    "Eviction",
    "Exit",
    "LeaveQuery",
    "Node",
    "NodeList",
    "NodeSummary",
    "NotReady",
    "Pod",
    "Pressures",
    "Resource",
    "ResourceCounts",
    "Silence",
    "ZeroCapacity",
]

_Name = Annotated[str, Meta(min_length=1, max_length=317)]


# -- what is asked ---------------------------------------------------------------------


class Device(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One device of a node."""

    resource: _Name
    device: Annotated[str, Meta(min_length=1, max_length=1000, description="its id")]


class Resource(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One resource of a node."""

    resource: _Name


class ZeroCapacity(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whether the plugin of a resource lists nothing."""

    resource: _Name
    zero: Annotated[bool, Meta(description="false: it lists its devices again")] = True


class NotReady(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Why a node is not ready."""

    message: Annotated[
        str,
        Meta(max_length=1000, description="in the condition Ready; empty: the node is ready again"),
    ] = "made not ready on purpose"


class Pressures(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a node is short of."""

    conditions: Annotated[
        list[Pressure], Meta(description="these, and nothing else; empty: nothing")
    ]


class Silence(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whether a node is silent."""

    silent: Annotated[bool, Meta(description="false: it is heard of again")] = True


class Eviction(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Why a pod is evicted."""

    resource: Annotated[
        str, Meta(min_length=1, max_length=1000, description="what the node is low on")
    ] = "memory"


class Exit(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How a container ended."""

    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    reason: Annotated[
        str,
        Meta(max_length=1000, description="such as OOMKilled; by default Completed or Error"),
    ] = ""


class LeaveQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    how: Annotated[
        Leave,
        Meta(
            description="delete the Node, keep it as it is, or shut it down, which ends its pods "
            "first"
        ),
    ] = "delete"


# -- what is answered ------------------------------------------------------------------


class ResourceCounts(Struct, kw_only=True, frozen=True):
    """Devices of one resource."""

    capacity: int
    allocatable: Annotated[int, Meta(description="healthy ones, held or not")]
    held: Annotated[int, Meta(description="those that containers hold, healthy or not")]


class NodeSummary(Struct, kw_only=True, frozen=True):
    """A node in short."""

    name: str
    ready: Annotated[bool, Meta(description="as its kubelet says it")]
    silent: Annotated[bool, Meta(description="nobody hears of it")]
    pressures: Annotated[list[Pressure], Meta(description="what it is short of")]
    resources: dict[str, ResourceCounts]
    pods: Annotated[dict[str, int], Meta(description="how many are in each phase")]
    faults: Annotated[list[str], Meta(description="those that the Node's annotation lists")]


class NodeList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-nodes")):
    """The nodes of this process, sorted by name."""

    items: list[NodeSummary]


class Condition(Struct, kw_only=True, frozen=True):
    """One condition of a node."""

    type: str
    status: bool
    reason: str
    message: str


class Pod(Struct, kw_only=True, frozen=True):
    """A pod on a node."""

    uid: str
    namespace: str
    name: str
    phase: str
    reason: Annotated[str, Meta(description="why it was rejected or ended; may be empty")]
    message: str
    devices: Annotated[
        dict[str, dict[str, list[str]]],
        Meta(description="ids of the devices that it holds, by container and resource"),
    ]


class Node(NodeSummary, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-node")):
    """A node."""

    uid: str
    conditions: list[Condition]
    pod_list: Annotated[list[Pod], Meta(description="in the order in which they came")]
