"""When a node's status is to be told, and what of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["has_changed", "node_patch"]

Object = Mapping[str, Any]
"""``status`` of a Node."""


def has_changed(before: Object, after: Object) -> bool:
    """Whether ``after`` says something else; the times of heartbeats do not count
    (``nodeStatusHasChanged``, pkg/kubelet/kubelet_node_status.go, v1.32)."""
    fields = after.keys() - {"conditions"}
    if any(before.get(field) != after[field] for field in fields):
        return True
    return _conditions(before) != _conditions(after)


def _conditions(status: Object) -> dict[str, dict[str, Any]]:
    found: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    return {
        each["type"]: {name: each[name] for name in each if name != "lastHeartbeatTime"}
        for each in found
    }


def node_patch(after: Object) -> dict[str, Any]:
    """The strategic merge patch that makes the status in the API ``after``. Conditions merge
    by type; the addresses are replaced as a whole, since the API merges them by a key that is
    none (``PatchNodeStatus``, component-helpers/node/util, v1.32)."""
    patch = dict(after)
    if "addresses" in patch:
        patch["addresses"] = [*patch["addresses"], {"$patch": "replace"}]
    return {"status": patch}
