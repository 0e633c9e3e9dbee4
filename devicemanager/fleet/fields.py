"""The fields of API objects that a fleet keeps, with their types. All other fields are dropped when
a cluster is read.

In particular, a fleet has no environment variables, annotations or volumes, and no configuration
of drivers, which can be secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from devicemanager.snapshot.statefiles import is_text_mapping

__all__ = ["KINDS", "kept", "problem"]


@attrs.frozen
class Whole:
    """Description of a value that a fleet stores completely. ``is_valid`` checks its type."""

    expected: str
    is_valid: Callable[[Any], bool]


Fields: TypeAlias = "Mapping[str, Fields] | Sequence[Fields] | Whole"
"""Description of the parts of a JSON value that a fleet stores.

For an object, it is a mapping from field names to the ``Fields`` of their values. For a list, it
is a list with one element: the ``Fields`` of every item. ``Whole`` keeps the whole value.
"""


def _is_quantities(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str | int) for each in value.values())


_ANY: Final = Whole("a value", lambda value: True)
"""A value that nothing reads, or whose type ``apiserver.structure`` checks."""
_STRING: Final = Whole("a string", lambda value: isinstance(value, str))
_BOOL: Final = Whole("true or false", lambda value: isinstance(value, bool))
_INT: Final = Whole("a number", lambda value: isinstance(value, int))
_STRINGS: Final = Whole("an object with strings", is_text_mapping)
_QUANTITIES: Final = Whole("an object with quantities", _is_quantities)


def _all(kind: Whole, *names: str) -> dict[str, Fields]:
    return dict.fromkeys(names, kind)


_IDENTITY = _all(_STRING, "name", "namespace", "uid", "creationTimestamp")
_RESOURCES: Fields = {
    **_all(_QUANTITIES, "limits", "requests"),
    "claims": [_all(_STRING, "name", "request")],
}
_CONTAINER: Fields = {**_all(_STRING, "name", "image", "restartPolicy"), "resources": _RESOURCES}
_TAINT = _all(_STRING, "key", "value", "effect")
_TOLERATION: Fields = {
    **_all(_STRING, "key", "operator", "value", "effect"),
    "tolerationSeconds": _INT,
}
_REQUIREMENT: Fields = {**_all(_STRING, "key", "operator"), "values": [_STRING]}
_TERM: Fields = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_NODE_AFFINITY: Fields = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
    "preferredDuringSchedulingIgnoredDuringExecution": _ANY,
}
_CLAIM = _all(_STRING, "name", "resourceClaimName", "resourceClaimTemplateName")
_EXTENDED_CLAIM: Fields = {
    "resourceClaimName": _STRING,
    "requestMappings": [_all(_STRING, "containerName", "resourceName", "requestName")],
}
# Without ``config``: the configuration of drivers can be secret.
_DEVICES: Fields = _all(_ANY, "requests", "constraints")
_CLAIM_SPEC: Fields = {"devices": _DEVICES}
_ALLOCATION: Fields = {"devices": _all(_ANY, "results"), "nodeSelector": _ANY}

KINDS: Mapping[str, Mapping[str, Fields]] = {
    "nodes": {
        "metadata": {**_IDENTITY, "labels": _STRINGS},
        "spec": {"taints": [_TAINT], "unschedulable": _BOOL},
        "status": {
            **_all(_QUANTITIES, "capacity", "allocatable"),
            "declaredFeatures": [_STRING],
            "conditions": [_all(_STRING, "type", "status", "reason")],
            "nodeInfo": _all(_STRING, "kubeletVersion"),
        },
    },
    "pods": {
        "metadata": _IDENTITY,
        "spec": {
            **_all(_STRING, "nodeName", "restartPolicy"),
            "overhead": _QUANTITIES,
            "resources": _RESOURCES,
            "nodeSelector": _STRINGS,
            "tolerations": [_TOLERATION],
            "resourceClaims": [_CLAIM],
            "affinity": {"nodeAffinity": _NODE_AFFINITY},
            "containers": [_CONTAINER],
            "initContainers": [_CONTAINER],
        },
        "status": {
            **_all(_STRING, "phase", "reason", "message"),
            "resourceClaimStatuses": [_CLAIM],
            "extendedResourceClaimStatus": _EXTENDED_CLAIM,
        },
    },
    "resourcequotas": {
        "metadata": _IDENTITY,
        "spec": {"hard": _QUANTITIES, "scopes": [_STRING], "scopeSelector": _ANY},
        "status": {"used": _QUANTITIES},
    },
    "resourceslices": {"metadata": _IDENTITY, "spec": _ANY},
    "deviceclasses": {
        "metadata": _IDENTITY,
        "spec": _all(_ANY, "selectors", "extendedResourceName"),
    },
    "resourceclaims": {
        "metadata": _IDENTITY,
        "spec": _CLAIM_SPEC,
        "status": {"allocation": _ALLOCATION, "reservedFor": _ANY},
    },
    "resourceclaimtemplates": {"metadata": _IDENTITY, "spec": {"spec": _CLAIM_SPEC}},
}
"""Mapping from the plural name of a kind, such as ``pods``, to the fields that a fleet stores."""


def kept(value: Any, fields: Fields) -> Any:
    """Return ``value`` with only the fields that ``fields`` describes. Fields with the value None
    are left out."""
    if isinstance(fields, Whole):
        return value
    if isinstance(fields, Mapping):
        # A value of a wrong type is kept, so that ``problem`` can report it.
        if not isinstance(value, Mapping):
            return value
        return {
            name: kept(value[name], below)
            for name, below in fields.items()
            if value.get(name) is not None
        }
    (item,) = fields
    return [kept(each, item) for each in value] if isinstance(value, list) else value


def problem(value: Any, fields: Fields, at: str = "") -> str:
    """Return an error text for the first field of ``value`` with a wrong type; empty if all types
    are right."""
    if isinstance(fields, Whole):
        return "" if fields.is_valid(value) else f"{at}: expected {fields.expected}"
    if isinstance(fields, Mapping):
        if not isinstance(value, dict):
            return f"{at}: expected an object"
        # In the API, null means the same as a missing field.
        found = (
            problem(value[name], below, f"{at}.{name}" if at else name)
            for name, below in fields.items()
            if value.get(name) is not None
        )
        return next(filter(None, found), "")
    if not isinstance(value, list):
        return f"{at}: expected a list"
    (item,) = fields
    return next(filter(None, (problem(e, item, f"{at}[{n}]") for n, e in enumerate(value))), "")
