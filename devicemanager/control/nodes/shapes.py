"""JSON shapes of the control API of nodes.

The OpenAPI document and the options of ``devicemanager ctl nodes`` are made from these classes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from devicemanager.control.shapes import schema
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.kubelet.pods.pod_info import PodInfo

# Lengths are limited, because a node keeps these texts and shows them in its status. 317 is the
# longest name of a resource: 253 for the domain, 63 for the name.
_Name = Annotated[
    str, Meta(min_length=1, max_length=317, description="a resource, such as vendor.com/gpu")
]


class Device(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A device of a node."""

    resource: _Name
    device: Annotated[str, Meta(min_length=1, max_length=1000, description="ID of the device")]


class Resource(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A resource of a node."""

    resource: _Name


class ZeroCapacity(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whether a plugin advertises no devices."""

    resource: _Name
    zero: Annotated[bool, Meta(description="false: advertise the devices again")] = True


class NotReady(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Why a node is not ready."""

    message: Annotated[
        str,
        Meta(
            max_length=1000,
            description="message of the condition Ready; empty: the node is ready again",
        ),
    ] = "made not ready on purpose"


class Pressures(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a node is short of."""

    conditions: Annotated[
        list[Pressure], Meta(description="exactly these conditions are true; empty: none")
    ]


class Silence(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whether a node stops its lease renewals and status updates."""

    silent: Annotated[bool, Meta(description="false: resume them")] = True


class Eviction(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Why a pod is evicted."""

    resource: Annotated[
        str, Meta(min_length=1, max_length=1000, description="the resource the node is low on")
    ] = "memory"


class Exit(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How a container terminates."""

    exit_code: Annotated[int, Meta(ge=0, le=255, description="exit code of the container")] = 0
    reason: Annotated[
        str,
        Meta(
            max_length=1000,
            description="such as OOMKilled; by default Completed, or Error after a failure",
        ),
    ] = ""


# -- answers -----------------------------------------------------------------------------


class ResourceCounts(Struct, kw_only=True, frozen=True):
    """Numbers of devices of one resource."""

    capacity: int
    allocatable: Annotated[int, Meta(description="healthy devices, allocated or not")]
    held: Annotated[int, Meta(description="devices allocated to containers, healthy or not")]


class NodeSummary(Struct, kw_only=True, frozen=True):
    """The most important facts about a node."""

    name: str
    ready: Annotated[bool, Meta(description="as its kubelet reports it")]
    silent: Annotated[bool, Meta(description="true if it has stopped reporting")]
    pressures: Annotated[list[Pressure], Meta(description="what it is short of")]
    resources: dict[str, ResourceCounts]
    pods: Annotated[dict[str, int], Meta(description="number of pods by phase")]
    faults: Annotated[list[str], Meta(description="faults in the Node's annotation")]


class NodeList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-nodes")):
    """The nodes of this process, sorted by name."""

    items: list[NodeSummary]


class Condition(Struct, kw_only=True, frozen=True):
    """A condition of a node."""

    type: str
    status: bool
    reason: str
    message: str


class Node(NodeSummary, kw_only=True, frozen=True, tag_field="schema", tag=schema("cluster-node")):
    """A node with its conditions and pods."""

    uid: str
    conditions: list[Condition]
    pod_list: Annotated[list[PodInfo], Meta(description="in the order in which they came")]
