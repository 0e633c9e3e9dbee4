"""Options of virtual nodes in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from devicemanager.cluster.driver_layouts import DriverLayout
from devicemanager.cluster.durations import Range
from devicemanager.core.quantity import Quantity
from devicemanager.objects.status.node import NodeSystemInfo

__all__ = [
    "AMOUNTS",
    "INFO",
    "POD_CIDR",
    "PREFIX",
    "SHARD_LABEL",
    "VIRTUAL_LABEL",
    "VIRTUAL_TAINT",
    "AsNodes",
    "NodeOptions",
    "OnDeleted",
]

PREFIX: Final = "devicemanager.io"
VIRTUAL_LABEL: Final = f"{PREFIX}/virtual"
SHARD_LABEL: Final = f"{PREFIX}/shard"
VIRTUAL_TAINT: Final[Mapping[str, str]] = {
    "key": VIRTUAL_LABEL,
    "value": "true",
    "effect": "NoSchedule",
}
# The amounts are large, so that devices limit the pods of a node, not CPU or memory.
AMOUNTS: Final[Mapping[str, Quantity]] = {
    name: Quantity.parse(text)
    for name, text in {
        "cpu": "64",
        "ephemeral-storage": "1Ti",
        "memory": "256Gi",
        "pods": "110",
    }.items()
}
"""Default capacity of the resources that no plugin provides (``NodeOptions.amounts``)."""

INFO: Final = NodeSystemInfo()
"""Default ``status.nodeInfo`` of a Node object."""

# Reserved for benchmarks (RFC 2544), so connections cannot reach a real host.
POD_CIDR: Final = "198.18.0.0/15"
"""Default range of the pods' addresses."""

AsNodes = bool | Literal["strict"]
"""Which requests impersonate ``system:node:NAME``. False: none. True: all writes that a kubelet may
make. ``strict``: the same writes, and also LIST and WATCH."""

# Drivers notice a deletion of their slices after this time.
SLICES_DELAY: Final = Range(1.75, 0.75)
"""Default of ``NodeOptions.slices_delay``: 1.75 s, plus or minus up to 0.75 s."""

OnDeleted = Literal["leave", "stay", "register"]
"""What a node does when its Node object is deleted. ``leave``: it leaves the cluster. ``register``:
it re-registers immediately. ``stay``: it does nothing, like a kubelet, which re-registers only
after a restart."""


@attrs.frozen
class NodeOptions:
    """Options of a virtual node. Nodes with the same options can share one object."""

    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Labels of the Node object, in addition to those of the kubelet and of devicemanager."""
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    taints: tuple[Mapping[str, str], ...] = (VIRTUAL_TAINT,)
    address: str = ""
    """InternalIP of the node, from which the API server gets logs; empty for no address."""
    port: int = 0
    """Port of the kubelet's HTTP server at ``address``; 0 for no server."""
    info: NodeSystemInfo = INFO
    """``status.nodeInfo`` of the Node object."""
    amounts: Mapping[str, Quantity] = attrs.field(factory=lambda: AMOUNTS)
    """Capacity of the resources that no plugin provides. The keys are resource names such as
    ``cpu``."""
    pod_cidr: str = POD_CIDR
    """Range of the pods' addresses, which all nodes share."""
    shard: str = "0"
    """Number of the node's shard: the value of the label ``devicemanager.io/shard``."""
    on_deleted: OnDeleted = "leave"
    all_events: bool = False
    """True if the events Pulled, Created, Started and Killing are also written."""
    as_nodes: bool = False
    """True if writes impersonate ``system:node:NAME``."""
    # The kubelet's defaults (nodeStatusUpdateFrequency and nodeStatusReportFrequency).
    status_interval: float = 10.0
    """Interval in seconds at which the node checks whether its status has changed."""
    report_interval: float = 300.0
    """Seconds after which an unchanged status of the node is written again."""
    topology: bool = False
    """True if the node writes a NodeResourceTopology object."""
    drivers: tuple[DriverLayout, ...] = ()
    """Simulated DRA drivers, with the devices that the node publishes as ResourceSlices."""
    slices_delay: Range = SLICES_DELAY
    """Time from the moment when the kubelet deletes the ResourceSlices of a driver until the driver
    publishes them again."""
    adopted: bool = False
    """True if another program created the Node object. The node then never deletes this object."""
    device_status: bool = False
    """True if the drivers write ``status.devices`` of prepared ResourceClaims."""
