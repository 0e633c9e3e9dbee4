"""Builders of slices, classes and claims, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from devicemanager.claims.dra import Node

DRIVER = "gpu.example.com"
NODE = Node("worker", {"zone": "a"})
GPU = {"metadata": {"name": "gpu"}, "spec": {}}

Object = dict[str, Any]


def device(name: str, **fields: Any) -> Object:
    attributes = fields.pop("attributes", {})
    made: Object = {"name": name, **fields}
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    return made


def attribute(value: object) -> Object:
    kind = {bool: "bool", int: "int", list: "ints"}.get(type(value), "string")
    return {kind: value}


def slice_(*devices: Object | str, name: str = "s", pool: str = "p", **fields: Any) -> Object:
    """A slice of the node; ``generation`` and ``count`` are those of its pool."""
    pooled = {
        "name": pool,
        "generation": fields.pop("generation", 1),
        "resourceSliceCount": fields.pop("count", 1),
    }
    spec = {"driver": fields.pop("driver", DRIVER), "pool": pooled, **fields}
    if not {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys():
        spec["nodeName"] = NODE.name
    spec["devices"] = [{"name": each} if isinstance(each, str) else each for each in devices]
    return {"metadata": {"name": name}, "spec": spec}


def counters(name: str = "c", pool: str = "p", count: int = 2, **values: str) -> Object:
    """A slice with one counter set, ``set``."""
    made = slice_(name=name, pool=pool, count=count)
    shared = {key: {"value": value} for key, value in values.items()}
    made["spec"]["sharedCounters"] = [{"name": "set", "counters": shared}]
    return made


def consuming(name: str, amount: str, *, groups: Sequence[str] = (), **fields: Any) -> Object:
    """A device that consumes memory of the counter set. ``groups``: its compatibility groups."""
    consumed: Object = {"counterSet": "set", "counters": {"memory": {"value": amount}}}
    if groups:
        consumed["compatibilityGroups"] = list(groups)
    return device(name, consumesCounters=[consumed], **fields)


def derived(**expressions: str) -> Object:
    """Derived attributes of a request, in the domain ``derived``."""
    return {
        "derivedAttributes": [
            {"name": f"derived/{name}", "expression": text} for name, text in expressions.items()
        ]
    }


def exactly(name: str = "r", count: int = 1, **fields: Any) -> Object:
    details = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **fields}
    return {"name": name, "exactly": details}


def all_of(name: str = "r", **fields: Any) -> Object:
    return {
        "name": name,
        "exactly": {"deviceClassName": "gpu", "allocationMode": "All", **fields},
    }


def first_of(name: str, *options: Object) -> Object:
    """A prioritized list of ``exactly`` requests."""
    return {
        "name": name,
        "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in options],
    }


def claim(*requests: Object, name: str = "c", **devices: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests or (exactly(),)), **devices}},
    }


def selected(expression: str) -> Object:
    return {"selectors": [{"cel": {"expression": expression}}]}


def names(results: Sequence[Object] | None) -> list[list[str]] | None:
    """The devices of each claim."""
    if results is None:
        return None
    return [[each["device"] for each in one["devices"].get("results", ())] for one in results]
