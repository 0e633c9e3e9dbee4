"""Replay scenarios of claims: allocate, release, republish, and compare each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.errors import ClaimsError, DoesNotFit
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1.objects import (
    API_VERSION,
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DevicePool,
)
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.core.quantity import Quantity
from tools.replay.report import ReplayError, difference

Step = Mapping[str, Any]
Plain = dict[str, Any]

_FIELDS = {"id", "source", "why", "old", "tags", "classes", "pools", "steps"}
_STEP_FIELDS = {"allocate", "release", "publish", "class", "node", "want", "want_node"}


def scenario_differences(scenario: Mapping[str, Any]) -> list[str]:
    """Run a scenario once per node with expected results, and compare the results."""
    _reject_unknown(scenario, _FIELDS)
    nodes = sorted({node for step in scenario["steps"] for node in step.get("want_node", ())})
    runs = nodes or [_only_node(scenario)]
    return [text for node in runs for text in _run(scenario, node)]


def _reject_unknown(found: Mapping[str, Any], fields: Set[str]) -> None:
    if unknown := found.keys() - fields:
        raise ReplayError(f"unknown field in the vectors: {min(unknown)}")


def _only_node(scenario: Mapping[str, Any]) -> str:
    named = {pool["node"] for pool in scenario["pools"] if "node" in pool}
    return named.pop() if len(named) == 1 else "n0"


def _run(scenario: Mapping[str, Any], node: str) -> list[str]:
    allocator = Allocator(ObjectStore())
    for name, short in scenario["classes"].items():
        _define(allocator, name, short)
    for pool in scenario["pools"]:
        _publish(allocator, pool)
    found = []
    for number, step in enumerate(scenario["steps"]):
        for text in _step(allocator, step, node):
            found.append(f"step {number} on {node}: {text}")
    return found


def _step(allocator: Allocator, step: Step, node: str) -> list[str]:
    _reject_unknown(step, _STEP_FIELDS)
    if "release" in step:
        allocator.release(f"default/{step['release']}")
        return []
    if "allocate" in step:
        answer = _allocate(allocator, step["allocate"], step.get("node", node))
        wants = step.get("want_node", {node: step.get("want")})
        return difference("answer", _normal(wants[node]), answer) if node in wants else []
    try:
        if "publish" in step:
            _publish(allocator, step["publish"])
        else:
            ((name, short),) = step["class"].items()
            _define(allocator, name, short)
    except ClaimsError as error:
        return difference(f"rejected ({error})", step.get("want"), "error")
    return difference("rejected", step.get("want"), None)


def _define(allocator: Allocator, name: str, short: Mapping[str, Any]) -> None:
    found = read_object(device_class(name, short))
    assert isinstance(found, DeviceClass)
    allocator.store.define(found)


def _publish(allocator: Allocator, short: Mapping[str, Any]) -> None:
    found = read_object(pool(short))
    assert isinstance(found, DevicePool)
    allocator.store.publish(found)


def _allocate(allocator: Allocator, shorts: Sequence[Mapping[str, Any]], node: str) -> object:
    # A failed allocation must not change the ledger: no vector states that explicitly.
    before = allocator.ledger.state()
    try:
        ids = [_submit(allocator, short) for short in shorts]
        allocator.allocate(ids, node)
    except ClaimsError as error:
        if allocator.ledger.state() != before:
            return f"the ledger changed although the allocation failed: {error}"
        return "fail" if isinstance(error, DoesNotFit) else "error"
    allocator.ledger.self_check()
    return {
        short["name"]: [_entry(each) for each in allocator.claims[claim].status.allocations]
        for short, claim in zip(shorts, ids, strict=True)
    }


def _submit(allocator: Allocator, short: Mapping[str, Any]) -> str:
    found = read_object(claim(short))
    assert isinstance(found, DeviceClaim)
    allocator.submit(found)
    return found.id


def _entry(each: DeviceAllocation) -> tuple[str, str, dict[str, int]]:
    amounts = {entry.name: entry.allocation.nanos for entry in each.allocations}
    return each.device_pool_name, each.device_name, amounts


def _normal(want: Any) -> object:
    """Return an expected result with amounts in nano-units."""
    if not isinstance(want, dict):
        return want
    return {claim: [_wanted(*entry) for entry in entries] for claim, entries in want.items()}


def _wanted(
    pool: str, device: str, amounts: Mapping[str, Any] | None = None
) -> tuple[str, str, dict[str, int]]:
    nanos = {name: Quantity.parse(str(amount)).nanos for name, amount in (amounts or {}).items()}
    return pool, device, nanos


# -- documents from the shorthand of the vectors -----------------------------------------

_VALUES = {
    "string": "stringValue",
    "int": "intValue",
    "quantity": "quantityValue",
    "semver": "semVerValue",
}


def claim(short: Mapping[str, Any]) -> Plain:
    known = _renamed(short, {"name": None, "match": "matchAttributes", "claims": None})
    spec = {**known, "claims": [_instance(each) for each in short["claims"]]}
    return _document("DeviceClaim", {"name": short.get("name", "c"), "namespace": "default"}, spec)


def device_class(name: str, short: Mapping[str, Any]) -> Plain:
    names = {"driver": "driver", "type": "deviceType", "cel": "constraints", "admin": "adminAccess"}
    return _document("DeviceClass", {"name": name}, _renamed(short, names))


def pool(short: Mapping[str, Any]) -> Plain:
    names = {"node": "nodeName", "driver": "driver", **_parts("name", "devices")}
    spec = {**_renamed(short, names), **_attributes_and_resources(short)}
    devices = [one for each in short["devices"] for one in _devices(each)]
    return _document("DevicePool", {"name": short.get("name", "p")}, {**spec, "devices": devices})


def device_status(short: Mapping[str, Any]) -> Plain:
    """Return a claim object with one allocated device; ``short`` has the fields of the device's
    status."""
    device = {"devicePoolName": "p", "deviceName": "d"}
    status = {"allocations": [device], "deviceStatuses": [{**device, **short}]}
    return {**claim({"claims": [{"class": "a"}]}), "status": status}


def _document(kind: str, metadata: Plain, spec: Plain) -> Plain:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _parts(*names: str) -> dict[str, str | None]:
    return dict.fromkeys(["attrs", "resources", *names])


def _renamed(short: Mapping[str, Any], names: Mapping[str, str | None]) -> Plain:
    """Rename the fields to their API names. Omit fields without an API name, which the caller
    handles."""
    _reject_unknown(short, names.keys())
    return {str(names[key]): value for key, value in short.items() if names[key]}


def _instance(short: Mapping[str, Any]) -> Plain:
    names = {
        "class": "deviceClass",
        "type": "deviceType",
        "cel": "constraints",
        "requests": "requests",
        "limits": "limits",
        "match": "matchAttributes",
        "oneOf": None,
    }
    one_of = {"oneOf": [_instance(each) for each in short["oneOf"]]} if "oneOf" in short else {}
    return {**_renamed(short, names), **one_of}


def _devices(short: Mapping[str, Any]) -> list[Plain]:
    device = {**_renamed(short, {"name": "name", "requests": "requests", **_parts("repeat")})}
    device.update(_attributes_and_resources(short))
    if "repeat" not in short:
        return [device]
    return [{**device, "name": short["name"] % number} for number in range(short["repeat"])]


def _attributes_and_resources(short: Mapping[str, Any]) -> Plain:
    found: Plain = {}
    if "attrs" in short:
        found["attributes"] = [attribute(*each) for each in short["attrs"].items()]
    if "resources" in short:
        names = {"name": "name", "capacity": "capacity", "block": "blockSize"}
        found["resources"] = [_renamed(each, names) for each in short["resources"]]
    return found


def attribute(name: str, values: Mapping[str, Any]) -> Plain:
    return {"name": name, **_renamed(values, _VALUES)}
