"""``capacity`` and ``allocatable`` of a node's status, and how a changed status is reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from devicemanager.core.node import NodeStatus
from devicemanager.core.quantity import Quantity

Object = Mapping[str, Any]
"""``status`` of a Node object."""
Texts = dict[str, str]
"""Resource to quantity, as text."""


def node_amounts(
    fixed: Mapping[str, Quantity],
    devices: NodeStatus,
    reserved: Mapping[str, Quantity] | None = None,
) -> tuple[Texts, Texts]:
    """Return capacity and allocatable, each sorted by name.

    ``fixed`` is the allocatable amount of resources other than devices; the capacity is
    larger by ``reserved``. Device counts replace amounts of the same name, as in the kubelet
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
    """Return a number that is equal for equal statuses, ignoring heartbeat times
    (``nodeStatusHasChanged``, pkg/kubelet/kubelet_node_status.go, v1.32)."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastHeartbeatTime"}
        for each in status["conditions"]
    ]
    return hash(json.dumps({**status, "conditions": conditions}))


def node_patch(after: Object) -> dict[str, Any]:
    """Return the strategic merge patch that changes the status in the API to ``after``
    (``PatchNodeStatus``, component-helpers/node/util, v1.32)."""
    # Conditions are merged by type. Addresses must be replaced as a whole: the API merges
    # them by type, too, but a node can have several addresses of one type.
    patch = dict(after)
    if "addresses" in patch:
        patch["addresses"] = [*patch["addresses"], {"$patch": "replace"}]
    return {"status": patch}
