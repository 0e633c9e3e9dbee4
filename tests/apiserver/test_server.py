"""The fake API server over HTTP: verbs, patches, pages, faults, stop and start."""

import pytest
import urllib3

from devicemanager.apiserver import store
from devicemanager.apiserver.kinds import Kinds
from devicemanager.client.api import node_path
from devicemanager.client.errors import ApiError, Conflict, NotFound, Unavailable

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": []}}


@pytest.mark.parametrize("path", ["/healthz", "/livez?verbose", "/readyz", "/version?timeout=5s"])
def test_plain_paths_need_no_permission(apiserver, path):
    with urllib3.PoolManager() as pool:
        assert pool.request("GET", f"{apiserver.url}{path}").status == 200


def test_list_has_pages(api):
    for name in "cab":
        api.request("POST", PODS, pod(name))
    first = api.request("GET", PODS, query={"limit": "2"})
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    rest = {"limit": "2", "continue": first["metadata"]["continue"]}
    last = api.request("GET", PODS, query=rest)
    assert [each["metadata"]["name"] for each in last["items"]] == ["c"]
    assert "continue" not in last["metadata"]


def test_patch_requires_a_patch_content_type(api):
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": "n", "labels": {"a": "1"}}})
    patch = {"metadata": {"labels": {"a": None, "b": "2"}}}
    node = api.request("PATCH", node_path("n"), patch, patch="merge")
    assert node["metadata"]["labels"] == {"b": "2"}
    with pytest.raises(ApiError) as caught:
        api.request("PATCH", node_path("n"), {})
    assert caught.value.code == 415


def test_bind_and_evict(api):
    api.request("POST", PODS, pod("a"))
    api.request("POST", f"{PODS}/a/binding", {"target": {"name": "n"}})
    api.request("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
    assert "deletionTimestamp" in api.request("GET", f"{PODS}/a")["metadata"]


def test_access_review_reports_permissions(api, apiserver):
    review = {"spec": {"resourceAttributes": {"resource": "nodes", "verb": "create"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert api.request("POST", path, review)["status"] == {"allowed": True}
    apiserver.permissions.allowed = frozenset()
    assert api.request("POST", path, review)["status"] == {"allowed": False}


def test_unknown_paths_and_methods_are_errors(api):
    with pytest.raises(NotFound):
        api.request("GET", "/api/v1/widgets")
    for method in ("POST", "DELETE"):
        with pytest.raises(ApiError) as caught:
            api.request(method, "/api/v1/pods")
        assert caught.value.code == 405


def test_second_writer_causes_a_conflict(api, apiserver):
    lease = api.request("POST", LEASES, {"metadata": {"name": "n"}, "spec": {}})
    apiserver.faults.second_writer = lambda request: request.resource == "leases"
    with pytest.raises(Conflict):
        api.request("PUT", f"{LEASES}/n", lease)
    assert apiserver.requests["update", "leases"] == 1


def test_failure_has_a_probability(api, apiserver):
    apiserver.faults.fail(500, lambda request: request.verb == "list", probability=0.5)
    failures = 0
    for _ in range(40):
        try:
            api.attempt("GET", PODS)
        except Unavailable:
            failures += 1
    assert 5 < failures < 35
    apiserver.faults.clear()
    api.attempt("GET", PODS)


def test_slow_and_silent_server(connect, apiserver):
    apiserver.faults.slow = 0.05
    connect().attempt("GET", PODS)
    apiserver.faults.silent = True
    with pytest.raises(Unavailable):
        connect(timeout=0.1).attempt("GET", PODS)


def test_objects_survive_stop_but_not_wipe(api, apiserver):
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    url, version = apiserver.url, apiserver.version
    apiserver.stop()
    apiserver.start()
    assert apiserver.url == url
    assert api.request("GET", node_path("n"))
    apiserver.wipe()
    assert apiserver.version < version
    with pytest.raises(NotFound):
        api.request("GET", node_path("n"))


def test_changes_of_large_objects_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(store, "MAX_CHANGED_BYTES", 5000)
    kept = store.Store()
    kind = Kinds(()).named("pods")
    for _ in range(10):
        metadata = {"namespace": "default", "name": "p", "annotations": {"a": "x" * 2000}}
        kept.put(kind, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    assert [each.version for each in kept.after(0, 0, lambda: True)] == [10, 11]
    assert kept.oldest == 9
    monkeypatch.setattr(store, "MAX_CHANGED_BYTES", 1)
    kept.remove(kind, "default", "p")
    assert [each.version for each in kept.after(0, 0, lambda: True)] == [12]  # for running watches
    kept.forget()
    assert (kept.oldest, kept._changed_bytes) == (12, 0)
