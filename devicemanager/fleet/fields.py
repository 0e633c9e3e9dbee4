"""The fields of API objects that a fleet keeps. All others are dropped when a cluster is read.

In particular, a fleet has no environment variables, annotations or volumes, and no configuration
of drivers, which can be secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["KINDS", "kept"]

Fields: TypeAlias = "Mapping[str, Fields | None]"
"""Fields by name; None keeps the whole value. A list has the fields of its items."""


def _all(*names: str) -> Fields:
    return dict.fromkeys(names)


_IDENTITY = _all("name", "namespace", "uid", "creationTimestamp")
_CONTAINER = _all("name", "image", "resources", "restartPolicy")
_DEVICES: Fields = {"requests": None, "constraints": None}
_CLAIM_SPEC: Fields = {"devices": _DEVICES}
_ALLOCATION: Fields = {"devices": _all("results"), "nodeSelector": None}

KINDS: Mapping[str, Fields] = {
    "nodes": {
        "metadata": {**_IDENTITY, "labels": None},
        "spec": _all("taints", "unschedulable"),
        "status": {
            **_all("capacity", "allocatable", "declaredFeatures"),
            "conditions": _all("type", "status", "reason"),
            "nodeInfo": _all("kubeletVersion"),
        },
    },
    "pods": {
        "metadata": _IDENTITY,
        "spec": {
            **_all("nodeName", "overhead", "resources", "nodeSelector", "tolerations"),
            **_all("resourceClaims", "restartPolicy"),
            "affinity": {"nodeAffinity": None},
            "containers": _CONTAINER,
            "initContainers": _CONTAINER,
        },
        "status": _all(
            "phase", "reason", "message", "resourceClaimStatuses", "extendedResourceClaimStatus"
        ),
    },
    "resourcequotas": {
        "metadata": _IDENTITY,
        "spec": _all("hard", "scopes", "scopeSelector"),
        "status": _all("used"),
    },
    "resourceslices": {"metadata": _IDENTITY, "spec": None},
    "deviceclasses": {
        "metadata": _IDENTITY,
        "spec": _all("selectors", "extendedResourceName"),
    },
    "resourceclaims": {
        "metadata": _IDENTITY,
        "spec": _CLAIM_SPEC,
        "status": {"allocation": _ALLOCATION, "reservedFor": None},
    },
    "resourceclaimtemplates": {"metadata": _IDENTITY, "spec": {"spec": _CLAIM_SPEC}},
}
"""Fields by plural name of the kind."""


def kept(value: Any, fields: Fields | None) -> Any:
    """Return a value with the named fields only."""
    if fields is None:
        return value
    if isinstance(value, list):
        return [kept(each, fields) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: kept(value[name], below)
        for name, below in fields.items()
        if value.get(name) is not None
    }
