"""The requests, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from tests.apiserver.real_answers.objects import (
    DROP,
    Object,
    allocation,
    changed,
    claim,
    device,
    device_class,
    lease,
    result,
    slice_,
    taint_rule,
    template,
    user,
)

V1 = "/apis/resource.k8s.io/v1"
BETA2 = "/apis/resource.k8s.io/v1beta2"
BETA1 = "/apis/resource.k8s.io/v1beta1"
NAMESPACE = "/namespaces/default"
SLICES = f"{V1}/resourceslices"
CLAIMS = f"{V1}{NAMESPACE}/resourceclaims"
TEMPLATES = f"{V1}{NAMESPACE}/resourceclaimtemplates"
CLASSES = f"{V1}/deviceclasses"
RULES = f"{V1}/devicetaintrules"
LEASES = f"/apis/coordination.k8s.io/v1{NAMESPACE}/leases"
CONFIGMAPS = f"/api/v1{NAMESPACE}/configmaps"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PATCH = "application/json-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
CLEANED = (SLICES, CLAIMS, TEMPLATES, CLASSES, RULES, f"{LEASES}/l", f"{CONFIGMAPS}/m")
"""Paths to delete before the first request."""
SHARE = "22222222-2222-4222-8222-222222222222"


@attrs.frozen
class Call:
    """A request. Texts can have ``{version:PATH}`` and ``{uid:PATH}`` of an earlier response."""

    name: str
    method: str
    path: str
    body: Any = None
    """An object, a list or a text; None for no body."""
    content: str = "application/json"
    events: int = 0
    """Number of events to read from a watch."""


def calls() -> Iterator[Call]:
    """Yield all requests."""
    yield from _discovery()
    yield from _slices()
    yield from _invalid_slices()
    yield from _claims()
    yield from _invalid_claims()
    yield from _statuses()
    yield from _invalid_statuses()
    yield from _templates()
    yield from _classes()
    yield from _taint_rules()
    yield from _versions()
    yield from _protobuf()
    yield from _watches()
    yield from _bodies()
    yield from _other_kinds()


def _create(name: str, path: str, body: Any, **fields: Any) -> Call:
    return Call(name, "POST", path, body, **fields)


def _faults(path: str, base: Object, rows: dict[str, dict[str, Any]]) -> Iterator[Call]:
    """Yield a request to create an object for each row: a name and the changes of the object.

    Nothing is stored, so that a row does not depend on the rows before it.
    """
    for name, changes in rows.items():
        yield _create(name, f"{path}?dryRun=All", changed(base, changes))


def _discovery() -> Iterator[Call]:
    for path in ("/api", "/apis/resource.k8s.io", V1, BETA2, BETA1, "/apis/coordination.k8s.io"):
        yield Call(f"discovery {path}", "GET", path)
    for path in ("/apis/none.example.com", "/apis/none.example.com/v1", f"{V1}/none"):
        yield Call(f"unknown {path}", "GET", path)


# -- slices ------------------------------------------------------------------------------


def _slices() -> Iterator[Call]:
    one = f"{SLICES}/s"
    yield Call("list of no slices", "GET", SLICES)
    yield _create("slice", SLICES, slice_())
    yield _create("slice twice", SLICES, slice_())
    yield _create("slice with a generated name", SLICES, _generated(slice_()))
    yield _create("slice without a name", SLICES, changed(slice_(), {"metadata.name": DROP}))
    yield _create("slice, dry run", f"{SLICES}?dryRun=All", slice_("dry"))
    yield Call("slice of the dry run", "GET", f"{SLICES}/dry")
    yield Call("get", "GET", one)
    yield Call("get of none", "GET", f"{SLICES}/none")
    yield Call("list of slices", "GET", SLICES)
    yield from _selected_slices()
    yield Call("update", "PUT", one, _changed_slice(generation=2))
    yield Call("update without a change", "PUT", one, _changed_slice(generation=2))
    yield Call("update of an old version", "PUT", one, _versioned("1"))
    yield Call("update of this version", "PUT", one, _versioned(f"{{version:{one}}}"))
    yield Call("update of another uid", "PUT", one, changed(slice_(), {"metadata.uid": SHARE}))
    yield Call("update of another name", "PUT", one, slice_("other"))
    yield Call("update of none", "PUT", f"{SLICES}/none", slice_("none"))
    yield Call("update of the driver", "PUT", one, slice_(driver="other.example.com"))
    yield Call("update of the node", "PUT", one, slice_(nodeName="node-2"))
    pool = {"name": "other", "generation": 1, "resourceSliceCount": 1}
    yield Call("update of the pool", "PUT", one, slice_(pool=pool))
    yield Call("merge patch", "PATCH", one, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    version = {"metadata": {"resourceVersion": "1", "labels": {"a": "c"}}}
    yield Call("merge patch of an old version", "PATCH", one, version, MERGE)
    yield Call("merge patch of another uid", "PATCH", one, {"metadata": {"uid": SHARE}}, MERGE)
    yield Call("strategic patch", "PATCH", one, {"metadata": {"labels": {"a": None}}}, STRATEGIC)
    steps = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    yield Call("JSON patch", "PATCH", one, steps, PATCH)
    failing = [{"op": "test", "path": "/metadata/labels/x", "value": "z"}]
    yield Call("JSON patch whose test fails", "PATCH", one, failing, PATCH)
    yield Call(
        "JSON patch without its path", "PATCH", one, [{"op": "remove", "path": "/no"}], PATCH
    )
    yield Call("patch of none", "PATCH", f"{SLICES}/none", {}, MERGE)
    yield Call("patch that makes it invalid", "PATCH", one, {"spec": {"pool": {"name": ""}}}, MERGE)
    yield Call("patch as plain JSON", "PATCH", one, {}, "application/json")
    yield Call("post to a name", "POST", one, slice_())
    yield from _deletions(one)


def _selected_slices() -> Iterator[Call]:
    selectors = (
        "spec.driver=gpu.example.com,spec.nodeName=node-1",
        "spec.driver=other.example.com",
        "spec.nodeName!=node-1",
        "metadata.name=s",
        "spec.pool.name=node-1",
        "spec.none=a",
        "a b",
    )
    for each in selectors:
        query = each.replace(" ", "%20")
        yield Call(f"list with {each}", "GET", f"{SLICES}?fieldSelector={query}")
    yield Call("list of a label", "GET", f"{SLICES}?labelSelector=a%3Db")
    yield Call("list of a bad label", "GET", f"{SLICES}?labelSelector=a%3D%3D%3Db")
    yield Call("list with a limit", "GET", f"{SLICES}?limit=1&fieldSelector=metadata.name%3Ds")


def _deletions(one: str) -> Iterator[Call]:
    for name, preconditions in (("uid", {"uid": SHARE}), ("version", {"resourceVersion": "1"})):
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        yield Call(f"delete of another {name}", "DELETE", one, body)
    yield Call("delete, dry run", "DELETE", f"{one}?dryRun=All")
    body = {"preconditions": {"uid": f"{{uid:{one}}}"}}
    yield Call("delete of this uid", "DELETE", one, body)
    yield Call("delete again", "DELETE", one)
    finalized = changed(slice_("f"), {"metadata.finalizers": ["example.com/keep"]})
    yield _create("slice with a finalizer", SLICES, finalized)
    yield Call("delete with a finalizer", "DELETE", f"{SLICES}/f")
    added = {"metadata": {"finalizers": ["example.com/keep", "example.com/more"]}}
    yield Call("finalizer of a deleted one", "PATCH", f"{SLICES}/f", added, MERGE)
    gone = {"metadata": {"finalizers": None}}
    yield Call("last finalizer", "PATCH", f"{SLICES}/f", gone, MERGE)
    yield Call("get after the last finalizer", "GET", f"{SLICES}/f")
    selector = "fieldSelector=spec.driver%3Dgpu.example.com,spec.nodeName%3Dnode-1"
    yield Call("delete collection", "DELETE", f"{SLICES}?{selector}")
    yield Call("delete collection of a bad field", "DELETE", f"{SLICES}?fieldSelector=spec.x%3Dy")
    yield Call("list after delete collection", "GET", SLICES)


def _generated(value: Object) -> Object:
    return changed(value, {"metadata.name": DROP, "metadata.generateName": "0-gpu-"})


def _changed_slice(**pool: Any) -> Object:
    return changed(slice_(), {f"spec.pool.{key}": value for key, value in pool.items()})


def _versioned(version: str) -> Object:
    return changed(slice_(), {"metadata.resourceVersion": version, "spec.pool.generation": 3})


def _invalid_slices() -> Iterator[Call]:
    base = slice_("bad")
    yield from _faults(SLICES, base, _SPEC_FAULTS)
    yield from _faults(SLICES, base, _DEVICE_FAULTS)
    yield from _faults(SLICES, base, _ATTRIBUTE_FAULTS)
    shared = changed(base, {"spec.devices.0.allowMultipleAllocations": True})
    for name, policy in _POLICIES.items():
        changes = {"spec.devices.0.capacity.memory.requestPolicy": policy}
        yield _create(f"policy {name}", f"{SLICES}?dryRun=All", changed(shared, changes))
    yield from _faults(SLICES, base, _COUNTER_FAULTS)


_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def _selector(**requirement: Any) -> dict[str, Any]:
    term = {"matchExpressions": [requirement]}
    return {"spec.nodeName": DROP, "spec.nodeSelector": {"nodeSelectorTerms": [term]}}


def _field_selector(**requirement: Any) -> dict[str, Any]:
    term = {"matchFields": [requirement]}
    return {"spec.nodeName": DROP, "spec.nodeSelector": {"nodeSelectorTerms": [term]}}


_SPEC_FAULTS: dict[str, dict[str, Any]] = {
    "slice of a bad name": {"metadata.name": "Bad_Name"},
    "slice of a long name": {"metadata.name": "a" * 254},
    "slice with a bad label": {"metadata.labels": {"a b": "c", "ok": "not ok"}},
    "slice with a bad annotation": {"metadata.annotations": {"a b": "c"}},
    "slice with an owner without uid": {
        "metadata.ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}]
    },
    "slice without a spec": {"spec": {}},
    "slice without a driver": {"spec.driver": ""},
    "slice of a bad driver": {"spec.driver": "bad_driver"},
    "slice of a long driver": {"spec.driver": "a" * 64},
    "slice of a driver in upper case": {"spec.driver": "GPU.example.com", "metadata.name": "up"},
    "slice without a pool": {"spec.pool": DROP},
    "slice of a bad pool": {"spec.pool.name": "a//B"},
    "slice of a long pool": {"spec.pool.name": "a" * 254},
    "slice of no slices": {"spec.pool.resourceSliceCount": 0},
    "slice of a negative generation": {"spec.pool.generation": -1},
    "slice without nodes": {"spec.nodeName": DROP},
    "slice of an empty node": {"spec.nodeName": ""},
    "slice of a bad node": {"spec.nodeName": "Node_1"},
    "slice of all nodes and one": {"spec.allNodes": True},
    "slice of not all nodes": {"spec.allNodes": False},
    "slice per device": {"spec.nodeName": DROP, "spec.perDeviceNodeSelection": True},
    "slice not per device": {"spec.perDeviceNodeSelection": False},
    "slice of no term": {"spec.nodeName": DROP, "spec.nodeSelector": {"nodeSelectorTerms": []}},
    "slice of two terms": {
        "spec.nodeName": DROP,
        "spec.nodeSelector": {"nodeSelectorTerms": [_TERM, _TERM]},
    },
    "selector without values": _selector(key="zone", operator="In"),
    "selector with values": _selector(key="zone", operator="Exists", values=["a"]),
    "selector of two numbers": _selector(key="zone", operator="Gt", values=["1", "2"]),
    "selector of a bad operator": _selector(key="zone", operator="Like", values=["a"]),
    "selector of a bad key": _selector(key="a b", operator="Exists"),
    "selector of a bad value": _selector(key="zone", operator="In", values=["a b"]),
    "selector of a bad field": _field_selector(key="spec.x", operator="In", values=["a"]),
    "selector of two names": _field_selector(key="metadata.name", operator="In", values=["a", "b"]),
    "selector of a bad name": _field_selector(
        key="metadata.name", operator="Exists", values=["A_B"]
    ),
    "slice of 129 devices": {"spec.devices": [device(f"d{n}") for n in range(129)]},
    "slice of 65 tainted devices": {
        "spec.devices": [
            device(f"d{n}", taints=[{"key": "a", "effect": "NoSchedule"}]) for n in range(65)
        ]
    },
    "slice of equal devices": {"spec.devices": [device(), device()]},
    "slice of devices and counters": {"spec.sharedCounters": []},
}


def _device(**fields: Any) -> dict[str, Any]:
    return {f"spec.devices.0.{key}": value for key, value in fields.items()}


def _many(number: int, value: Any) -> dict[str, Any]:
    return {f"a{n}": value for n in range(number)}


_DEVICE_FAULTS: dict[str, dict[str, Any]] = {
    "device without a name": _device(name=""),
    "device of a bad name": _device(name="GPU_0"),
    "device of a name with dots": _device(name="gpu.0"),
    "device of a long name": _device(name="a" * 64),
    "device with 33 attributes": _device(attributes=_many(32, {"bool": True})),
    "device with a taint without effect": _device(taints=[{"key": "a"}]),
    "device with a taint without key": _device(taints=[{"effect": "NoExecute"}]),
    "device with a bad taint": _device(taints=[{"key": "a", "value": "b c", "effect": "Never"}]),
    "device with 17 taints": _device(
        taints=[{"key": f"a{n}", "effect": "NoSchedule"} for n in range(17)]
    ),
    "device with a node": _device(nodeName="node-1"),
    "device with a condition": _device(bindingConditions=["a"]),
    "device with a failure": _device(bindingFailureConditions=["a"]),
    "device with equal conditions": _device(
        bindingConditions=["a", "a"], bindingFailureConditions=["a"]
    ),
    "device with five conditions": _device(
        bindingConditions=list("abcde"), bindingFailureConditions=["f"]
    ),
    "device with a bad condition": _device(
        bindingConditions=["a b"], bindingFailureConditions=["f"]
    ),
    "device per device without nodes": {
        "spec.nodeName": DROP,
        "spec.perDeviceNodeSelection": True,
        "spec.devices.0.allNodes": False,
    },
    "device per device with two": {
        "spec.nodeName": DROP,
        "spec.perDeviceNodeSelection": True,
        "spec.devices.0.allNodes": True,
        "spec.devices.0.nodeName": "node-1",
    },
    "device with an empty node": {
        "spec.nodeName": DROP,
        "spec.perDeviceNodeSelection": True,
        "spec.devices.0.nodeName": "",
    },
}


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"spec.devices.0.attributes": {name: value}}


_ATTRIBUTE_FAULTS: dict[str, dict[str, Any]] = {
    "attribute of 65 bytes": _attribute("model", {"string": "a" * 65}),
    "attribute of 64 bytes in 22 characters": _attribute("model", {"string": "\u20ac" * 22}),
    "attribute of a bad version": _attribute("version", {"version": "1.2"}),
    "attribute of a long version": _attribute("version", {"version": f"1.2.3-{'a' * 60}"}),
    "attribute without a value": _attribute("model", {}),
    "attribute of two values": _attribute("model", {"string": "a", "int": 1}),
    "attribute of lists": _attribute("model", {"strings": ["a"], "ints": []}),
    "attribute of a bad name": _attribute("a-b", {"bool": True}),
    "attribute of a long name": _attribute("a" * 33, {"bool": True}),
    "attribute of a bad domain": _attribute("a_b/c", {"bool": True}),
    "attribute of an empty domain": _attribute("/c", {"bool": True}),
    "attribute without a name": _attribute("example.com/", {"bool": True}),
    "attribute of a very long name": _attribute(f"{'a' * 70}/{'b' * 40}", {"string": "c" * 65}),
    "capacity of a bad name": {"spec.devices.0.capacity": {"a-b": {"value": "1"}}},
    "capacity with a policy": {"spec.devices.0.capacity.memory.requestPolicy": {"default": "1Gi"}},
}

_POLICIES: dict[str, Any] = {
    "of values and a range": {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
    "of values without default": {"validValues": ["1Gi", "2Gi"]},
    "of a range without default": {"validRange": {"min": "1Gi"}},
    "of unsorted values": {"default": "2Gi", "validValues": ["2Gi", "1Gi"]},
    "of equal values": {"default": "1Gi", "validValues": ["1Gi", "1024Mi"]},
    "of large values": {"default": "1Gi", "validValues": ["1Gi", "41Gi"]},
    "of another default": {"default": "3Gi", "validValues": ["1Gi"]},
    "of eleven values": {"default": "1", "validValues": [str(n) for n in range(1, 12)]},
    "of a range without min": {"default": "1Gi", "validRange": {"max": "2Gi"}},
    "of a large min": {"default": "1Gi", "validRange": {"min": "41Gi"}},
    "of a small default": {"default": "1Gi", "validRange": {"min": "2Gi"}},
    "of a large default": {"default": "4Gi", "validRange": {"min": "1Gi", "max": "3Gi"}},
    "of a large max": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "50Gi"}},
    "of a small max": {"default": "2Gi", "validRange": {"min": "2Gi", "max": "1Gi"}},
    "of no step": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}},
    "of a large step": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "40Gi"}},
    "of other steps": {
        "default": "2Gi",
        "validRange": {"min": "1Gi", "max": "4Gi", "step": "1536Mi"},
    },
    "of a fraction": {"default": "1500m", "validRange": {"min": "1", "step": "400m"}},
    "of a tiny fraction": {"default": "1", "validRange": {"min": "1", "step": "1n"}},
    "of a negative min": {"default": "1", "validRange": {"min": "-1", "step": "1"}},
}


def _consumes(**fields: Any) -> dict[str, Any]:
    counters = {"memory": {"value": "1Gi"}}
    return _device(consumesCounters=[{"counterSet": "set", "counters": counters, **fields}])


def _counters(*sets: Any) -> dict[str, Any]:
    return {"spec.devices": DROP, "spec.sharedCounters": list(sets)}


_SET = {"name": "set", "counters": {"memory": {"value": "40Gi"}}}
_COUNTER_FAULTS: dict[str, dict[str, Any]] = {
    "counters without a set": _consumes(counterSet=""),
    "counters of a bad set": _consumes(counterSet="A_B"),
    "counters without counters": _consumes(counters={}),
    "counters of a bad name": _consumes(counters={"A_B": {"value": "1"}}),
    "counters of 33": _consumes(counters=_many(33, {"value": "1"})),
    "counters of three sets": _device(
        consumesCounters=[{**_SET, "counterSet": each, "name": DROP} for each in ()]
        or [{"counterSet": each, "counters": _SET["counters"]} for each in "abc"]
    ),
    "counters of equal sets": _device(
        consumesCounters=[{"counterSet": "a", "counters": _SET["counters"]}] * 2
    ),
    "set without a name": _counters({**_SET, "name": ""}),
    "set without counters": _counters({"name": "set"}),
    "equal sets": _counters(_SET, _SET),
    "nine sets": _counters(*({**_SET, "name": f"set-{n}"} for n in range(9))),
}


# -- claims ------------------------------------------------------------------------------


def _claims() -> Iterator[Call]:
    one = f"{CLAIMS}/c"
    yield _create("claim", CLAIMS, claim())
    yield _create("claim of no requests", CLAIMS, changed(claim("none"), {"spec": {}}))
    all_ = {"spec.devices.requests.0.exactly.allocationMode": "All"}
    yield _create("claim of all", CLAIMS, changed(claim("all"), all_))
    yield _create("claim with a status", CLAIMS, {**claim("st"), "status": {"devices": []}})
    yield _create("claim in another namespace", CLAIMS, _in_namespace("other"))
    yield _create("claim in a namespace that is missing", _CLAIMS_OF_NONE, _in_namespace("none"))
    yield _create("claim without a namespace", f"{V1}/resourceclaims", claim("x"))
    yield Call(
        "claims of all namespaces", "GET", f"{V1}/resourceclaims?fieldSelector=metadata.name%3Dc"
    )
    yield Call("claims of a bad field", "GET", f"{CLAIMS}?fieldSelector=spec.x%3Dy")
    yield Call("claims deleted in all namespaces", "DELETE", f"{V1}/resourceclaims")
    yield Call("claim with another spec", "PUT", one, changed(claim(), all_))
    labels = {"metadata.labels": {"a": "b"}}
    yield Call("claim with a label", "PUT", one, changed(claim(), labels))
    rich = {
        "spec.devices.requests.0.exactly.selectors": [{"cel": {"expression": "true"}}],
        "spec.devices.requests.0.exactly.tolerations": [{"key": "a"}, {"operator": "Exists"}],
        "spec.devices.requests.0.exactly.capacity": {"requests": {"memory": "1024Mi"}},
        "spec.devices.requests.1": {
            "name": "any",
            "firstAvailable": [
                {"name": "big", "deviceClassName": "big.example.com"},
                {"name": "two", "deviceClassName": "small.example.com", "count": 2},
            ],
        },
        "spec.devices.constraints": [
            {"requests": ["gpu", "any"], "matchAttribute": "example.com/numa"},
            {"requests": ["any/big"], "distinctAttribute": "example.com/uuid"},
        ],
        "spec.devices.config": [_config(requests=["gpu"])],
    }
    yield _create("claim with everything", CLAIMS, changed(claim("rich"), rich))


_CLAIMS_OF_NONE = f"{V1}/namespaces/none/resourceclaims"


def _in_namespace(name: str) -> Object:
    return changed(claim("x"), {"metadata.namespace": name})


def _config(driver: str = "gpu.example.com", parameters: Any = None, **fields: Any) -> Object:
    opaque = {"driver": driver, "parameters": parameters or {"kind": "Config"}}
    return {"opaque": opaque, **fields}


def _invalid_claims() -> Iterator[Call]:
    yield from _faults(CLAIMS, claim("bad"), _CLAIM_FAULTS)
    big = {"name": "big", "deviceClassName": "big.example.com"}
    alternatives = changed(
        claim("bad"), {"spec.devices.requests": [{"name": "any", "firstAvailable": [big]}]}
    )
    yield from _faults(CLAIMS, alternatives, _ALTERNATIVE_FAULTS)


def _exactly(**fields: Any) -> dict[str, Any]:
    return {f"spec.devices.requests.0.exactly.{key}": value for key, value in fields.items()}


def _expression(text: str) -> dict[str, Any]:
    return _exactly(selectors=[{"cel": {"expression": text}}])


def _toleration(**fields: Any) -> dict[str, Any]:
    return _exactly(tolerations=[fields])


_REQUEST = claim()["spec"]["devices"]["requests"][0]
_MATCH = {"matchAttribute": "example.com/numa"}
_CLAIM_FAULTS: dict[str, dict[str, Any]] = {
    "claim of a bad name": {"metadata.name": "Bad"},
    "request without a name": {"spec.devices.requests.0.name": ""},
    "request of a bad name": {"spec.devices.requests.0.name": "a.b"},
    "request without anything": {"spec.devices.requests.0.exactly": DROP},
    "request with both": {
        "spec.devices.requests.0.firstAvailable": [{"name": "a", "deviceClassName": "b"}]
    },
    "request without a class": _exactly(deviceClassName=""),
    "request of a bad class": _exactly(deviceClassName="A_B"),
    "request of a bad mode": _exactly(allocationMode="Some"),
    "request of all with a count": _exactly(allocationMode="All", count=1),
    "request of a negative count": _exactly(count=-1),
    "request of a selector without cel": _exactly(selectors=[{}]),
    "request of a long expression": _expression("a" * 10241),
    "request of 33 selectors": _exactly(selectors=[{"cel": {"expression": "true"}}] * 33),
    "request of a bad expression": _expression("device.drive == 'a'"),
    "request with admin access": _exactly(adminAccess=True),
    "request with a bad toleration": _toleration(key="a b", operator="Like", effect="Never"),
    "request with a toleration with value": _toleration(operator="Exists", value="a"),
    "request with a toleration of a bad value": _toleration(key="a", value="b c"),
    "equal requests": {"spec.devices.requests": [_REQUEST, _REQUEST]},
    "33 requests": {"spec.devices.requests": [{**_REQUEST, "name": f"r{n}"} for n in range(33)]},
    "constraint of nothing": {"spec.devices.constraints": [{}]},
    "constraint of both": {
        "spec.devices.constraints": [{**_MATCH, "distinctAttribute": "example.com/b"}],
        "metadata.name": "both",
    },
    "constraint without a domain": {"spec.devices.constraints": [{"matchAttribute": "numa"}]},
    "constraint of a bad name": {"spec.devices.constraints": [{"matchAttribute": "a_b/c-d"}]},
    "constraint of another request": {
        "spec.devices.constraints": [{**_MATCH, "requests": ["none"]}]
    },
    "constraint of a subrequest": {
        "spec.devices.constraints": [{**_MATCH, "requests": ["gpu/none", "a/b/c"]}]
    },
    "constraint of equal requests": {
        "spec.devices.constraints": [{**_MATCH, "requests": ["gpu", "gpu"]}]
    },
    "33 constraints": {"spec.devices.constraints": [_MATCH] * 33},
    "config of nothing": {"spec.devices.config": [{}]},
    "config without a driver": {"spec.devices.config": [_config("")]},
    "config of a bad driver": {"spec.devices.config": [_config("a_b")]},
    "config of a long driver": {"spec.devices.config": [_config("a" * 64)]},
    "config without parameters": {
        "spec.devices.config": [{"opaque": {"driver": "gpu.example.com"}}]
    },
    "config of a list": {"spec.devices.config": [_config(parameters=["a"])]},
    "config of many parameters": {"spec.devices.config": [_config(parameters={"a": "b" * 10241})]},
    "33 configs": {"spec.devices.config": [_config()] * 33},
    "config of another request": {"spec.devices.config": [_config(requests=["none"])]},
}


def _alternative(**fields: Any) -> dict[str, Any]:
    return {
        f"spec.devices.requests.0.firstAvailable.0.{key}": value for key, value in fields.items()
    }


_ALTERNATIVE_FAULTS: dict[str, dict[str, Any]] = {
    "alternative without a name": _alternative(name=""),
    "alternative without a class": _alternative(deviceClassName=""),
    "alternative of a bad class": _alternative(deviceClassName="A_B"),
    "alternative of a bad mode": _alternative(allocationMode="Some"),
    "equal alternatives": {
        "spec.devices.requests.0.firstAvailable": [{"name": "a", "deviceClassName": "b"}] * 2
    },
    "nine alternatives": {
        "spec.devices.requests.0.firstAvailable": [
            {"name": f"a{n}", "deviceClassName": "b"} for n in range(9)
        ]
    },
}


# -- status of claims ----------------------------------------------------------------------


def _status(name: str, status: Any, of: str = "c", query: str = "") -> Call:
    body = {**claim(of), "status": status}
    return Call(name, "PUT", f"{CLAIMS}/{of}/status{query}", body)


def _statuses() -> Iterator[Call]:
    shared = allocation(result(shareID=SHARE, consumedCapacity={"memory": "2048Mi"}))
    yield _status("status of a reservation alone", {"reservedFor": [user()]})
    yield _status("status", {"allocation": allocation(), "reservedFor": [user()]})
    yield _status("status of another allocation", {"allocation": shared})
    entry = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    network = {"interfaceName": "eth1", "ips": ["10.9.8.7/24"], "hardwareAddress": "aa:bb"}
    full = {**entry, "conditions": [ready], "data": {"a": 1}, "networkData": network}
    yield _status("status of a device", _with_devices(full))
    yield Call("patch of a status", "PATCH", f"{CLAIMS}/c/status", _PATCHED, MERGE)
    yield Call("get of a status", "GET", f"{CLAIMS}/c/status")
    yield _status("status deallocated", {})
    yield _status("status of a share", {"allocation": shared})
    yield _status("status of a device without its share", _with_devices(entry, of=shared))
    yield _status(
        "status of a shared device", _with_devices({**entry, "shareID": SHARE}, of=shared)
    )
    yield _status("status deallocated again", {})
    yield _status("status of none", {}, "missing")


_PATCHED = {"status": {"reservedFor": [user(), user(SHARE, "q")]}}


def _with_devices(*devices: Any, of: Object | None = None) -> Object:
    return {"allocation": of or allocation(), "devices": list(devices)}


def _invalid_statuses() -> Iterator[Call]:
    for name, found in _RESULT_FAULTS.items():
        status = {"allocation": allocation(result(**found))}
        yield _status(f"result {name}", status, query="?dryRun=All")
    for name, status in _STATUS_FAULTS.items():
        yield _status(name, status, query="?dryRun=All")
    for name, entry in _ENTRY_FAULTS.items():
        named = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
        status = _with_devices({**named, **entry})
        yield _status(f"device {name}", status, query="?dryRun=All")


_RESULT_FAULTS: dict[str, dict[str, Any]] = {
    "of another request": {"request": "none"},
    "of a subrequest": {"request": "gpu/a"},
    "without a driver": {"driver": ""},
    "of a bad driver": {"driver": "a_b"},
    "of a long driver": {"driver": "a" * 64},
    "without a pool": {"pool": ""},
    "of a bad pool": {"pool": "a//B_"},
    "of a bad device": {"device": "A_B"},
    "of a bad share": {"shareID": "1234"},
    "of a share in upper case": {"shareID": "AAAAAAAA-AAAA-4AAA-8AAA-AAAAAAAAAAAA"},
    "with admin access": {"adminAccess": True},
    "of a bad toleration": {"tolerations": [{"operator": "Like", "key": "a b"}]},
    "of a condition": {"bindingConditions": ["a"]},
}
_STATUS_FAULTS: dict[str, Any] = {
    "33 results": {"allocation": allocation(*[result()] * 33)},
    "config without source": {"allocation": allocation(config=[_config()])},
    "config of a bad source": {"allocation": allocation(config=[_config(source="Me")])},
    "config of a request that is missing": {
        "allocation": allocation(config=[_config(source="FromClass", requests=["none"])])
    },
    "status of an empty selector": {
        "allocation": {**allocation(), "nodeSelector": {"nodeSelectorTerms": []}}
    },
    "equal users": {"allocation": allocation(), "reservedFor": [user(), user()]},
    "user without a uid": {"allocation": allocation(), "reservedFor": [{"resource": "pods"}]},
    "257 users": {
        "allocation": allocation(),
        "reservedFor": [user(str(n), f"p{n}") for n in range(257)],
    },
    "equal devices": _with_devices(
        *[{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}] * 2
    ),
}
_ENTRY_FAULTS: dict[str, Any] = {
    "without a driver": {"driver": ""},
    "that is not allocated": {"device": "gpu-1"},
    "of a bad share": {"shareID": "1"},
    "of an empty condition": {"conditions": [{}]},
    "of a bad condition": {"conditions": [{"type": "a b", "status": "Maybe", "reason": "a b"}] * 2},
    "of a list": {"data": ["a"]},
    "of much data": {"data": {"a": "b" * 10241}},
    "of a long interface": {"networkData": {"interfaceName": "a" * 257}},
    "of a long address": {"networkData": {"hardwareAddress": "a" * 129}},
    "of bad addresses": {"networkData": {"ips": ["10.0.0.1", "10.0.0.1/024", "fe80::0/64"]}},
    "of equal addresses": {"networkData": {"ips": ["10.0.0.1/24", "10.0.0.1/24"]}},
    "of 17 addresses": {"networkData": {"ips": [f"10.0.0.{n}/24" for n in range(1, 18)]}},
}


# -- templates, classes and rules ------------------------------------------------------------


def _templates() -> Iterator[Call]:
    one = f"{TEMPLATES}/t"
    yield _create("template", TEMPLATES, template())
    yield _create("template of nothing", TEMPLATES, changed(template("t2"), {"spec": {}}))
    labels = {"spec.metadata": {"labels": {"a": "b"}}}
    yield _create("template with labels", TEMPLATES, changed(template("t3"), labels))
    faults = {
        "template of a bad label": {"spec.metadata": {"labels": {"a b": "c"}}},
        "template of a bad request": {"spec.spec.devices.requests.0.name": "a.b"},
        "template of admin access": {
            "spec.spec.devices.requests.0.exactly.adminAccess": True,
        },
    }
    yield from _faults(TEMPLATES, template("bad"), faults)
    count = {"spec.spec.devices.requests.0.exactly.count": 2}
    yield Call("template with another spec", "PUT", one, changed(template(), count))
    yield Call("delete of a template", "DELETE", one)


def _classes() -> Iterator[Call]:
    one = f"{CLASSES}/gpu.example.com"
    yield _create("class", CLASSES, device_class())
    yield _create("class of nothing", CLASSES, changed(device_class("x"), {"spec": {}}))
    config = {"spec.config": [_config()], "spec.extendedResourceName": "example.com/gpu"}
    yield _create("class of a config", CLASSES, changed(device_class("y"), config))
    faults: dict[str, dict[str, Any]] = {
        "class of a bad name": {"metadata.name": "A_B"},
        "class of a selector without cel": {"spec.selectors": [{}]},
        "class of 33 selectors": {"spec.selectors": [{"cel": {"expression": "true"}}] * 33},
        "class of a config without driver": {"spec.config": [_config("")]},
        "class of a resource without domain": {"spec.extendedResourceName": "gpu"},
        "class of a native resource": {"spec.extendedResourceName": "a.kubernetes.io/gpu"},
        "class of a quota": {"spec.extendedResourceName": "requests.example.com/gpu"},
        "class of a bad resource": {"spec.extendedResourceName": "a_b/c d"},
    }
    yield from _faults(CLASSES, device_class("bad"), faults)
    yield Call("class with a config", "PUT", one, changed(device_class(), config))
    yield Call("patch of a class", "PATCH", one, {"spec": {"config": None}}, MERGE)
    yield Call("class is gone", "DELETE", one)


def _taint_rules() -> Iterator[Call]:
    one = f"{RULES}/r"
    yield _create("rule", RULES, taint_rule())
    yield _create("rule for all", RULES, changed(taint_rule("all"), {"spec.deviceSelector": DROP}))
    faults: dict[str, dict[str, Any]] = {
        "rule of nothing": {"spec": {}},
        "rule of a bad driver": {"spec.deviceSelector.driver": "a_b"},
        "rule of an empty pool": {"spec.deviceSelector.pool": ""},
        "rule of a bad device": {"spec.deviceSelector.device": "A.B"},
        "rule of a bad key": {"spec.taint.key": "a b"},
        "rule of a bad effect": {"spec.taint.effect": "Never"},
    }
    yield from _faults(RULES, taint_rule("bad"), faults)
    evict = {"spec.taint.effect": "NoExecute"}
    yield Call("rule without a version", "PUT", one, changed(taint_rule(), evict))
    versioned = {**evict, "metadata.resourceVersion": f"{{version:{one}}}"}
    yield Call("rule that evicts", "PUT", one, changed(taint_rule(), versioned))
    condition = {"type": "a b", "status": "True"}
    bad = {"status": {"conditions": [condition]}}
    yield Call("status of a rule", "PATCH", f"{one}/status", bad, MERGE)
    yield Call("rule is gone", "DELETE", one)


# -- versions and encodings --------------------------------------------------------------


def _versions() -> Iterator[Call]:
    flat = changed(claim("old"), {"apiVersion": "resource.k8s.io/v1beta1"})
    request = {"name": "gpu", "deviceClassName": "gpu.example.com"}
    flat = changed(flat, {"spec.devices.requests": [request]})
    claims = f"{BETA1}{NAMESPACE}/resourceclaims"
    yield _create("claim of v1beta1", claims, flat)
    yield Call("claim of v1beta1 at v1", "GET", f"{CLAIMS}/old")
    yield Call("claim of v1beta1 at v1beta2", "GET", f"{BETA2}{NAMESPACE}/resourceclaims/old")
    yield Call("claim of v1 at v1beta1", "GET", f"{claims}/rich")
    bad = changed(flat, {"metadata.name": "bad", "spec.devices.requests.0.deviceClassName": ""})
    yield _create("invalid claim of v1beta1", claims, bad)
    mode = {"metadata.name": "bad", "spec.devices.requests.0.allocationMode": "Some"}
    yield _create("claim of v1beta1 of a bad mode", claims, changed(flat, mode))
    yield _create("claim of v1beta1 with exactly", claims, changed(claim("ex"), _BETA1))
    yield _create("claim of v1 to v1beta1", claims, claim("wrong"))
    rest = {key: value for key, value in device().items() if key != "name"}
    old = changed(slice_("old"), {**_BETA1, "spec.devices": [{"name": "gpu-0", "basic": rest}]})
    slices = f"{BETA1}/resourceslices"
    yield _create("slice of v1beta1", slices, old)
    yield Call("slice of v1beta1 at v1", "GET", f"{SLICES}/old")
    yield Call("slices of v1beta1", "GET", slices)
    yield _create(
        "invalid slice of v1beta1",
        slices,
        changed(old, {"metadata.name": "A", "spec.devices.0.basic.attributes.model": {}}),
    )
    yield _create("device of v1beta1 without basic", slices, changed(slice_("flat"), _BETA1))
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield Call("patch at v1beta2", "PATCH", f"{BETA2}/resourceslices/old", labels, MERGE)
    rule = changed(taint_rule("beta"), {"apiVersion": "resource.k8s.io/v1beta2"})
    yield _create("rule of v1beta2", f"{BETA2}/devicetaintrules", rule)
    yield Call("rule of v1beta1", "GET", f"{BETA1}/devicetaintrules")


_BETA1 = {"apiVersion": "resource.k8s.io/v1beta1"}


def _protobuf() -> Iterator[Call]:
    yield _create("slice as protobuf", SLICES, slice_("proto"), content=PROTOBUF)
    yield _create("bad slice as protobuf", SLICES, slice_("Bad"), content=PROTOBUF)
    yield _create("claim as protobuf", CLAIMS, claim("proto"), content=PROTOBUF)
    yield Call("update as protobuf", "PUT", f"{SLICES}/proto", slice_("proto"), PROTOBUF)
    yield _create("JSON named protobuf", SLICES, "{}", content=PROTOBUF)
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": SHARE}}
    yield Call("delete as protobuf", "DELETE", f"{SLICES}/proto", body, PROTOBUF)


# -- watches -----------------------------------------------------------------------------


def _watches() -> Iterator[Call]:
    field = "fieldSelector=metadata.name%3Dproto"
    first = f"watch=true&{field}&resourceVersionMatch=NotOlderThan"
    rows = {
        "watch with initial events": (
            f"{first}&sendInitialEvents=true&allowWatchBookmarks=true",
            2,
        ),
        "watch of any version": (f"watch=1&{field}", 1),
        "watch of version 0": (f"watch=true&{field}&resourceVersion=0", 1),
        "watch without match": (f"watch=true&{field}&sendInitialEvents=true", 0),
        "watch with only match": (f"{first}", 0),
        "watch with another match": (
            f"watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&{field}",
            0,
        ),
        "watch of a bad version": ("watch=true&resourceVersion=abc", 0),
        "watch of a bad field": ("watch=true&fieldSelector=spec.x%3Dy", 0),
        "list with initial events": ("sendInitialEvents=true", 0),
        "list with match": ("resourceVersionMatch=Exact", 0),
        "list with a bad match": ("resourceVersionMatch=Most&resourceVersion=1", 0),
        "list of a bad continue": ("continue=abc", 0),
        "list of a bad limit": ("limit=abc", 0),
        "list of a bad time": ("timeoutSeconds=abc", 0),
        "list of a bad version": ("resourceVersion=abc", 0),
        "list of a negative version": ("resourceVersion=-1&resourceVersionMatch=NotOlderThan", 0),
        "list of a future version": ("resourceVersion=99999999", 0),
    }
    for name, (query, events) in rows.items():
        yield Call(name, "GET", f"{SLICES}?{query}", events=events)
    namespace = "/api/v1/namespaces/default"
    for name, version in (("a bad", "abc"), ("a future", "99999999")):
        yield Call(f"get of {name} version", "GET", f"{namespace}?resourceVersion={version}")
    since = f"resourceVersion={{version:{CLAIMS}/proto}}"
    labels = {"metadata": {"labels": {"seen": "yes"}}}
    yield Call("change for a watch", "PATCH", f"{SLICES}/proto", labels, MERGE)
    yield Call("delete for a watch", "DELETE", f"{SLICES}/proto")
    yield Call("watch from a version", "GET", f"{SLICES}?watch=true&{field}&{since}", events=2)
    label = "labelSelector=seen%3Dyes"
    yield Call("watch of a label", "GET", f"{SLICES}?watch=true&{label}&{since}", events=2)


# -- bodies and other kinds ------------------------------------------------------------------


def _bodies() -> Iterator[Call]:
    yield _create("no body", SLICES, "")
    yield _create("no JSON", SLICES, "{")
    yield _create("a list", SLICES, "[]")
    yield _create(
        "YAML",
        SLICES,
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n",
        content="application/yaml",
    )
    yield _create("another encoding", SLICES, "<a/>", content="application/xml")
    yield _create("without a kind", SLICES, changed(slice_("nokind"), {"kind": DROP}))
    yield _create("another kind", SLICES, claim("x"))
    yield _create(
        "another version", SLICES, changed(slice_("x"), {"apiVersion": "resource.k8s.io/v1beta2"})
    )
    rows = {
        "a text for a number": {"spec.pool.generation": "one"},
        "a number for a text": {"spec.driver": 5},
        "a text for a list": {"spec.devices": "gpu"},
        "a list for an object": {"spec.pool": []},
        "a bad quantity": {"spec.devices.0.capacity.memory.value": "much"},
        "a number as quantity": {
            "metadata.name": "number",
            "spec.devices.0.capacity.memory.value": 5,
        },
        "a quantity in another form": {
            "metadata.name": "form",
            "spec.devices.0.capacity.memory.value": "1024Mi",
        },
        "a bad time": {"spec.devices.0.taints": [{"key": "a", "effect": "None", "timeAdded": "x"}]},
        "an unknown field": {"metadata.name": "unknown", "spec.nodes": 3},
    }
    yield from _faults(SLICES, slice_("bad"), rows)
    strict = changed(slice_("strict"), {"spec.nodes": 3, "spec.devices.0.colour": "red"})
    yield _create("unknown fields, strict", f"{SLICES}?fieldValidation=Strict", strict)


def _other_kinds() -> Iterator[Call]:
    one = f"{LEASES}/l"
    yield _create("lease", LEASES, lease())
    yield Call(
        "lease of an old version", "PUT", one, changed(lease(), {"metadata.resourceVersion": "1"})
    )
    renewed = {
        "spec.renewTime": "2026-01-02T03:04:05.000006Z",
        "metadata.resourceVersion": f"{{version:{one}}}",
    }
    yield Call("lease renewed", "PUT", one, changed(lease(), renewed))
    yield Call("lease of another uid", "PATCH", one, {"metadata": {"uid": SHARE}}, MERGE)
    yield Call("lease is gone", "DELETE", one)
    config = {"metadata": {"name": "m", "namespace": "default"}, "data": {"a": "b"}}
    yield _create("config map", CONFIGMAPS, config)
    yield _create("config map twice", CONFIGMAPS, config)
    yield Call("config map patched", "PATCH", f"{CONFIGMAPS}/m", {"data": {"c": "d"}}, MERGE)
    yield Call("config maps deleted", "DELETE", f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dm")
    node = {"metadata": {"name": "node-9"}}
    yield _create("node", "/api/v1/nodes", node)
    yield Call("node is gone", "DELETE", "/api/v1/nodes/node-9")
