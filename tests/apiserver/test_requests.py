"""Rules of the fake API server for objects, patches, selectors, watches and permissions."""

import json

import pytest

from devicemanager.apiserver.authorization import (
    Permission,
    Permissions,
    forbidden,
    node_may,
    node_of,
    permission_for,
    permissions_of,
)
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.kinds import KINDS, Kind, target
from devicemanager.apiserver.patches import merge, strategic_merge
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.selectors import selector
from devicemanager.apiserver.store import Store
from devicemanager.apiserver.watch import Watch

PODS = "/api/v1/namespaces/default/pods"


# -- paths -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/nodes/a/status", ("nodes", "", "a", "status")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/pods", ("pods", "", "", "")),
        (f"{PODS}/a/status", ("pods", "default", "a", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/n/leases/a", ("leases", "n", "a", "")),
    ],
)
def test_path_names_a_target(path, found):
    named = target(path)
    assert (named.kind.plural, named.namespace, named.name, named.subresource) == found


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/api/v2/nodes", "/apis/batch/v1", "/api/v1/x", "/x/y/z"]
)
def test_unknown_path_has_no_target(path):
    assert target(path) is None


# -- merge patches ---------------------------------------------------------------------


def test_merge_patch_replaces_lists_and_removes_null():
    old = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merge(old, {"a": {"b": None, "c": [2]}, "e": {"f": None}}) == {
        "a": {"c": [2]},
        "d": 1,
        "e": {},
    }
    assert old == {"a": {"b": 1, "c": [1]}, "d": 1}


def test_strategic_merge_merges_conditions_by_type():
    old = {"conditions": [{"type": "A", "status": "x", "extra": 1}, {"type": "B"}]}
    new = {"conditions": [{"type": "C"}, {"type": "A", "status": "y"}]}
    assert strategic_merge(old, new)["conditions"] == [
        {"type": "A", "status": "y", "extra": 1},
        {"type": "B"},
        {"type": "C"},
    ]


def test_strategic_merge_deletes_and_replaces():
    old = {"conditions": [{"type": "A"}, {"type": "B"}], "addresses": [{"type": "X"}]}
    new = {
        "conditions": [{"$patch": "delete", "type": "A"}],
        "$setElementOrder/conditions": [{"type": "B"}],
        "addresses": [{"type": "Y"}, {"$patch": "replace"}],
    }
    assert strategic_merge(old, new) == {
        "conditions": [{"type": "B"}],
        "addresses": [{"type": "Y"}],
    }


def test_strategic_merge_replaces_container_statuses_and_taints():
    old = {"containerStatuses": [{"name": "a"}], "taints": [{"key": "a"}], "x": {"y": 1}}
    new = {"containerStatuses": [{"name": "b"}], "taints": [], "x": {"$patch": "replace", "z": 1}}
    assert strategic_merge(old, new) == {
        "containerStatuses": [{"name": "b"}],
        "taints": [],
        "x": {"z": 1},
    }


def test_strategic_merge_treats_finalizers_as_a_set():
    assert strategic_merge({"finalizers": ["a"]}, {"finalizers": ["a", "b"]})["finalizers"] == [
        "a",
        "b",
    ]
    rest = strategic_merge(
        {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}
    )
    assert rest["finalizers"] == ["b"]


# -- selectors -------------------------------------------------------------------------

THING = {"metadata": {"name": "a", "labels": {"k": "v"}}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ({}, True),
        ({"fieldSelector": "spec.nodeName=n"}, True),
        ({"fieldSelector": "spec.nodeName!="}, True),
        ({"fieldSelector": "spec.nodeName!=,metadata.name==b"}, False),
        ({"fieldSelector": "status.phase="}, True),
        ({"labelSelector": "k=v"}, True),
        ({"labelSelector": "k!=v"}, False),
        ({"labelSelector": "k"}, True),
        ({"labelSelector": "!k"}, False),
        ({"labelSelector": "k in (a, v),k notin (b)"}, True),
        ({"labelSelector": "x in (a)"}, False),
    ],
)
def test_selector_matches(query, chosen):
    assert selector(query)(THING) is chosen


# -- objects ---------------------------------------------------------------------------


