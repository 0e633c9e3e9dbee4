"""Rules for objects of resource.k8s.io: errors that a real API server gave, without a server."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from devicemanager.apiserver.offline import check_objects
from devicemanager.objects.dra import broken_rules, drop_deallocated, errors, formats
from devicemanager.objects.dra.errors import Errors
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
    template,
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


FULL_SELECTOR = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
        }
    ]
}
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}


def full_slice() -> Object:
    consumed = {"counterSet": "set", "counters": {"memory": {"value": "1Gi"}}}
    return slice_(
        devices=[
            {"name": "gpu-0", "taints": [TAINT], "consumesCounters": [consumed]},
            {"name": "gpu-1", "bindingConditions": ["a"], "bindingFailureConditions": ["b"]},
        ]
    )


def full_counters() -> Object:
    sets = [{"name": "set", "counters": {"memory": {"value": "1Gi"}}}]
    return changed(slice_(sharedCounters=sets), {"spec.devices": DROP})


def full_claim() -> Object:
    exactly = {
        "deviceClassName": "gpu.example.com",
        "selectors": [{"cel": {"expression": "true"}}],
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [TOLERATION],
    }
    either = {"name": "sub", **exactly}
    requests = [
        {"name": "gpu", "exactly": exactly},
        {"name": "all", "exactly": {**exactly, "allocationMode": "All", "count": 0}},
        {"name": "either", "firstAvailable": [either]},
    ]
    constraints = [{"requests": ["gpu"], "matchAttribute": "gpu.example.com/model"}]
    config = [{"requests": ["either/sub"], **OPAQUE}]
    return claim(requests=requests, constraints=constraints, config=config)


def full_status() -> Object:
    device = {
        "driver": "gpu.example.com",
        "pool": "node-1",
        "device": "gpu-0",
        "conditions": [CONDITION],
        "networkData": {"interfaceName": "eth0", "hardwareAddress": "00:11", "ips": ["1.2.3.4/24"]},
    }
    result = {"request": "gpu", **{each: device[each] for each in ("driver", "pool", "device")}}
    config = [{"source": "FromClaim", "requests": ["gpu"], **OPAQUE}]
    made = allocation({**result, "tolerations": [TOLERATION]}, config=config)
    made["nodeSelector"] = FULL_SELECTOR
    users = [{"resource": "pods", "name": "p", "uid": "u"}]
    return {**claim(), "status": {"allocation": made, "devices": [device], "reservedFor": users}}


def full_class() -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c", "ownerReferences": [owner]},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "config": [OPAQUE]},
    }


def full_rule() -> Object:
    return {**taint_rule(), "status": {"conditions": [{**CONDITION, "observedGeneration": 1}]}}


WHOLE = (full_slice, full_counters, full_claim, full_status, full_class, full_rule)
POINTERS = {"nodeName", "matchAttribute"}
"""Fields of the API's Go types whose empty value differs from a missing value."""
POINTERS_OF_SELECTOR = {"driver", "pool", "device"}


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield each text and number of an object with its path, but no items of lists of texts."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str | int) and not isinstance(each, bool):
                yield (*path, name), each
            else:
                yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            if isinstance(each, dict):
                yield from leaves(each, (*path, str(number)))


def is_pointer(path: tuple[str, ...]) -> bool:
    return path[-1] in POINTERS or (
        path[-2] == "deviceSelector" and path[-1] in POINTERS_OF_SELECTOR
    )


@pytest.mark.parametrize("whole", WHOLE, ids=lambda each: each.__name__)
def test_missing_text_or_number_is_like_an_empty_one(whole: Callable[[], Object]) -> None:
    assert errors_of(whole()) == []
    for path, value in leaves(whole()):
        if path[0] in ("spec", "status", "metadata") and not is_pointer(path):
            where = "/".join(path)
            empty = changed(whole(), {where: "" if isinstance(value, str) else 0})
            assert errors_of(changed(whole(), {where: DROP})) == errors_of(empty), where


