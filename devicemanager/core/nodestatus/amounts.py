"""``capacity`` and ``allocatable`` of a node's status, and the patch that reports a status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from devicemanager.core.node import NodeStatus
from devicemanager.core.quantity import Quantity

Object = Mapping[str, Any]
"""The ``status`` of a Node object, as JSON data."""
Texts = dict[str, str]
"""Quantities as text, by resource."""


def node_amounts(
    fixed: Mapping[str, Quantity],
    devices: NodeStatus,
    reserved: Mapping[str, Quantity] | None = None,
) -> tuple[Texts, Texts]:
    """Return ``capacity`` and ``allocatable`` of the node's status, each sorted by resource.

    ``fixed`` has the allocatable amounts of resources other than devices. Their capacity is the
    allocatable amount plus the ``reserved`` amount. If ``fixed`` and ``devices`` have the same
    resource, the count in ``devices`` is used, as in the kubelet (``MachineInfo``, v1.32).
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
    """Return a hash of a node status without its heartbeat times, to detect a changed status
    (``nodeStatusHasChanged``, pkg/kubelet/kubelet_node_status.go, v1.32)."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastHeartbeatTime"}
        for each in status["conditions"]
    ]
    return hash(json.dumps({**status, "conditions": conditions}))


def node_patch(after: Object) -> dict[str, Any]:
    """Return the strategic merge patch that updates the node's status in the API
    (``PatchNodeStatus``, component-helpers/node/util, v1.32). ``after`` is the new status."""
    # The API server merges conditions and addresses by type. Addresses must be replaced as a
    # whole, because a node can have several addresses of one type.
    patch = dict(after)
    if "addresses" in patch:
        patch["addresses"] = [*patch["addresses"], {"$patch": "replace"}]
    return {"status": patch}
