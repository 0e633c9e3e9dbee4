"""The stub does what an API server does, as far as nodes and pods can tell."""

import json

import pytest

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Kind, target
from devicemanager.cluster.fake_apiserver.merging import merge, strategic
from devicemanager.cluster.fake_apiserver.objects import Objects
from devicemanager.cluster.fake_apiserver.rights import Right, Rights, rights_of
from devicemanager.cluster.fake_apiserver.selectors import selector
from devicemanager.cluster.fake_apiserver.store import Store
from devicemanager.cluster.fake_apiserver.watching import Watching

PODS = "/api/v1/namespaces/default/pods"


# -- paths -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, found",
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/nodes/a/status", ("nodes", "", "a", "status")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/pods", ("pods", "", "", "")),
        (f"{PODS}/a/status", ("pods", "default", "a", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/n/leases/a", ("leases", "n", "a", "")),
    ],
)
def test_a_path_names(path, found):
    named = target(path)
    assert (named.kind.plural, named.namespace, named.name, named.below) == found


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/api/v2/nodes", "/apis/batch/v1", "/api/v1/x", "/x/y/z"]
)
def test_a_path_that_names_nothing(path):
    assert target(path) is None


# -- merge patches ---------------------------------------------------------------------


def test_a_merge_patch_replaces_lists_and_takes_away_null():
    old = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merge(old, {"a": {"b": None, "c": [2]}, "e": {"f": None}}) == {
        "a": {"c": [2]},
        "d": 1,
        "e": {},
    }
    assert old == {"a": {"b": 1, "c": [1]}, "d": 1}


def test_a_strategic_patch_merges_conditions_by_type():
    old = {"conditions": [{"type": "A", "status": "x", "kept": 1}, {"type": "B"}]}
    new = {"conditions": [{"type": "C"}, {"type": "A", "status": "y"}]}
    assert strategic(old, new)["conditions"] == [
        {"type": "A", "status": "y", "kept": 1},
        {"type": "B"},
        {"type": "C"},
    ]


def test_a_strategic_patch_deletes_and_replaces():
    old = {"conditions": [{"type": "A"}, {"type": "B"}], "addresses": [{"type": "X"}]}
    new = {
        "conditions": [{"$patch": "delete", "type": "A"}],
        "$setElementOrder/conditions": [{"type": "B"}],
        "addresses": [{"type": "Y"}, {"$patch": "replace"}],
    }
    assert strategic(old, new) == {"conditions": [{"type": "B"}], "addresses": [{"type": "Y"}]}


def test_a_strategic_patch_replaces_container_statuses_and_taints():
    old = {"containerStatuses": [{"name": "a"}], "taints": [{"key": "a"}], "x": {"y": 1}}
    new = {"containerStatuses": [{"name": "b"}], "taints": [], "x": {"$patch": "replace", "z": 1}}
    assert strategic(old, new) == {
        "containerStatuses": [{"name": "b"}],
        "taints": [],
        "x": {"z": 1},
    }


def test_finalizers_are_a_set():
    assert strategic({"finalizers": ["a"]}, {"finalizers": ["a", "b"]})["finalizers"] == ["a", "b"]
    gone = strategic({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]})
    assert gone["finalizers"] == ["b"]


# -- selectors -------------------------------------------------------------------------

