"""When a node's status is to be told, and what of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["digest", "node_patch"]

Object = Mapping[str, Any]
"""``status`` of a Node."""


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
