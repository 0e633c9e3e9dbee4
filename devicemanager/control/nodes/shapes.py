"""JSON shapes of the control API for nodes in a cluster.

The OpenAPI document and the options of ``devicemanager ctl nodes`` are generated from these
classes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from devicemanager.control.shapes import schema
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.kubelet.pods.pod_info import PodInfo

# Lengths are limited, because a node stores these texts and shows them in its status. A resource
# name has at most 317 characters: 253 for the domain, a slash, 63 for the name.
_Name = Annotated[
    str, Meta(min_length=1, max_length=317, description="a resource, such as vendor.com/gpu")
]


class Scale(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to set the number of nodes of a kind."""

    kind: Annotated[
        str,
        Meta(min_length=1, max_length=40, description="name of the kind in the file of `join -f`"),
    ]
    # This is the limit of ``cluster.node_specs``, which this package must not import.
    count: Annotated[int, Meta(ge=0, le=100_000, description="number of nodes")]


class Device(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to change one device of a node: its resource and its ID."""

    resource: _Name
    device: Annotated[str, Meta(min_length=1, max_length=1000, description="ID of the device")]


class Resource(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to stop or start the plugin of a resource."""

    resource: _Name


class ZeroCapacity(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to make a plugin advertise no devices, or advertise all its devices again."""

    resource: _Name
    zero: Annotated[bool, Meta(description="false: advertise the devices again")] = True


# The API server allows at most 63 characters in the name of a DRA driver.
_Driver = Annotated[
    str, Meta(min_length=1, max_length=63, description="a DRA driver, such as gpu.example.com")
]


class FailPrepare(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to make the next NodePrepareResources calls to a DRA driver fail."""

    driver: _Driver
    times: Annotated[
        int,
        Meta(
            ge=-1, le=1_000_000, description="number of calls that fail; -1: all; 0: no more calls"
        ),
    ] = -1


class FailUnprepare(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to make every NodeUnprepareResources call to a DRA driver fail."""

    driver: _Driver
    fails: Annotated[bool, Meta(description="false: calls succeed again")] = True


class DelayPrepare(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to delay the responses of a DRA driver to NodePrepareResources."""

    driver: _Driver
    # The kubelet cancels a call to a DRA driver after 45 s.
    seconds: Annotated[
        float, Meta(ge=0, le=86_400, description="0: no delay; more than 45: the call times out")
    ]


class NotReady(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to make a node not ready, or ready again."""

    message: Annotated[
        str,
        Meta(
            max_length=1000,
            description="message of the condition Ready; empty: the node is ready again",
        ),
    ] = "set to not ready by a fault"


class Pressures(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to set the pressure conditions of a node: the listed ones to true, all others to
    false."""

    conditions: Annotated[
        list[Pressure], Meta(description="the conditions that are true; all others are false")
    ]


class Silence(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to stop or resume all writes of a node to the API server."""

    silent: Annotated[bool, Meta(description="false: resume all writes")] = True


class Eviction(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to evict a pod because the node is low on a resource."""

    resource: Annotated[
        str, Meta(min_length=1, max_length=1000, description="the resource the node is low on")
    ] = "memory"


class Exit(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Request to make a container exit, with its exit code and reason."""

    # An exit status has eight bits.
    exit_code: Annotated[int, Meta(ge=0, le=255, description="exit code of the container")] = 0
    reason: Annotated[
        str,
        Meta(
            max_length=1000,
            description="such as OOMKilled; by default Completed for exit code 0, else Error",
        ),
    ] = ""


# -- answers -----------------------------------------------------------------------------


class ResourceCounts(Struct, kw_only=True, frozen=True):
    """The device counts of one resource."""

    capacity: int
    allocatable: Annotated[int, Meta(description="healthy devices, allocated or not")]
    held: Annotated[int, Meta(description="devices allocated to containers, healthy or not")]


class NodeSummary(Struct, kw_only=True, frozen=True):
    """A node's readiness, its resources, and the number of its pods."""

    name: str
    ready: Annotated[bool, Meta(description="condition Ready, as the kubelet reports it")]
    silent: Annotated[bool, Meta(description="true if the node has stopped reporting")]
    pressures: Annotated[list[Pressure], Meta(description="pressure conditions that are true")]
    resources: dict[str, ResourceCounts]
    pods: Annotated[dict[str, int], Meta(description="number of pods by phase")]
    faults: Annotated[list[str], Meta(description="faults in the Node's annotation")]


class NodeList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-nodes")):
    """The nodes that the process runs, sorted by name."""

    items: list[NodeSummary]


class Condition(Struct, kw_only=True, frozen=True):
    """A condition in a node's status, such as Ready."""

    type: str
    status: bool
    reason: str
    message: str


class Node(NodeSummary, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-node")):
    """A node with its conditions and pods."""

    uid: str
    conditions: list[Condition]
    pod_list: Annotated[list[PodInfo], Meta(description="pods in the order of their admission")]
