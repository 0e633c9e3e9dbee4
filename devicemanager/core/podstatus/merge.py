"""The patch that updates a pod's status in the API, and a check whether a patch is needed.

Other controllers also write to the status: conditions of other types, claim statuses, the
nominated node. A strategic merge patch does not change these fields (``mergePodStatus``,
pkg/kubelet/status/status_manager.go, v1.32).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.core.podstatus.conditions import ConditionType, ResizeCondition

Object = Mapping[str, Any]

_REMOVED = (
    "reason",
    "message",
    "containerStatuses",
    "initContainerStatuses",
)
"""Fields that the patch removes if the new status lacks them."""


def status_patch(status: Object, *, was_resized: bool = False) -> dict[str, Any]:
    """Return the strategic merge patch that updates a pod's status in the API.

    ``status`` is the new status. The patch deletes conditions of the kubelet that the new status
    does not have. The status of a rejected pod, for example, has no conditions. If
    ``was_resized`` is true, the patch also deletes conditions of a resize.
    """
    # In a strategic merge patch, null removes a field. Without it, the old value would stay.
    patch: dict[str, Any] = {**dict.fromkeys(_REMOVED), **status}
    conditions = list(status.get("conditions", ()))
    present = {each["type"] for each in conditions}
    owned = (*ConditionType, *(ResizeCondition if was_resized else ()))
    conditions += [{"type": str(kind), "$patch": "delete"} for kind in owned if kind not in present]
    patch["conditions"] = conditions
    return {"status": patch}


def is_reported(in_api: Object, status: Object) -> bool:
    """True if the pod's status in the API equals ``status``.

    The comparison ignores conditions that the kubelet does not set, and the times and observed
    generations of conditions.
    """
    # Times are not compared: if a condition is otherwise equal, its first reported time stays.
    for field in {*status, *_REMOVED} - {"conditions"}:
        # The API server leaves out empty fields, so an empty value equals a missing one.
        if (in_api.get(field) or None) != (status.get(field) or None):
            return False
    wanted = {each["type"]: _without_times(each) for each in status.get("conditions", ())}
    # A condition of the kubelet that is only in the API counts as a difference: it must be deleted.
    compared = {*wanted, *ConditionType, *ResizeCondition}
    return wanted == {
        each["type"]: _without_times(each)
        for each in in_api.get("conditions") or ()
        if each.get("type") in compared
    }


def _without_times(condition: Object) -> dict[str, Any]:
    return {
        name: value
        for name, value in condition.items()
        if not name.startswith("last") and name != "observedGeneration" and value is not None
    }