@pytest.mark.parametrize("whole", WHOLE, ids=lambda each: each.__name__)
def test_missing_list_or_mapping_is_like_null(whole: Callable[[], Object]) -> None:
    def containers(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(value, dict | list):
            if not path[-1].isdigit():
                yield path
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for name, each in pairs:
                yield from containers(each, (*path, str(name)))

    for part in ("metadata", "spec", "status"):
        for path in containers(whole().get(part), (part,)):
            where = "/".join(path)
            if where in ("spec", "metadata", "status") or path[-2] == "counters":
                continue
            null = errors_of(changed(whole(), {where: None}))
            assert errors_of(changed(whole(), {where: DROP})) == null, where


@pytest.mark.parametrize(
    ("check", "most", "error"),
    [
        (formats.short_name, 63, "Invalid value: must be no more than 63 characters"),
        (formats.declared_short_name, 63, "Invalid value: must be no more than 63 bytes"),
        (formats.long_name, 253, "Invalid value: must be no more than 253 characters"),
        (formats.declared_long_name, 253, "Invalid value: must be no more than 253 bytes"),
        (formats.driver_name, 63, "Too long: may not be more than 63 bytes"),
        (formats.declared_driver_name, 63, "Too long: may not be more than 63 characters"),
        (formats.c_identifier, 32, "Too long: may not be more than 32 bytes"),
        (formats.label_key, 63, "Invalid value: name part must be no more than 63 bytes"),
        (formats.label_value, 63, "Invalid value: must be no more than 63 bytes"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_longest_name_is_valid(check: Callable[[str, str], Errors], most: int, error: str) -> None:
    assert not list(check("f", "a" * most))
    (found,) = check("f", "a" * (most + 1))
    assert str(found).replace(f'"{"a" * (most + 1)}": ', "") == f"f: {error}"


@pytest.mark.parametrize(
    ("check", "begin", "most", "end", "errors"),
    [
        (formats.semver, "1.2.3-", 64, "", ["Too long: may not be more than 64 bytes"]),
        (
            formats.label_key,
            "",
            253 + len("/b"),
            "/b",
            ["Invalid value: prefix part must be no more than 253 bytes"],
        ),
        (
            formats.fully_qualified_name,
            "",
            63 + len("/b"),
            "/b",
            ["Too long: may not be more than 63 bytes"],
        ),
        (
            formats.fully_qualified_name,
            "x.com/",
            32 + len("x.com/"),
            "",
            ["Too long: may not be more than 32 bytes"],
        ),
        (
            formats.qualified_name,
            "",
            63 + len("/b"),
            "/b",
            ["Too long: may not be more than 63 bytes"],
        ),
        (
            formats.pool_name,
            "a/",
            253,
            "",
            ["Too long: may not be more than 253 bytes"],
        ),
        (
            formats.declared_pool_name,
            "a/",
            253,
            "",
            ["Too long: may not be more than 253 bytes"],
        ),
    ],
)
def test_longest_name_of_parts_is_valid(
    check: Callable[[str, str], Errors], begin: str, most: int, end: str, errors: list[str]
) -> None:
    def found(number: int) -> list[str]:
        text = begin + "a" * (number - len(begin) - len(end)) + end
        return [re.sub('"[^"]*": ', "", str(each)) for each in check("f", text)]

    assert found(most) == []
    assert found(most + 1) == [f"f: {each}" for each in errors]


def device_with_attribute(**value: Any) -> Object:
    return slice_(devices=[{"name": "gpu-0", "attributes": {"a": value}}])


def network(**fields: Any) -> Object:
    return changed(
        full_status(), {f"status/devices/0/networkData/{k}": v for k, v in fields.items()}
    )


def conditions_of_device(number: int) -> Object:
    names = [f"c{each}" for each in range(number)]
    device = {"name": "d", "bindingConditions": names, "bindingFailureConditions": ["f"]}
    return slice_(devices=[device])


def counters(number: int) -> Object:
    values = {f"c{each}": {"value": "1"} for each in range(number)}
    return changed(full_counters(), {"spec.sharedCounters.0.counters": values})


def counter_sets(number: int) -> Object:
    sets = [{"name": f"s{each}", "counters": {"c": {"value": "1"}}} for each in range(number)]
    return changed(full_counters(), {"spec.sharedCounters": sets})


def consumed_sets(number: int) -> Object:
    sets = [{"counterSet": f"s{each}", "counters": {"c": {"value": "1"}}} for each in range(number)]
    return slice_(devices=[{"name": "d", "consumesCounters": sets}])


def listed(value: Object, path: str, item: Callable[[int], object]) -> Callable[[int], Object]:
    return lambda number: changed(value, {path: [item(each) for each in range(number)]})


def request(number: int) -> Object:
    return {"name": f"r{number}", "exactly": {"deviceClassName": "c"} | EXACT}


def alternative(number: int) -> Object:
    return {"name": f"a{number}", "deviceClassName": "c"} | EXACT


EXACT = {"allocationMode": "ExactCount", "count": 1}
CEL = {"cel": {"expression": "true"}}
EITHER = claim(requests=[{"name": "gpu", "firstAvailable": [alternative(0)]}])
EXACTLY = claim(requests=[request(0)])
TEMPLATE = {**template(), "spec": {"spec": EXACTLY["spec"]}}
CONSTRAINT = {"matchAttribute": "x.com/a"}
DEVICES = "spec.devices"


@pytest.mark.parametrize(
    ("value", "most", "field", "error"),
    [
        (lambda n: device_with_attribute(string="x" * n), 64,
         "spec.devices[0].attributes[a].string", "Too long: may not be more than 64 bytes"),
        (lambda n: device_with_attribute(strings=["x" * n]), 64,
         "spec.devices[0].attributes[a].strings[0]", "Too long: may not be more than 64 bytes"),
        (lambda n: network(interfaceName="x" * n), 256,
         "status.devices[0].networkData.interfaceName", "Too long: may not be more than 256 bytes"),
        (lambda n: network(hardwareAddress="x" * n), 128,
         "status.devices[0].networkData.hardwareAddress",
         "Too long: may not be more than 128 bytes"),
        (lambda n: network(ips=[f"10.0.0.{each}/24" for each in range(n)]), 16,
         "status.devices[0].networkData.ips", "Too many: 17: must have at most 16 items"),
        (lambda n: changed(full_status(), {"status.devices.0.data": {"a": "x" * (n - 8)}}), 10240,
         "status.devices[0].data", "Too long: may not be more than 10240 bytes"),
        (listed(full_status(), "status.reservedFor", lambda i: {"resource": "r", "name": "n",
         "uid": f"{i}"}), 256, "status.reservedFor", "Too many: 257: must have at most 256 items"),
        (listed(full_status(), "status.allocation.devices.results",
         lambda i: {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1",
         "device": f"gpu-{i}"}), 32, "status.allocation.devices.results",
         "Too many: 33: must have at most 32 items"),
        (conditions_of_device, 4, "spec.devices[0].bindingConditions",
         "Too many: 5: must have at most 4 items"),
        (counters, 32, "spec.sharedCounters[0].counters",
         "Too many: 33: must have at most 32 items"),
        (counter_sets, 8, "spec.sharedCounters", "Too many: 9: must have at most 8 items"),
        (consumed_sets, 2, "spec.devices[0].consumesCounters",
         "Too many: 3: must have at most 2 items"),
        (listed(slice_(), DEVICES, lambda i: {"name": f"d{i}"}), 128, DEVICES,
         "Too many: 129: must have at most 128 items"),
        (listed(slice_(), DEVICES, lambda i: {"name": f"d{i}", "taints": [TAINT]}), 64, DEVICES,
         "Too many: 65: must have at most 64 items"),
        (listed(slice_(), DEVICES, lambda i: {"name": f"d{i}", "attributes": {"a": {"ints": [1]}}}),
         64, DEVICES, "Too many: 65: must have at most 64 items"),
        (listed(slice_(), "spec.devices.0.taints", lambda i: {**TAINT, "key": f"k{i}"}), 16,
         "spec.devices[0].taints", "Too many: 17: must have at most 16 items"),
        (lambda n: slice_(devices=[{"name": "d", "capacity": {"c": {"value": "1"}}, "attributes":
         {f"a{each}": {"int": 1} for each in range(n - 1)}}]), 32, "spec.devices[0]",
         "Invalid value: 33: the total number of attributes and capacities must not exceed 32"),
        (listed(claim(), "spec.devices.requests", request), 32, "spec.devices.requests",
         "Too many: 33: must have at most 32 items"),
        (listed(EITHER, "spec.devices.requests.0.firstAvailable", alternative), 8,
         "spec.devices.requests[0].firstAvailable", "Too many: 9: must have at most 8 items"),
        (listed(EXACTLY, "spec.devices.requests.0.exactly.selectors", lambda i: CEL), 32,
         "spec.devices.requests[0].exactly.selectors", "Too many: 33: must have at most 32 items"),
        (lambda n: changed(EXACTLY, {"spec.devices.requests.0.exactly.selectors":
         [{"cel": {"expression": "x" * n}}]}), 10240,
         "spec.devices.requests[0].exactly.selectors[0].cel.expression",
         "Too long: may not be more than 10240 bytes"),
        (listed(EXACTLY, "spec.devices.constraints", lambda i: CONSTRAINT), 32,
         "spec.devices.constraints", "Too many: 33: must have at most 32 items"),
        (listed(EXACTLY, "spec.devices.config", lambda i: OPAQUE), 32, "spec.devices.config",
         "Too many: 33: must have at most 32 items"),
        (lambda n: changed(EXACTLY, {"spec.devices.config": [{"opaque": {"driver": "d",
         "parameters": {"a": "x" * (n - 8)}}}]}), 10240, "spec.devices.config[0].opaque.parameters",
         "Too long: may not be more than 10240 bytes"),
        (listed(full_class(), "spec.selectors", lambda i: CEL), 32, "spec.selectors",
         "Too many: 33: must have at most 32 items"),
        (listed(full_class(), "spec.config", lambda i: OPAQUE), 32, "spec.config",
         "Too many: 33: must have at most 32 items"),
    ],
)  # fmt: skip
def test_field_has_this_limit(
    value: Callable[[int], Object], most: int, field: str, error: str
) -> None:
    assert errors_of(value(most)) == []
    assert errors_of(value(most + 1)) == [f"{field}: {error}"]


IMMUTABLE = "field is immutable"


@pytest.mark.parametrize(
    ("old", "change", "errors"),
    [
        (slice_(), {"spec.driver": "d"}, [f'spec.driver: Invalid value: "d": {IMMUTABLE}']),
        (slice_(), {"spec.nodeName": "n"}, [f'spec.nodeName: Invalid value: "n": {IMMUTABLE}']),
        (slice_(), {"spec.pool.name": "p"}, [f'spec.pool.name: Invalid value: "p": {IMMUTABLE}']),
        (
            slice_(),
            {"spec.nodeName": DROP, "spec.allNodes": True},
            [f"spec.nodeName: Invalid value: null: {IMMUTABLE}"],
        ),
        (slice_(), {"spec.pool.generation": 2, "spec.devices": []}, []),
        (claim(), {"spec.devices.requests": []}, [f"spec: Invalid value: null: {IMMUTABLE}"]),
        (claim(), {"metadata.labels": {"a": "b"}}, []),
        (template(), {"metadata.labels": {"a": "b"}}, []),
        (template(), {"spec": {}}, [f"spec: Invalid value: {{}}: {IMMUTABLE}"]),
        (full_class(), {"spec": {}}, []),
        (taint_rule(), {"spec.taint.effect": "NoExecute"}, []),
        (
            taint_rule(),
            {"spec.taint.effect": "No"},
            [
                'spec.taint.effect: Unsupported value: "No": supported values: "NoExecute", '
                '"NoSchedule", "None"'
            ],
        ),
    ],
)
def test_some_fields_cannot_be_updated(
    old: Object, change: dict[str, Any], errors: list[str]
) -> None:
    new = changed(old, change)
    assert [str(each) for each in broken_rules(new["kind"], new, old)] == errors
    assert not broken_rules(old["kind"], old, copy.deepcopy(old))


def test_stored_values_that_do_not_change_are_not_checked_again() -> None:
    capacity = {"memory": {"value": "1", "requestPolicy": {"default": "1"}}}
    device = {"name": "d", "taints": [{"key": "k", "effect": "Old"}], "capacity": capacity}
    old = slice_(devices=[device])
    assert len(errors_of(old)) == 2
    assert not broken_rules("ResourceSlice", old, old)
    renamed = changed(old, {"spec.devices.0.name": "other"})
    assert len(broken_rules("ResourceSlice", renamed, old)) == 2
    rule = changed(taint_rule(), {"spec.taint.effect": "Old"})
    assert errors_of(rule) and not broken_rules("DeviceTaintRule", rule, rule)


@pytest.mark.parametrize("kind", ["claim", "class"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no such field", 'Invalid value: "true": no such field'),
        ("too complex: 5", "Forbidden: too complex: 5"),
    ],
)
def test_rejected_expression_is_invalid_or_forbidden(kind: str, fault: str, error: str) -> None:
    value = changed(EXACTLY, {"spec.devices.requests.0.exactly.selectors": [CEL]})
    at = "spec.devices.requests[0].exactly.selectors[0]"
    if kind == "class":
        value, at = full_class(), "spec.selectors[0]"
    seen: list[str] = []

    def compile_(text: str) -> str:
        seen.append(text)
        return fault

    found = broken_rules(value["kind"], value, compile_=compile_)
    assert [str(each) for each in found] == [f"{at}.cel.expression: {error}"]
    assert seen == ["true"]
    assert not broken_rules(value["kind"], value, value, compile_=compile_)


def test_status_of_deallocated_devices_is_dropped() -> None:
    def status(*results: str, devices: tuple[str, ...] = ()) -> Object:
        def named(name: str) -> Object:
            return {"driver": "d", "pool": "p", "device": name}

        made: Object = {"allocation": {"devices": {"results": [*map(named, results)]}}}
        return {**made, "devices": [*map(named, devices)]} if devices else made

    old = status("a", "b", devices=("a", "b"))
    for new, kept in [
        (status("a", "b", devices=("a", "b")), ("a", "b")),
        (status("b", devices=("a", "b")), ("b",)),
        # An entry that was never allocated stays; it is an error of its own.
        (status("b", devices=("c", "a")), ("c",)),
        (status(devices=("a", "b")), ()),
    ]:
        drop_deallocated(new, old)
        assert [each["device"] for each in new.get("devices", ())] == list(kept)
        assert ("devices" in new) == bool(kept)


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (slice_(), "metadata"),
        (EXACTLY, "metadata"),
        (TEMPLATE, "metadata"),
        (TEMPLATE, "spec.metadata"),
        (full_class(), "metadata"),
        (taint_rule(), "metadata"),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) else each,
)
@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("labels", {"a": "-"}),
        ("annotations", {"-": ""}),
        ("ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        ("finalizers", ["-"]),
    ],
)
def test_metadata_of_each_kind_is_checked(value: Object, at: str, field: str, bad: object) -> None:
    (error,) = errors_of(changed(value, {f"{at}.{field}": bad}))
    assert error.startswith(f"{at}.{field}")


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (errors.required("f"), "FieldValueRequired", "f: Required value"),
        (errors.required("f", "why"), "FieldValueRequired", "f: Required value: why"),
        (errors.invalid("f", 1, "why"), "FieldValueInvalid", "f: Invalid value: 1: why"),
        (
            errors.unsupported("f", "c", ("a", "b")),
            "FieldValueNotSupported",
            'f: Unsupported value: "c": supported values: "a", "b"',
        ),
        (errors.forbidden("f", "why"), "FieldValueForbidden", "f: Forbidden: why"),
        (errors.duplicate("f", "a"), "FieldValueDuplicate", 'f: Duplicate value: "a"'),
        (errors.not_found("f", "a"), "FieldValueNotFound", 'f: Not found: "a"'),
        (errors.too_long("f", 3), "FieldValueTooLong", "f: Too long: may not be more than 3 bytes"),
        (
            errors.too_many("f", 4, 3),
            "FieldValueTooMany",
            "f: Too many: 4: must have at most 3 items",
        ),
        (
            errors.FieldError("InternalError", "f", detail="x"),
            "InternalError",
            "f: Internal error: x",
        ),
    ],
)
def test_errors_have_the_texts_of_the_api_server(
    error: errors.FieldError, reason: str, text: str
) -> None:
    assert (error.reason, str(error), error.declared) == (reason, text, False)
    (marked,) = errors.declared([error])
    assert (marked.reason, str(marked), marked.declared) == (reason, text, True)