THING = {"metadata": {"name": "a", "labels": {"k": "v"}}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    "query, chosen",
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
def test_a_selector_chooses(query, chosen):
    assert selector(query)(THING) is chosen


# -- objects ---------------------------------------------------------------------------


@pytest.fixture
def objects():
    return Objects(Store())


def pod(name="a", **spec):
    return {"metadata": {"name": name}, "spec": {"nodeName": "n", **spec}}


def at(name="a", below="", kind="pods"):
    place = KINDS[kind]
    return target(f"{PODS}/{name}/{below}".rstrip("/")) if kind == "pods" else place


COLLECTION = target(PODS)
NODES = target("/api/v1/nodes")


def get(objects, name="a"):
    stored = objects.store.get(KINDS["pods"], "default", name)
    return None if stored is None else stored.value


def rejected(code, call, *args):
    with pytest.raises(Rejection) as caught:
        call(*args)
    assert caught.value.code == code
    return caught.value


def test_what_is_created_has_a_uid_and_a_version(objects):
    value = objects.create(COLLECTION, pod()).value
    assert value["metadata"]["namespace"] == "default"
    assert value["metadata"]["uid"]
    assert value["metadata"]["resourceVersion"]
    assert value["status"]["phase"] == "Pending"
    assert rejected(409, objects.create, COLLECTION, pod()).reason == "AlreadyExists"
    generated = objects.create(COLLECTION, {"metadata": {"generateName": "g-"}}).value
    assert generated["metadata"]["name"].startswith("g-")
    rejected(422, objects.create, COLLECTION, {})


def test_a_generated_name_that_is_taken_is_made_again(objects, monkeypatch):
    texts = iter(["aaaaaa", "aaaaaa", "bbbbbb", *["bbbbbb"] * 8])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(texts))
    given = {"metadata": {"generateName": "g-"}}
    made = [objects.create(COLLECTION, given).value["metadata"]["name"] for _ in range(2)]
    assert made == ["g-aaaaa", "g-bbbbb"]
    with pytest.raises(Rejection) as rejected:
        objects.create(COLLECTION, given)
    assert rejected.value.code == 409 and next(texts, None) is None


