"""Rules for objects of the group resource.k8s.io: defaults, and what an update cannot change.

They follow the defaults of ``pkg/apis/resource/v1/defaults.go`` and the strategies of
``pkg/registry/resource`` (v1.36).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from devicemanager.apiserver.kinds import RESOURCE_GROUP, Target
from devicemanager.apiserver.store import Object
from devicemanager.objects.status import times

__all__ = ["HAVE_GENERATION", "prepare"]

HAVE_GENERATION: Final = frozenset({"ResourceSlice", "DeviceClass", "DeviceTaintRule"})
"""Kinds whose ``metadata.generation`` counts the changes of ``spec``."""


def prepare(target: Target, new: Object, old: Mapping[str, Any] | None = None) -> None:
    """Set the defaults of an object that is created or, with ``old``, replaced."""
    if target.kind.group != RESOURCE_GROUP:
        return
    if old is None and target.kind.has_status:
        # Only the subresource can set it.
        new.pop("status", None)
    spec = new.get("spec")
    if not isinstance(spec, dict):
        return
    match target.kind.name:
        case "ResourceClaim":
            _set_claim_defaults(spec)
        case "ResourceClaimTemplate":
            _set_claim_defaults(spec.get("spec"))
        case "ResourceSlice":
            for device in _objects(spec.get("devices")):
                for taint in _objects(device.get("taints")):
                    taint.setdefault("timeAdded", times.timestamp(time.time()))
        case "DeviceTaintRule":
            for taint in _objects([spec.get("taint")]):
                taint.setdefault("timeAdded", times.timestamp(time.time()))


def _set_claim_defaults(spec: Any) -> None:
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for request in _objects((devices or {}).get("requests")):
        wanted = [request.get("exactly"), *(request.get("firstAvailable") or ())]
        for each in _objects(wanted):
            mode = each.setdefault("allocationMode", "ExactCount")
            if mode == "ExactCount":
                each.setdefault("count", 1)
            for toleration in _objects(each.get("tolerations")):
                toleration.setdefault("operator", "Equal")


def _objects(values: Any) -> Iterator[Object]:
    for each in values or ():
        if isinstance(each, dict):
            yield each