@pytest.fixture
def registry():
    registry = Registry(Store())
    registry.create_namespaces()
    return registry


def pod(name="a", **spec):
    return {"metadata": {"name": name}, "spec": {"nodeName": "n", **spec}}


def at(name="a", below=""):
    return target(f"{PODS}/{name}/{below}".rstrip("/"))


COLLECTION = target(PODS)
NODES = target("/api/v1/nodes")


def get(registry, name="a"):
    stored = registry.store.get(KINDS["pods"], "default", name)
    return None if stored is None else stored.value


def fails(code, call, *args):
    with pytest.raises(StatusError) as caught:
        call(*args)
    assert caught.value.code == code
    return caught.value


def test_create_sets_uid_and_version(registry):
    value = registry.create(COLLECTION, pod()).value
    assert value["metadata"]["namespace"] == "default"
    assert value["metadata"]["uid"]
    assert value["metadata"]["resourceVersion"]
    assert value["status"]["phase"] == "Pending"
    assert fails(409, registry.create, COLLECTION, pod()).reason == "AlreadyExists"
    generated = registry.create(COLLECTION, {"metadata": {"generateName": "g-"}}).value
    assert generated["metadata"]["name"].startswith("g-")
    fails(422, registry.create, COLLECTION, {})


def test_generated_name_in_use_is_generated_again(registry, monkeypatch):
    letters = iter("b" * 10 + "c" * 45)
    monkeypatch.setattr("secrets.choice", lambda _: next(letters))
    given = {"metadata": {"generateName": "g-"}}
    made = [registry.create(COLLECTION, given).value["metadata"]["name"] for _ in range(2)]
    assert made == ["g-bbbbb", "g-ccccc"]
    with pytest.raises(StatusError) as caught:
        registry.create(COLLECTION, given)
    assert caught.value.code == 409 and next(letters, None) is None