@pytest.mark.parametrize(
    ("name", "value", "bad", "error"),
    [
        ("bools", True, None, ""),
        ("ints", 1, None, ""),
        ("strings", "x", "x" * 65, "Too long: may not be more than 64 bytes"),
        (
            "versions",
            "1.2.3",
            "1.2",
            'Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0',
        ),
    ],
)
def test_list_of_values_of_an_attribute(name: str, value: object, bad: object, error: str) -> None:
    at = "spec.devices[0].attributes[a]"
    assert errors_of(device_with_attribute(**{name: [value]})) == []
    if error:
        found = errors_of(device_with_attribute(**{name: [value, bad]}))
        assert found == [f"{at}.{name}[1]: {error}"]
    assert errors_of(device_with_attribute(**{name: []})) == [
        f"{at}.{name}: Invalid value: []: must not be empty if specified"
    ]
    # A value of a list counts as a value, and a device with a list is special.
    both = errors_of(device_with_attribute(**{name: [value], "int": 1}))
    choices = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
    order = ("int", name)
    assert both == [
        f'{at}: Invalid value: "{{{", ".join(order)}}}": must specify exactly one of: {choices}'
    ]
    assert errors_of(device_with_attribute()) == [
        f'{at}: Invalid value: "": must specify one of: {choices}'
    ]
    many = {"many": {name: [value] * 48}}
    assert errors_of(slice_(devices=[{"name": "d", "attributes": many}])) == []
    many["one"] = {"int": 1}
    assert errors_of(slice_(devices=[{"name": "d", "attributes": many}])) == [
        "spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed "
        "48"
    ]
    devices = [{"name": f"d{each}"} for each in range(64)]
    special = {"name": "special", "attributes": {"a": {name: [value]}}}
    assert errors_of(slice_(devices=[*devices[:63], special])) == []
    assert errors_of(slice_(devices=[*devices, special])) == [
        "spec.devices: Too many: 65: must have at most 64 items"
    ]


