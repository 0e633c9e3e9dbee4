"""Replays scenarios of claims: allocate, release, publish again, and compare each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.errors import ClaimsError, DoesNotFit
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1.objects import (
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DevicePool,
)
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.core.quantity import Quantity
from tools.replay import claims_objects
from tools.replay.report import ReplayError, difference

Step = Mapping[str, Any]

_FIELDS = frozenset({"id", "source", "why", "old", "tags", "classes", "pools", "steps"})
_STEP_FIELDS = frozenset({"allocate", "release", "publish", "class", "node", "want", "want_node"})


def scenario_differences(scenario: Mapping[str, Any]) -> list[str]:
    """Run a scenario, once for each node that it has answers for, and compare every answer."""
    _known(scenario, _FIELDS)
    nodes = sorted({node for step in scenario["steps"] for node in step.get("want_node", ())})
    runs = nodes or [_only_node(scenario)]
    return [text for node in runs for text in _run(scenario, node)]


def _known(found: Mapping[str, Any], fields: frozenset[str]) -> None:
    if strange := found.keys() - fields:
        raise ReplayError(f"the vectors have a field that is not known: {min(strange)}")


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
    _known(step, _STEP_FIELDS)
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
    found = read_object(claims_objects.device_class(name, short))
    assert isinstance(found, DeviceClass)
    allocator.store.define(found)


def _publish(allocator: Allocator, short: Mapping[str, Any]) -> None:
    found = read_object(claims_objects.pool(short))
    assert isinstance(found, DevicePool)
    allocator.store.publish(found)


def _allocate(allocator: Allocator, shorts: Sequence[Mapping[str, Any]], node: str) -> object:
    before = allocator.ledger.state()
    try:
        ids = [_submit(allocator, short) for short in shorts]
        allocator.allocate(ids, node)
    except ClaimsError as error:
        if allocator.ledger.state() != before:
            return f"the ledger changed although the answer was: {error}"
        return "fail" if isinstance(error, DoesNotFit) else "error"
    allocator.ledger.self_check()
    return {
        short["name"]: [_entry(each) for each in allocator.claims[claim].status.allocations]
        for short, claim in zip(shorts, ids, strict=True)
    }


def _submit(allocator: Allocator, short: Mapping[str, Any]) -> str:
    found = read_object(claims_objects.claim(short))
    assert isinstance(found, DeviceClaim)
    allocator.submit(found)
    return found.id


def _entry(each: DeviceAllocation) -> tuple[str, str, dict[str, int]]:
    amounts = {entry.name: entry.allocation.nanos for entry in each.allocations}
    return each.device_pool_name, each.device_name, amounts


def _normal(want: Any) -> object:
    """An expected answer with its amounts in nano-units."""
    if not isinstance(want, dict):
        return want
    return {claim: [_wanted(*entry) for entry in entries] for claim, entries in want.items()}


def _wanted(
    pool: str, device: str, amounts: Mapping[str, Any] | None = None
) -> tuple[str, str, dict[str, int]]:
    nanos = {name: Quantity.parse(str(amount)).nanos for name, amount in (amounts or {}).items()}
    return pool, device, nanos