def test_node_is_created_with_the_not_ready_taint(registry):
    node = registry.create(NODES, {"metadata": {"name": "n"}}).value
    assert node["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


def test_status_subresource_changes_only_the_status(registry):
    registry.create(COLLECTION, pod())
    registry.change(
        at(below="status"), lambda old: {**old, "spec": {}, "status": {"phase": "Running"}}
    )
    assert get(registry)["spec"]["nodeName"] == "n"
    assert get(registry)["status"] == {"phase": "Running"}
    registry.change(at(), lambda old: {**old, "status": {}})
    assert get(registry)["status"] == {"phase": "Running"}


def test_change_without_effect_creates_no_version(registry):
    before = registry.create(COLLECTION, pod()).version
    assert registry.change(at(below="status"), lambda old: old).version == before


def test_other_uid_or_version_is_a_conflict(registry):
    registry.create(COLLECTION, pod())

    def other(key):
        return lambda old: {**old, "metadata": {**old["metadata"], key: "1"}}

    fails(422, registry.change, at(below="status"), other("uid"))
    fails(409, registry.replace, at(), {"metadata": {"uid": "1"}})
    fails(409, registry.change, at(below="status"), other("resourceVersion"))
    fails(404, registry.change, at("b"), lambda old: old)


def test_resource_health_is_stored_only_with_the_gate():
    registry = Registry(Store(), stores_resource_health=False)
    registry.create_namespaces()
    registry.create(COLLECTION, pod())
    status = {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": []}]}
    registry.change(at(below="status"), lambda old: {**old, "status": status})
    assert get(registry)["status"] == {"containerStatuses": [{"name": "c"}]}


def test_bound_pod_is_deleted_in_two_steps(registry):
    registry.create(COLLECTION, pod(terminationGracePeriodSeconds=5))
    registry.delete(at(), {})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 5
    version = registry.store.version
    registry.delete(at(), {})
    assert registry.store.version == version, "no change"
    uid = get(registry)["metadata"]["uid"]
    fails(409, registry.delete, at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}})
    registry.delete(at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    assert get(registry) is None
    fails(404, registry.delete, at(), {})


@pytest.mark.parametrize(("phase", "node"), [("Succeeded", "n"), ("Failed", "n"), ("Pending", "")])
def test_pod_that_does_not_run_is_deleted_at_once(registry, phase, node):
    registry.create(COLLECTION, {**pod(nodeName=node), "status": {"phase": phase}})
    registry.delete(at(), {})
    assert get(registry) is None


def test_finalizer_keeps_a_pod_until_it_is_removed(registry):
    value = pod()
    value["metadata"]["finalizers"] = ["f"]
    registry.create(COLLECTION, value)
    registry.delete(at(), {"gracePeriodSeconds": 0})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 0

    def released(old):
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    registry.change(at(), released)
    assert get(registry) is None


def test_pod_is_bound_once(registry):
    registry.create(COLLECTION, pod(nodeName=""))
    binding = {"target": {"name": "n"}}
    registry.bind(at(below="binding"), binding)
    assert get(registry)["spec"]["nodeName"] == "n"
    assert get(registry)["status"]["conditions"][0]["type"] == "PodScheduled"
    fails(409, registry.bind, at(below="binding"), binding)


# -- watch -----------------------------------------------------------------------------


def events(registry, since, query, *, seconds=0.05, bookmarks=60.0):
    watch = Watch(registry.store, COLLECTION, selector(query), since, seconds)
    return [json.loads(line) for line in watch.lines(bookmarks, lambda: False)]


def kinds(found):
    return [event["type"] for event in found]


def test_watch_yields_events_in_order(registry):
    since = registry.store.version
    registry.create(COLLECTION, pod())
    registry.create(NODES, {"metadata": {"name": "n"}})
    registry.change(at(below="status"), lambda old: {**old, "status": {}})
    registry.delete(at(), {"gracePeriodSeconds": 0})
    found = events(registry, since, {})
    assert kinds(found) == ["ADDED", "MODIFIED", "DELETED"]
    assert found[-1]["object"]["metadata"]["resourceVersion"] == str(registry.store.version)


def test_a_pod_that_is_bound_is_new_to_who_watches_bound_ones(registry):
    registry.create(COLLECTION, pod(nodeName=""))
    since = registry.store.version
    registry.bind(at(below="binding"), {"target": {"name": "n"}})
    assert kinds(events(registry, since, {"fieldSelector": "spec.nodeName!="})) == ["ADDED"]
    assert kinds(events(registry, since, {"fieldSelector": "spec.nodeName="})) == ["DELETED"]


def test_watch_without_a_version_starts_with_all_objects(registry):
    registry.create(COLLECTION, pod())
    assert kinds(events(registry, 0, {})) == ["ADDED"]


def test_watch_yields_bookmarks(registry):
    found = events(registry, registry.store.version, {}, bookmarks=0.01)
    assert kinds(found)[0] == "BOOKMARK"
    assert found[0]["object"]["metadata"]["resourceVersion"] == str(registry.store.version)


def test_watch_from_a_forgotten_version_expires(registry):
    since = registry.store.version
    registry.create(COLLECTION, pod())
    registry.store.forget()
    (error,) = events(registry, since, {})
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


# -- permissions ----------------------------------------------------------------------------


def test_permissions_are_recorded_and_enforced():
    permissions = Permissions(
        permissions_of(
            [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]}]
        )
    )
    assert permissions.use(permission_for("get", at(below="status")))
    assert not permissions.use(permission_for("delete", at()))
    assert permissions.used == {
        Permission("", "pods/status", "get"),
        Permission("", "pods", "delete"),
    }
    assert permissions.review({"resourceAttributes": {"resource": "pods", "verb": "get"}})
    assert not permissions.review({"resourceAttributes": {"resource": "nodes", "verb": "get"}})
    permissions.forget()
    assert not permissions.used
    error = forbidden("u", "delete", at())
    assert (error.code, error.message) == (
        403,
        'pods is forbidden: User "u" cannot delete resource "pods" in API group "" '
        'in the namespace "default"',
    )


