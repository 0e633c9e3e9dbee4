"""What is sent to change a pod's status in the API, and whether there is anything to send.

Others write into the status, too: conditions of types that are not ours, claims, what is
nominated. A strategic merge patch leaves all that as it is (``mergePodStatus``,
pkg/kubelet/status/status_manager.go, v1.32).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.core.podstatus.conditions import ConditionType

__all__ = ["is_reported", "status_patch"]

Object = Mapping[str, Any]

_REMOVED = (
    "reason",
    "message",
    "containerStatuses",
    "initContainerStatuses",
)
"""Fields that are ours also when they are not there."""


def status_patch(ours: Object) -> dict[str, Any]:
    """The strategic merge patch that makes the status in the API ``ours``, whatever it is.
    Kubelet-owned conditions that ``ours`` lacks go, as those of a rejected pod do."""
    patch: dict[str, Any] = {**dict.fromkeys(_REMOVED), **ours}
    conditions = list(ours.get("conditions", ()))
    there = {each["type"] for each in conditions}
    conditions += [
        {"type": str(kind), "$patch": "delete"} for kind in ConditionType if kind not in there
    ]
    patch["conditions"] = conditions
    return {"status": patch}


def is_reported(theirs: Object, ours: Object) -> bool:
    """Whether the status in the API says what ``ours`` does, but for the times of conditions:
    these are whoever's that came first."""
    for field in {*ours, *_REMOVED} - {"conditions"}:
        if (theirs.get(field) or None) != (ours.get(field) or None):
            return False
    wanted = {each["type"]: _without_times(each) for each in ours.get("conditions", ())}
    compared = {*wanted, *ConditionType}
    return wanted == {
        each["type"]: _without_times(each)
        for each in theirs.get("conditions") or ()
        if each.get("type") in compared
    }


def _without_times(condition: Object) -> dict[str, Any]:
    return {
        name: value
        for name, value in condition.items()
        if not name.startswith("last") and name != "observedGeneration" and value is not None
    }
