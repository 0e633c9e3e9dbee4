"""Rules for objects of the group resource.k8s.io: defaults, dropped fields, and validation.

They follow the defaults of ``pkg/apis/resource/v1/defaults.go`` and the strategies of
``pkg/registry/resource`` (v1.37). ``objects.dra`` has the rules for valid objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from devicemanager.apiserver.conversion import path_in
from devicemanager.apiserver.kinds import RESOURCE_GROUP, Target
from devicemanager.apiserver.store import Object
from devicemanager.apiserver.structure import pruned
from devicemanager.objects.dra import (
    ADMIN_LABEL,
    Compile,
    FieldError,
    broken_rules,
    drop_deallocated,
    drop_disabled,
)
from devicemanager.objects.status import times

__all__ = ["HAVE_GENERATION", "ResourceRules"]

HAVE_GENERATION: Final = frozenset({"ResourceSlice", "DeviceClass", "DeviceTaintRule", "Pod"})
"""Kinds whose ``metadata.generation`` counts the changes of ``spec``."""


def _check_selector(expression: str) -> str | None:
    # Imported here, because most objects contain no expressions.
    from devicemanager.claims.cel.dra import check_new_selector
    from devicemanager.claims.errors import ClaimsUnavailable

    try:
        return check_new_selector(expression)
    except ClaimsUnavailable:
        return None  # without the extra ``claims``, all expressions are accepted


class ResourceRules:
    """Rules for resource.k8s.io. They do not apply to objects of other groups."""

    def __init__(self, gates: Iterable[str] = (), compile_: Compile = _check_selector) -> None:
        """Create rules for a set of feature gates.

        ``gates``: feature gates to enable (``objects.dra.GATES``); they are off by default.

        ``compile_``: function that checks a CEL selector. It returns the reason why the API server
        rejects the selector, or None.
        """
        self._gates = frozenset(gates)
        self._compile = compile_

    def prepare(self, target: Target, new: Object, old: Mapping[str, Any] | None = None) -> None:
        """Set defaults in ``new``, and drop the fields whose feature gates are off.

        ``old``: the object that ``new`` replaces; None if ``new`` is created. A created object also
        loses its status if its kind has the subresource ``status``.
        """
        if target.kind.group != RESOURCE_GROUP:
            return
        if old is None and target.kind.has_status:
            # Only the status subresource can set it.
            new.pop("status", None)
        drop_disabled(target.kind.name, new, self._gates)
        spec = new.get("spec") or {}
        match target.kind.name:
            case "ResourceClaim":
                _set_claim_defaults(spec)
            case "ResourceClaimTemplate":
                _set_claim_defaults(spec.get("spec"))
            case "ResourceSlice":
                for device in _objects(spec.get("devices")):
                    _set_times(device.get("taints"))
            case "DeviceTaintRule":
                _set_rule_time(spec, (old or {}).get("spec") or {})

    def prepare_status(self, target: Target, new: Object, old: Mapping[str, Any]) -> None:
        """Set defaults in the status of the ResourceClaim ``new``, and drop the fields whose
        feature gates are off.

        Also drop each entry in ``status.devices`` whose device is no longer allocated. ``old`` is
        the claim before the change.
        """
        if target.kind.name == "ResourceClaim":
            drop_disabled("ResourceClaim", new, self._gates)
            drop_deallocated(new["status"], old.get("status") or {})
            devices = (new["status"].get("allocation") or {}).get("devices") or {}
            for result in _objects(devices.get("results")):
                _set_operators(result)

    def broken(
        self,
        target: Target,
        new: Object,
        old: Mapping[str, Any] | None,
        labels: Mapping[str, str],
    ) -> list[FieldError]:
        """Return an error for each rule that ``new`` breaks.

        ``old``: the object that ``new`` replaces; None if ``new`` is created. ``labels``: the
        labels of the namespace that contains ``new``.
        """
        if target.kind.group != RESOURCE_GROUP:
            return []
        found = broken_rules(
            target.kind.name,
            new,
            old,
            is_status=target.subresource == "status",
            compile_=self._compile,
            is_admin_namespace=labels.get(ADMIN_LABEL) == "true",
        )
        return [_in_version(each, target.api_version) for each in found]

    def stored(self, target: Target, value: Object) -> Object:
        """Return the object ``value``, with empty fields omitted or added as on a real API server.

        Objects of groups other than resource.k8s.io are returned unchanged.
        """
        if target.kind.group != RESOURCE_GROUP:
            return value
        return pruned(value, target.kind.api_version, target.kind.name)


def _in_version(error: FieldError, api_version: str) -> FieldError:
    # In the version of the request, check only the declared rules.
    if not error.declared:
        return error
    return attrs.evolve(error, field=path_in(api_version, error.field))


def _set_claim_defaults(spec: Any) -> None:
    devices = (spec or {}).get("devices") or {}
    for request in _objects(devices.get("requests")):
        wanted = [request.get("exactly"), *(request.get("firstAvailable") or ())]
        for each in _objects(wanted):
            mode = each["allocationMode"] = each.get("allocationMode") or "ExactCount"
            if mode == "ExactCount":
                each["count"] = each.get("count") or 1
            _set_operators(each)


def _set_operators(value: Object) -> None:
    for toleration in _objects(value.get("tolerations")):
        toleration["operator"] = toleration.get("operator") or "Equal"


def _set_times(taints: Any) -> None:
    for taint in _objects(taints):
        taint.setdefault("timeAdded", _now())


def _set_rule_time(spec: Object, old: Mapping[str, Any]) -> None:
    """Set ``timeAdded`` of the taint in ``spec``, the new spec of a DeviceTaintRule.

    If the new taint has no time, it gets the time in ``old``, or else the current time. If its
    effect has changed and its time has not, it gets the current time.
    """
    taint, before = spec.setdefault("taint", {}), old.get("taint") or {}
    taint.setdefault("timeAdded", before.get("timeAdded") or _now())
    is_other = before and taint.get("effect") != before.get("effect")
    if is_other and taint["timeAdded"] == before.get("timeAdded"):
        taint["timeAdded"] = _now()


def _now() -> str:
    return times.timestamp(time.time())


def _objects(values: Any) -> Iterator[Object]:
    return (each for each in values or () if isinstance(each, dict))