def test_permissions_are_those_of_all_rules():
    assert permissions_of(
        [
            {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        ]
    ) == {
        Permission("", "pods", "get"),
        Permission("", "pods", "list"),
        Permission("apps", "pods", "get"),
        Permission("apps", "pods", "list"),
        Permission("", "nodes", "get"),
    }


def test_permission_has_the_group_and_the_subresource():
    claim = target("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status")
    assert permission_for("patch", claim) == Permission(
        "resource.k8s.io", "resourceclaims/status", "patch"
    )
    error = forbidden("u", "get", target("/apis/resource.k8s.io/v1/deviceclasses/d"))
    assert error.message == (
        'deviceclasses is forbidden: User "u" cannot get resource "deviceclasses" '
        'in API group "resource.k8s.io" at the cluster scope'
    )


def test_review_names_group_subresource_and_verb():
    permissions = Permissions([Permission("g", "pods/status", "get"), Permission("", "pods", "")])
    of = {"group": "g", "resource": "pods", "subresource": "status", "verb": "get"}
    assert permissions.review({"resourceAttributes": of})
    for name in of:
        assert not permissions.review({"resourceAttributes": {**of, name: ""}}), name
    assert permissions.review({"resourceAttributes": {"resource": "pods"}})
    assert permissions.review({"nonResourceAttributes": {}})
    assert not permissions.review({})
    assert permissions.used == set(), "a review needs no permission"
    assert Permissions().allows(Permission("g", "any", "any"))
    assert not Permissions([]).use(Permission("g", "any", "any"))


def test_user_of_a_node_has_a_prefix():
    assert node_of("system:node:a") == "a"
    assert node_of("system:node:") == ""
    assert node_of("a") is None and node_of(None) is None


VERBS = ("create", "get", "list", "watch", "update", "patch", "delete", "deletecollection")
NODE_RULES = {
    "/api/v1/nodes": "create get list watch update patch",
    "/api/v1/nodes/n/status": "update patch",
    PODS: "create get list watch delete",
    f"{PODS}/p/status": "update patch",
    f"{PODS}/p/eviction": "create",
    f"{PODS}/p/binding": "",
    f"{PODS}/p/resize": "",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": "get",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status": "",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates": "",
    "/apis/resource.k8s.io/v1/resourceslices": " ".join(VERBS),
    "/apis/resource.k8s.io/v1/deviceclasses": "",
    "/api/v1/namespaces/default/events": "create update patch",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": (
        "create get update patch delete"
    ),
    "/apis/batch/v1/namespaces/default/jobs": "",
}


@pytest.mark.parametrize("path", NODE_RULES)
def test_node_may_use_the_verbs_of_its_role(path):
    """Those of the role ``system:node`` and of the Node authorizer (v1.32)."""
    query = {"fieldSelector": "metadata.name=n,spec.nodeName=n"}
    allowed = [verb for verb in VERBS if node_may("n", verb, target(path), query)]
    assert sorted(allowed) == sorted(NODE_RULES[path].split())


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/nodes", "metadata.name"),
        (PODS, "spec.nodeName"),
        ("/apis/resource.k8s.io/v1/resourceslices", "spec.nodeName"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_node_must_select_its_own_objects(path, field, verb):
    def may(query):
        return node_may("n", verb, target(path), query)

    assert may({"fieldSelector": f"{field}=n"})
    assert may({"fieldSelector": f"a=b,{field}=n"})
    others = {"metadata.name": "spec.nodeName", "spec.nodeName": "metadata.name"}
    for selector_ in ("", None, f"{field}=m", f"{field}=nn", f"{others[field]}=n"):
        assert not may({"fieldSelector": selector_})
    assert not may({"labelSelector": f"{field}=n"})


def test_node_deletes_only_its_own_collection():
    slices = target("/apis/resource.k8s.io/v1/resourceslices")
    assert not node_may("n", "deletecollection", slices, {})
    assert node_may("n", "deletecollection", slices, {"fieldSelector": "spec.nodeName=n"})


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/nodes/n", True),
        ("/api/v1/nodes/m", False),
        ("/api/v1/nodes", True),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", True),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/m", False),
        (f"{PODS}/m", True),
    ],
)
def test_node_has_its_own_node_and_lease_only(path, allowed):
    assert node_may("n", "get", target(path), {}) is allowed


def test_kinds_have_api_versions():
    assert KINDS["jobs"].api_version == "batch/v1"
    assert KINDS["nodes"].api_version == "v1"
    assert all(isinstance(kind, Kind) for kind in KINDS.values())
