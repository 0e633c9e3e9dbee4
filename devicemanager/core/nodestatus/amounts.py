"""``capacity`` and ``allocatable`` of a node: what it has besides devices, and its devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from devicemanager.core.node import NodeStatus
from devicemanager.core.quantity import Quantity

__all__ = ["digest", "node_amounts", "node_patch"]

Object = Mapping[str, Any]
"""``status`` of a Node."""
Texts = dict[str, str]
"""Quantities by resource, as the API has them."""


def node_amounts(
    fixed: Mapping[str, Quantity],
    devices: NodeStatus,
    reserved: Mapping[str, Quantity] | None = None,
) -> tuple[Texts, Texts]:
    """Capacity and allocatable, each sorted by name.

    ``fixed`` is the allocatable part of what is no device; ``reserved`` comes on top of it in
    the capacity. The counts of devices go over everything else, as with the kubelet
    (``MachineInfo``, v1.32).
    """
    more = reserved or {}
    capacity = {
        str(name): str(Quantity(amount.nanos + _nanos(more, name), amount.format))
        for name, amount in fixed.items()
    }
    allocatable = {str(name): str(amount) for name, amount in fixed.items()}
    capacity |= {name: str(count) for name, count in devices.capacity.items()}
    allocatable |= {name: str(count) for name, count in devices.allocatable.items()}
    return dict(sorted(capacity.items())), dict(sorted(allocatable.items()))


def _nanos(amounts: Mapping[str, Quantity], name: str) -> int:
    return amounts[name].nanos if name in amounts else 0


def digest(status: Object) -> int:
    """The same for two that say the same; the times of heartbeats do not count
    (``nodeStatusHasChanged``, pkg/kubelet/kubelet_node_status.go, v1.32)."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastHeartbeatTime"}
        for each in status["conditions"]
    ]
    return hash(json.dumps({**status, "conditions": conditions}))


def node_patch(after: Object) -> dict[str, Any]:
    """The strategic merge patch that makes the status in the API ``after``. Conditions merge
    by type; the addresses are replaced as a whole, since the API merges them by a key that is
    none (``PatchNodeStatus``, component-helpers/node/util, v1.32)."""
    patch = dict(after)
    if "addresses" in patch:
        patch["addresses"] = [*patch["addresses"], {"$patch": "replace"}]
    return {"status": patch}
