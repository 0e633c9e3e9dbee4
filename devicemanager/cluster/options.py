"""Options of nodes in the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from devicemanager.core.quantity import Quantity
from devicemanager.objects.status.node import NodeSystemInfo

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
# Large, so that devices limit the pods of a node, and not CPU or memory.
AMOUNTS: Final[Mapping[str, Quantity]] = {
    name: Quantity.parse(text)
    for name, text in {
        "cpu": "64",
        "ephemeral-storage": "1Ti",
        "memory": "256Gi",
        "pods": "110",
    }.items()
}
"""Default capacity of native resources."""

# The suffix marks virtual nodes in `kubectl get nodes`, and the version stays valid.
INFO: Final = NodeSystemInfo("v1.32.0+devicemanager")
"""Default ``status.nodeInfo``."""

AsNodes = bool | Literal["strict"]
"""Requests that impersonate ``system:node:NAME``: none (False), the writes that a kubelet may make
(True), or also LIST and WATCH (``strict``)."""

OnDeleted = Literal["leave", "stay", "register"]
"""What a node does when its Node is deleted: ``leave``, ``stay`` (like a kubelet, re-register only
after a restart) or ``register`` again at once."""


@attrs.frozen
class NodeOptions:
    """Options of a node. Equal nodes can share one object."""

    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Labels in addition to those of the kubelet and of devicemanager."""
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    taints: tuple[Mapping[str, str], ...] = (VIRTUAL_TAINT,)
    address: str = ""
    """InternalIP, where the API server gets logs; empty for none."""
    port: int = 0
    """Port of the kubelet's HTTP server at that address; 0 for none."""
    info: NodeSystemInfo = INFO
    """``status.nodeInfo``."""
    amounts: Mapping[str, Quantity] = attrs.field(factory=lambda: AMOUNTS)
    """Capacity of native resources."""
    shard: str = "0"
    """Value of the label ``devicemanager.io/shard``."""
    on_deleted: OnDeleted = "leave"
    all_events: bool = False
    """True: also write the events Pulled, Created, Started and Killing."""
    as_nodes: bool = False
    """True: impersonate ``system:node:NAME`` in writes."""
    status_interval: float = 10.0
    """Seconds between checks whether the status has changed."""
    report_interval: float = 300.0
    """Seconds after which an unchanged status is written."""
    topology: bool = False
    """True: publish a NodeResourceTopology object."""