def test_even_a_ready_node_is_created_with_the_taint(objects):
    node = objects.create(NODES, {"metadata": {"name": "n"}}).value
    assert node["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


def test_a_status_changes_only_the_status(objects):
    objects.create(COLLECTION, pod())
    objects.change(
        at(below="status"), lambda old: {**old, "spec": {}, "status": {"phase": "Running"}}
    )
    assert get(objects)["spec"]["nodeName"] == "n"
    assert get(objects)["status"] == {"phase": "Running"}
    objects.change(at(), lambda old: {**old, "status": {}})
    assert get(objects)["status"] == {"phase": "Running"}


def test_no_change_makes_no_version(objects):
    before = objects.create(COLLECTION, pod()).version
    assert objects.change(at(below="status"), lambda old: old).version == before


def test_another_uid_or_version_is_a_conflict(objects):
    objects.create(COLLECTION, pod())

    def other(key):
        return lambda old: {**old, "metadata": {**old["metadata"], key: "1"}}

    rejected(409, objects.change, at(below="status"), other("uid"))
    rejected(409, objects.change, at(below="status"), other("resourceVersion"))
    rejected(404, objects.change, at("b"), lambda old: old)


def test_resource_health_is_kept_only_with_the_gate():
    objects = Objects(Store(), keeps_resource_health=False)
    objects.create(COLLECTION, pod())
    status = {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": []}]}
    objects.change(at(below="status"), lambda old: {**old, "status": status})
    assert get(objects)["status"] == {"containerStatuses": [{"name": "c"}]}


def test_a_pod_is_deleted_in_two_steps(objects):
    objects.create(COLLECTION, pod(terminationGracePeriodSeconds=5))
    objects.delete(at(), {})
    assert get(objects)["metadata"]["deletionGracePeriodSeconds"] == 5
    version = objects.store.version
    objects.delete(at(), {})
    assert objects.store.version == version, "nothing new"
    uid = get(objects)["metadata"]["uid"]
    rejected(409, objects.delete, at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}})
    objects.delete(at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    assert get(objects) is None
    rejected(404, objects.delete, at(), {})


@pytest.mark.parametrize("phase, node", [("Succeeded", "n"), ("Failed", "n"), ("Pending", "")])
def test_a_pod_that_no_node_runs_goes_at_once(objects, phase, node):
    objects.create(COLLECTION, {**pod(nodeName=node), "status": {"phase": phase}})
    objects.delete(at(), {})
    assert get(objects) is None


def test_finalizers_keep_a_pod_until_they_are_taken_off(objects):
    value = pod()
    value["metadata"]["finalizers"] = ["f"]
    objects.create(COLLECTION, value)
    objects.delete(at(), {"gracePeriodSeconds": 0})
    assert get(objects)["metadata"]["deletionGracePeriodSeconds"] == 0

    def released(old):
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    objects.change(at(), released)
    assert get(objects) is None


def test_a_binding_is_made_once(objects):
    objects.create(COLLECTION, pod(nodeName=""))
    binding = {"target": {"name": "n"}}
    objects.bind(at(below="binding"), binding)
    assert get(objects)["spec"]["nodeName"] == "n"
    assert get(objects)["status"]["conditions"][0]["type"] == "PodScheduled"
    rejected(409, objects.bind, at(below="binding"), binding)


# -- watch -----------------------------------------------------------------------------


def events(objects, since, query, *, seconds=0.05, bookmarks=60.0):
    watching = Watching(objects.store, COLLECTION, selector(query), since, seconds)
    return [json.loads(line) for line in watching.lines(bookmarks, lambda: False)]


def kinds(found):
    return [event["type"] for event in found]


def test_events_in_their_order(objects):
    since = objects.store.version
    objects.create(COLLECTION, pod())
    objects.create(NODES, {"metadata": {"name": "n"}})
    objects.change(at(below="status"), lambda old: {**old, "status": {}})
    objects.delete(at(), {"gracePeriodSeconds": 0})
    found = events(objects, since, {})
    assert kinds(found) == ["ADDED", "MODIFIED", "DELETED"]
    assert found[-1]["object"]["metadata"]["resourceVersion"] == str(objects.store.version)


def test_a_pod_that_is_bound_is_new_to_who_watches_bound_ones(objects):
    objects.create(COLLECTION, pod(nodeName=""))
    since = objects.store.version
    objects.bind(at(below="binding"), {"target": {"name": "n"}})
    assert kinds(events(objects, since, {"fieldSelector": "spec.nodeName!="})) == ["ADDED"]
    assert kinds(events(objects, since, {"fieldSelector": "spec.nodeName="})) == ["DELETED"]


def test_without_a_version_all_there_is_comes_first(objects):
    objects.create(COLLECTION, pod())
    assert kinds(events(objects, 0, {})) == ["ADDED"]


def test_bookmarks_come_in_between(objects):
    found = events(objects, objects.store.version, {}, bookmarks=0.01)
    assert kinds(found)[0] == "BOOKMARK"
    assert found[0]["object"]["metadata"]["resourceVersion"] == str(objects.store.version)


def test_a_version_that_is_forgotten_is_too_old(objects):
    since = objects.store.version
    objects.create(COLLECTION, pod())
    objects.store.forget()
    (error,) = events(objects, since, {})
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


# -- rights ----------------------------------------------------------------------------


def test_rights_are_noted_and_held():
    allowed = rights_of(
        [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]}]
    )
    rights = Rights(allowed)
    rights.check("u", "get", at(below="status"))
    error = rejected(403, rights.check, "u", "delete", at())
    assert error.message == (
        'pods is forbidden: User "u" cannot delete resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert rights.used == {Right("", "pods/status", "get"), Right("", "pods", "delete")}
    assert rights.review({"resourceAttributes": {"resource": "pods", "verb": "get"}})
    assert not rights.review({"resourceAttributes": {"resource": "nodes", "verb": "get"}})
    rights.forget()
    assert not rights.used


def test_kinds_have_the_names_that_objects_have():
    assert KINDS["jobs"].api_version == "batch/v1"
    assert KINDS["nodes"].api_version == "v1"
    assert all(isinstance(kind, Kind) for kind in KINDS.values())