def ranged(value: str | None, default: str, **limits: str) -> list[str]:
    """Return the errors of a capacity with a range, without the path of its policy."""
    capacity: Object = {"requestPolicy": {"default": default, "validRange": limits}}
    if value is not None:
        capacity["value"] = value
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {"c": capacity}}
    start = "spec.devices[0].capacity[c].requestPolicy."
    return [each.removeprefix(start) for each in errors_of(slice_(devices=[device]))]


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "default", "limits", "errors"),
    [
        ("8", "2", {"min": "2", "max": "8", "step": "2"}, []),
        ("8", "8", {"min": "8", "max": "8"}, []),
        (f"{MOST}", "0", {"min": "0", "max": f"{MOST}", "step": "1"}, []),
        (
            f"{MOST + 1}",
            "0",
            {"min": "0", "max": f"{MOST + 1}", "step": "1"},
            [f'validRange.max: Invalid value: "{MOST + 1}": must not be larger than {MOST}'],
        ),
        (
            "8",
            "0",
            {"min": "-1", "step": "1"},
            ['validRange.min: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            "8",
            "2",
            {"min": "2", "step": "0"},
            ['validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        (
            "8",
            "3",
            {"min": "2", "max": "7", "step": "2"},
            [
                f'validRange.step: Invalid value: "{each}": value is not a multiple of a given '
                "step (2) from (2)"
                for each in (3, 7)
            ],
        ),
        (
            "8",
            "2",
            {"min": "2", "step": "7"},
            [
                'validRange.step: Invalid value: "7": one step 9 is larger than capacity value: 8',
            ],
        ),
        ("9", "2", {"min": "2", "step": "7"}, []),
        (
            "8",
            "1",
            {"min": "2"},
            ['validRange.default: Invalid value: "1": default is less than min: 2'],
        ),
        (
            "8",
            "5",
            {"min": "2", "max": "4"},
            ['validRange.default: Invalid value: "5": default is more than max: 4'],
        ),
        (
            "8",
            "9",
            {"min": "9"},
            ['validRange.min: Invalid value: "9": min is larger than capacity value: 8'],
        ),
        (
            "8",
            "2",
            {"min": "2", "max": "9"},
            ['validRange.max: Invalid value: "9": max is larger than capacity value: 8'],
        ),
        (
            "8",
            "2",
            {},
            ["validRange.min: Required value: required when validRange is defined"],
        ),
        (
            None,
            "0",
            {"min": "0", "max": "1"},
            ['validRange.max: Invalid value: "1": max is larger than capacity value: 0'],
        ),
    ],
)
def test_limits_of_a_range(
    value: str | None, default: str, limits: dict[str, str], errors: list[str]
) -> None:
    assert ranged(value, default, **limits) == errors


@pytest.mark.parametrize(
    ("values", "default", "errors"),
    [
        (["1", "2", "8"], "2", []),
        (
            ["1", "9"],
            "1",
            ['validValues[1]: Invalid value: "9": option is larger than capacity value: 8'],
        ),
        (
            ["1", "4"],
            "2",
            [
                'validValues: Invalid value: "2": default value is not valid according to the '
                "requestPolicy"
            ],
        ),
        (
            ["4", "1"],
            "1",
            ['validValues[1]: Invalid value: "1": values must be sorted in ascending order'],
        ),
        (["1", "1"], "1", ['validValues[1]: Duplicate value: "1"']),
    ],
)
def test_valid_values_of_a_capacity(values: list[str], default: str, errors: list[str]) -> None:
    policy = {"default": default, "validValues": values}
    capacity = {"c": {"value": "8", "requestPolicy": policy}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}
    start = "spec.devices[0].capacity[c].requestPolicy."
    found = [each.removeprefix(start) for each in errors_of(slice_(devices=[device]))]
    assert found == errors
    # Without shared allocations, there is no policy.
    device["allowMultipleAllocations"] = False
    assert errors_of(slice_(devices=[device])) == [
        f"{start.removesuffix('.')}: Forbidden: allowMultipleAllocations must be true"
    ]


def test_number_of_valid_values_is_limited() -> None:
    def found(number: int) -> list[str]:
        policy = {"default": "1", "validValues": [str(each + 1) for each in range(number)]}
        capacity = {"c": {"value": "99", "requestPolicy": policy}}
        device = {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}
        return [each.partition("validValues: ")[2] for each in errors_of(slice_(devices=[device]))]

    assert found(10) == []
    assert found(11) == [
        "Too many: 11: must have at most 10 items",
        'Invalid value: "1": default value is not valid according to the requestPolicy',
    ]


def test_message_has_each_error_once_and_several_in_brackets() -> None:
    one, other = errors.required("a"), errors.required("b")
    assert errors.message([one]) == errors.message([one, one]) == "a: Required value"
    assert errors.message([one, other, one]) == "[a: Required value, b: Required value]"
