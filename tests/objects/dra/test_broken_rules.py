"""Rules for objects of resource.k8s.io: errors that a real API server gave, without a server."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from devicemanager.apiserver.offline import check_objects
from devicemanager.objects.dra import broken_rules
from devicemanager.objects.dra.formats import fully_qualified_name
from devicemanager.objects.dra.gates import GATES, drop_disabled
from devicemanager.objects.dra.metadata import updated_metadata
from devicemanager.objects.dra.nodes import conditions
from tests.apiserver.real_answers.objects import (
    DROP,
    Object,
    allocation,
    changed,
    claim,
    slice_,
    taint_rule,
)
from tests.apiserver.real_answers.running import recorded
from tests.apiserver.real_answers.table import Call, calls

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
"""A namespace in which admin access is not allowed."""
CAUSES = {
    each["name"]: {
        (cause["field"], cause["message"]) for cause in each["body"]["details"]["causes"]
    }
    for each in recorded()
    if each["code"] == 422 and (each["body"].get("details") or {}).get("causes")
}
REJECTED = [
    each
    for each in calls()
    if each.name in CAUSES
    and isinstance(each.body, dict)
    and "resource.k8s.io/v1/" in each.path
    and (
        each.method == "POST"
        or (each.method == "PUT" and each.path.partition("?")[0].endswith("/status"))
    )
    # This rule compares with the stored object, which the check does not have.
    and each.name != "status of another allocation"
]


@pytest.mark.parametrize("call", REJECTED, ids=lambda call: call.name)
def test_broken_rules_are_those_of_a_real_server(call: Call) -> None:
    problems = check_objects([NAMESPACE, copy.deepcopy(call.body)]).problems
    assert {(each.field, each.text) for each in problems} == CAUSES[call.name]


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_slice_can_select_a_node_by_name(operator: str) -> None:
    field = {"key": "metadata.name", "operator": operator, "values": ["node-1"]}
    nodes = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    value = changed(slice_(nodeSelector=nodes), {"spec.nodeName": DROP})
    assert check_objects([value]).problems == []


OLD = {"name": "a", "namespace": "n", "uid": "u", "finalizers": ["x.com/old"]}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, []),
        ({"labels": {"a": "b"}, "annotations": {"A/b": "any value"}}, []),
        ({"name": "b"}, ['metadata.name: Invalid value: "b": field is immutable']),
        ({"uid": None}, ["metadata.uid: Invalid value: null: field is immutable"]),
        ({"labels": {"a": "-"}}, ["metadata.labels: Invalid value"]),
        ({"annotations": {"-": ""}}, ["metadata.annotations: Invalid value"]),
        ({"annotations": {"a": "x" * (1 << 18)}}, ["metadata.annotations: Too long"]),
        ({"annotations": {"a": "x" * ((1 << 18) - 1)}}, []),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            ["metadata.ownerReferences[0].uid: Required value: must not be empty"],
        ),
        ({"finalizers": ["x.com/new", "x.com/old"]}, []),
    ],
)
def test_metadata_of_an_update(change: dict[str, object], errors: list[str]) -> None:
    found = [str(each) for each in updated_metadata({**OLD, **change}, OLD)]
    assert len(found) == len(errors)
    assert all(text.startswith(start) for text, start in zip(found, errors, strict=True))


def test_deleted_object_gets_no_new_finalizer() -> None:
    old = {**OLD, "deletionTimestamp": "2026-01-31T12:00:00Z"}
    assert not list(updated_metadata({**old, "finalizers": []}, old))
    (error,) = updated_metadata({**old, "finalizers": ["x.com/b", "x.com/old", "x.com/a"]}, old)
    assert str(error) == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"x.com/a", "x.com/b"}'
    )


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("x.com/a", []),
        ("/a", ['f: Invalid value: "": prefix must not be empty']),
        ("x.com/", ['f: Invalid value: "": name must not be empty']),
        (
            "a",
            [
                'f: Invalid value: "a": a fully qualified name must be a domain and a name '
                "separated by a slash"
            ],
        ),
    ],
)
def test_fully_qualified_name_has_two_parts(name: str, errors: list[str]) -> None:
    assert [str(each) for each in fully_qualified_name("f", name)] == errors


CONDITION = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2026-01-31T12:00:00Z",
    "reason": "Up",
    "message": "",
}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, []),
        ({"observedGeneration": 0}, []),
        (
            {"observedGeneration": -1},
            ["c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero"],
        ),
        ({"message": "x" * 32768}, []),
        (
            {"message": "x" * 32769},
            ["c[0].message: Too long: may not be more than 32768 bytes"],
        ),
        ({"reason": "A" * 1024}, []),
        ({"reason": "A" * 1025}, ["c[0].reason: Too long: may not be more than 1024 bytes"]),
        ({"reason": ""}, ["c[0].reason: Required value"]),
        ({"status": ""}, ["c[0].status: Required value"]),
        ({"type": ""}, ["c[0].type: Required value: is required"]),
        ({"lastTransitionTime": None}, ["c[0].lastTransitionTime: Required value"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_conditions_have_these_limits(change: dict[str, object], errors: list[str]) -> None:
    assert [str(each) for each in conditions("c", [{**CONDITION, **change}], 1)] == errors


def test_conditions_are_unique_and_limited() -> None:
    values = [CONDITION, {**CONDITION, "type": "B"}, CONDITION]
    assert not list(conditions("c", values[:2], 2))
    assert [str(each) for each in conditions("c", values, 2)] == [
        'c[2]: Duplicate value: "Ready"',
        "c: Too many: 3: must have at most 2 items",
    ]


def with_conditions(number: int) -> list[dict[str, object]]:
    return [{**CONDITION, "type": f"T{each}"} for each in range(number)]


def status_of_claim(number: int, *, configs: bool) -> Object:
    opaque = {"driver": "gpu.example.com", "parameters": {}}
    config = [{"source": "FromClaim", "opaque": opaque}] * (number if configs else 1)
    device = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    conditions = with_conditions(1 if configs else number)
    status = {
        "allocation": allocation(config=config),
        "devices": [{**device, "conditions": conditions}],
    }
    return {**claim(), "status": status}


def slice_with_values(number: int) -> Object:
    attributes = {"listed": {"strings": ["x"] * (number - 1)}, "single": {"bool": True}}
    return slice_(devices=[{"name": "gpu-0", "attributes": attributes}])


def errors_of(value: Object) -> list[str]:
    old = {**value, "status": {}} if "status" in value else None
    found = broken_rules(value["kind"], value, old, is_status=old is not None)
    return [str(each) for each in found]


@pytest.mark.parametrize(
    ("value", "most", "error"),
    [
        (
            lambda number: {**taint_rule(), "status": {"conditions": with_conditions(number)}},
            8,
            "status.conditions: Too many: 9: must have at most 8 items",
        ),
        (
            lambda number: status_of_claim(number, configs=False),
            8,
            "status.devices[0].conditions: Too many: 9: must have at most 8 items",
        ),
        (
            lambda number: status_of_claim(number, configs=True),
            64,
            "status.allocation.devices.config: Too many: 65: must have at most 64 items",
        ),
        (
            slice_with_values,
            48,
            "spec.devices[0]: Invalid value: 49: the total number of attribute values must not "
            "exceed 48",
        ),
    ],
    ids=["conditions of a rule", "conditions of a device", "configs", "attribute values"],
)
def test_list_has_this_limit(value: Callable[[int], Object], most: int, error: str) -> None:
    assert errors_of(value(most)) == []
    assert errors_of(value(most + 1)) == [error]


@pytest.mark.parametrize("gates", [(), GATES])
def test_fields_of_disabled_features_are_dropped(gates: frozenset[str]) -> None:
    consumption = {"counterSet": "s", "compatibilityGroups": ["g"]}
    device = {
        "name": "d",
        "nodeAllocatableResources": {},
        "attributes": {"a": {"ints": [1]}, "b": {"int": 1}},
        "consumesCounters": [consumption],
    }
    spec = {"partitionTypeAttribute": "a", "skipNodeOperations": True, "devices": [device]}
    drop_disabled("ResourceSlice", {"spec": spec}, gates)
    listed = {"ints": [1]} if gates else {}
    attributes = {"a": listed, "b": {"int": 1}}
    kept = {"name": "d", "attributes": attributes, "consumesCounters": [{"counterSet": "s"}]}
    assert spec == {"devices": [kept]}


def test_fields_of_requests_and_results_are_dropped() -> None:
    either = {"exactly": {"derivedAttributes": []}, "firstAvailable": [{"derivedAttributes": []}]}
    requests = {"devices": {"requests": [either, {}]}}
    result = {"device": "d", "skipNodeOperations": True}
    status = {"allocation": {"devices": {"results": [result]}}}
    drop_disabled("ResourceClaim", {"spec": copy.deepcopy(requests), "status": status})
    assert result == {"device": "d"}
    drop_disabled("ResourceClaimTemplate", {"spec": {"spec": requests}})
    assert either == {"exactly": {}, "firstAvailable": [{}]}
