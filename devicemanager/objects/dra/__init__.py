"""Rules for objects of resource.k8s.io, as the API server applies them.

In:  an object of resource.k8s.io/v1 as plain data, whose fields have the types of the API. For an
     update, also the object that it replaces.
Out: one ``FieldError`` for each broken rule, with the field path and message of a real API server.

Invariants:
* Nothing here performs I/O. The compiler of CEL expressions is an argument. The argument ``at`` of
  the checks is the path of the checked field.
* Values must have the right types. The caller checks this first (``apiserver.structure``), as the
  decoder of a real API server does.
* Rules, limits and messages are those of Kubernetes v1.37.2. Its API server gives the same
  responses to the requests in ``tests/apiserver/real_answers``.

Start reading with ``broken_rules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.objects.dra import nodes
from devicemanager.objects.dra.claims import Compile, accept, admin_access, claim_spec, class_spec
from devicemanager.objects.dra.errors import Errors, FieldError, declared, invalid, message
from devicemanager.objects.dra.formats import (
    declared_long_name,
    driver_name,
    pool_name,
    short_name,
)
from devicemanager.objects.dra.gates import GATES, drop_disabled
from devicemanager.objects.dra.metadata import metadata, template_metadata, updated_metadata
from devicemanager.objects.dra.slices import resource_slice
from devicemanager.objects.dra.status import claim_status, drop_deallocated

__all__ = [
    "ADMIN_LABEL",
    "GATES",
    "Compile",
    "FieldError",
    "broken_rules",
    "drop_deallocated",
    "drop_disabled",
    "message",
]

_Object = Mapping[str, Any]
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
"""Label of a namespace whose claims may have admin access. Its value must be ``true``."""


def broken_rules(
    kind: str,
    new: _Object,
    old: _Object | None = None,
    *,
    is_status: bool = False,
    compile_: Compile = accept,
    is_admin_namespace: bool = True,
) -> list[FieldError]:
    """Return the rules that an object breaks, in the order of the API server.

    ``old``: the object that ``new`` replaces; None for a new object. ``is_status``: True if only
    the status is replaced. ``compile_``: function that checks a CEL expression; by default, all
    expressions are accepted. ``is_admin_namespace``: True if the namespace has the label
    ``ADMIN_LABEL``.
    """
    if is_status:
        found = _status(kind, new, old or {}, is_admin_namespace)
    else:
        found = _object(kind, new, old, compile_, is_admin_namespace)
    # The sort is stable: within each group, the errors stay in the order of the checks.
    return sorted(found, key=lambda each: each.declared)


def _object(
    kind: str, new: _Object, old: _Object | None, compile_: Compile, is_admin_namespace: bool
) -> Errors:
    if old is None:
        # Only for a new object, because the requests of a claim cannot change afterwards. Upstream
        # uses the path of a claim for a template, too.
        wanted = _admin_requests(kind, new.get("spec") or {})
        yield from admin_access("spec.devices.requests", wanted, is_allowed=is_admin_namespace)
    given = new.get("metadata") or {}
    if kind == "DeviceClass" and given.get("name"):
        yield from declared_long_name("metadata.name", given["name"])
        yield from template_metadata("metadata", given)
    elif old is None:
        yield from metadata(given)
    if old is not None:
        yield from updated_metadata(given, old.get("metadata") or {})
    before = None if old is None else old.get("spec") or {}
    yield from _spec(kind, new.get("spec") or {}, before, compile_)


def _spec(kind: str, spec: _Object, old: _Object | None, compile_: Compile) -> Errors:
    match kind:
        case "ResourceSlice":
            yield from resource_slice(spec, old)
        case "DeviceClass":
            yield from class_spec(spec, old, compile_)
        case "DeviceTaintRule":
            yield from _taint_rule(spec, old)
        case "ResourceClaim" if old is None:
            yield from claim_spec("spec", spec, compile_)
        case "ResourceClaimTemplate" if old is None:
            yield from template_metadata("spec.metadata", spec.get("metadata") or {})
            yield from claim_spec("spec.spec", spec.get("spec") or {}, compile_)
        # For a claim, this rule is a validation tag. For a template, it is Go code.
        case "ResourceClaim" if spec != old:
            yield from declared([invalid("spec", None, "field is immutable")])
        case "ResourceClaimTemplate" if spec != old:
            yield invalid("spec", spec, "field is immutable")


def _taint_rule(spec: _Object, old: _Object | None) -> Errors:
    selector = spec.get("deviceSelector") or {}
    rules = (("driver", driver_name), ("pool", pool_name), ("device", short_name))
    for name, check in rules:
        if selector.get(name) is not None:
            yield from check(f"spec.deviceSelector.{name}", selector[name])
    before = None if old is None else old.get("taint") or {}
    yield from nodes.taint("spec.taint", spec.get("taint") or {}, before)


def _admin_requests(kind: str, spec: _Object) -> list[tuple[int, Any]]:
    if kind == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    elif kind != "ResourceClaim":
        return []
    requests = (spec.get("devices") or {}).get("requests") or ()
    exactly = [each.get("exactly") or {} for each in requests]
    return [(number, each.get("adminAccess")) for number, each in enumerate(exactly)]


_MAX_RULE_CONDITIONS = 8


def _status(kind: str, new: _Object, old: _Object, is_admin_namespace: bool) -> Errors:
    status, before = new.get("status") or {}, old.get("status") or {}
    if kind == "DeviceTaintRule":
        conditions = status.get("conditions")
        yield from nodes.conditions("status.conditions", conditions, _MAX_RULE_CONDITIONS)
        return
    if kind != "ResourceClaim":
        return
    # A claim that already has admin access keeps it, even if the namespace has lost the label.
    if not any(each for _, each in _admin_results(before)):
        at = "status.allocation.devices.results"
        yield from admin_access(at, _admin_results(status), is_allowed=is_admin_namespace)
    is_deleted = bool((new.get("metadata") or {}).get("deletionTimestamp"))
    # An update of the status cannot change the spec, so the stored spec counts.
    spec = old.get("spec") or {}
    yield from claim_status(status, before, spec, is_deleted=is_deleted)


def _admin_results(status: _Object) -> list[tuple[int, Any]]:
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(number, each.get("adminAccess")) for number, each in enumerate(results)]
