"""What a node in the cluster is told to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from devicemanager.core.quantity import Quantity
from devicemanager.objects.status.node import NodeInfo

__all__ = [
    "AMOUNTS",
    "INFO",
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
AMOUNTS: Final[Mapping[str, Quantity]] = {
    name: Quantity.parse(text)
    for name, text in {
        "cpu": "64",
        "ephemeral-storage": "1Ti",
        "memory": "256Gi",
        "pods": "110",
    }.items()
}
"""What a node has besides devices, where its kubelet's settings do not say."""

INFO: Final = NodeInfo("v1.32.0+devicemanager")
"""What a node says that it is."""

AsNodes = bool | Literal["strict"]
"""Whether requests are made as the user ``system:node:NAME``: none, all that write, or ``strict``:
those that LIST and WATCH, too."""

OnDeleted = Literal["leave", "stay", "register"]
"""When somebody deletes the Node: it has left; it goes on as a kubelet does, which only a restart
registers again; it registers again at once."""


@attrs.frozen
class NodeOptions:
    """Of one node; nodes that are alike may share it."""

    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Besides the kubelet's own and ours."""
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    taints: tuple[Mapping[str, str], ...] = (VIRTUAL_TAINT,)
    address: str = ""
    """InternalIP; empty for none. The API server dials it for logs."""
    port: int = 0
    """Of the kubelet's HTTP server at that address; 0 without one."""
    info: NodeInfo = INFO
    amounts: Mapping[str, Quantity] = attrs.field(factory=lambda: AMOUNTS)
    shard: str = "0"
    on_deleted: OnDeleted = "leave"
    all_events: bool = False
    """Whether the kubelet's everyday events are written, too: Pulled, Created, Started, Killing.
    Rejections and what happens to the node always are."""
    as_nodes: bool = False
    """Whether writes are made in the name of the node."""
    status_interval: float = 10.0
    """Seconds between two looks at whether the status has changed."""
    report_interval: float = 300.0
    """Seconds after which it is told also if it has not."""
    topology: bool = False
    """Whether a NodeResourceTopology object shows the NUMA nodes."""
