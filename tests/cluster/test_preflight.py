"""Checks before joining: each problem is a one-line error, and nothing is changed."""

import pytest

from devicemanager.apiserver import FakeApiServer, Permission
from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.client.errors import ClusterError
from devicemanager.cluster.preflight import (
    RequiredPermission,
    check,
    dra_permissions,
    required_permissions,
)
from tests.cluster.objects import granted

LABEL = ("x/virtual", "true")


def run_check(api, *names, required=()):
    return check(api, names, LABEL, required)


def node(apiserver, name, labels=None, **spec):
    apiserver.create("nodes", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def test_check_finds_version_and_existing_nodes(api, apiserver):
    node(apiserver, "theirs")
    node(apiserver, "ours", dict([LABEL]))
    found = run_check(api, "ours", "new", required=required_permissions(as_nodes=True))
    assert found.version == "v1.37.0+fake"
    assert found.existing == {"ours"}
    assert not found.cloud
    assert {verb for verb, _ in apiserver.requests} == {"create", "list"}


def test_check_rejects_foreign_nodes(api, apiserver):
    for number in range(5):
        node(apiserver, f"n-{number}")
    with pytest.raises(ClusterError) as caught:
        run_check(api, *(f"n-{number}" for number in range(4)))
    assert str(caught.value) == (
        "these names belong to Nodes that devicemanager did not create "
        "(no label x/virtual=true): "
        "n-0, n-1, n-2 and 1 more: use other names"
    )


def test_error_lists_up_to_three_names(api, apiserver):
    for number in range(3):
        node(apiserver, f"n-{number}", {"x/virtual": "false"})
    with pytest.raises(ClusterError, match=r": n-0, n-1, n-2: use other names$"):
        run_check(api, "n-0", "n-1", "n-2", "n-3")


def test_each_permission_is_one_access_review(api, apiserver):
    reviews = []

    class Api:
        def attempt(self, method, path, body=None, *, query=None):
            if body is not None:
                reviews.append((method, path, body))
            return {"status": {"allowed": True}}

    required = [
        RequiredPermission("patch", "pods/status"),
        RequiredPermission("get", "leases", "coordination.k8s.io", "x"),
    ]
    assert check(Api(), ["n"], LABEL, required).version == ""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    status = {"verb": "patch", "group": "", "resource": "pods", "subresource": "status"}
    lease = {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "x"}
    assert reviews == [
        ("POST", path, {**review, "spec": {"resourceAttributes": each}}) for each in (status, lease)
    ]


def test_first_node_of_a_cloud_is_named(api, apiserver):
    for name in ("b", "a"):
        node(apiserver, name, providerID=f"aws:///{name}")
    assert run_check(api, "m").cloud == "node a has providerID aws:///a"


def test_nodes_are_read_in_pages(api, apiserver, monkeypatch):
    monkeypatch.setattr("devicemanager.client.reflector._PAGE_SIZE", 2)
    for number in range(5):
        node(apiserver, f"n-{number}")
    with pytest.raises(ClusterError, match="n-4"):
        run_check(api, "n-4")


@pytest.mark.parametrize(
    ("provider", "cloud"),
    [("aws:///x", "node n has providerID aws:///x"), ("kind://x", ""), ("", "")],
)
def test_cloud_controller_is_detected(api, apiserver, provider, cloud):
    node(apiserver, "n", providerID=provider)
    assert run_check(api, "m").cloud == cloud


def test_error_lists_all_missing_permissions(api, apiserver):
    missing = Permission("", "pods/status", "patch")
    apiserver.permissions.allowed = granted(required_permissions()) - {missing}
    with pytest.raises(ClusterError) as caught:
        run_check(api, "n", required=required_permissions(as_nodes=True))
    assert str(caught.value) == (
        "missing permissions: patch pods/status, impersonate users, impersonate groups: "
        "use the role in deploy/join.yaml, which has these permissions"
    )


LEASES = {f"{verb} leases in kube-node-lease" for verb in ("get", "create", "update")}
NODES = {
    *(f"{verb} nodes" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    "patch nodes/status",
    *(f"{verb} pods" for verb in ("list", "watch", "delete")),
    "patch pods/status",
    *LEASES,
}
EVENTS = {"create events", "patch events"}
IMPERSONATE = {"impersonate users", "impersonate groups"}


@pytest.mark.parametrize(
    ("options", "permissions"),
    [
        ({}, NODES | EVENTS),
        ({"events": False}, NODES),
        ({"as_nodes": True}, NODES | EVENTS | IMPERSONATE),
        ({"as_nodes": "strict"}, {"list nodes", "delete nodes"} | IMPERSONATE),
    ],
)
def test_permissions_to_join(options, permissions):
    found = list(required_permissions(**options))
    assert set(map(str, found)) == permissions and len(found) == len(permissions)
    groups = {each.group for each in found if each.resource == "leases"}
    assert groups <= {"coordination.k8s.io"}
    assert {each.group for each in found if each.resource != "leases"} == {""}


SLICES = {
    "create resourceslices",
    "update resourceslices",
    "deletecollection resourceslices",
    "get resourceclaims",
}
STATUS = {"patch resourceclaims/status"}


@pytest.mark.parametrize(
    ("options", "permissions"),
    [
        ({}, SLICES),
        ({"device_status": True}, SLICES | STATUS),
        ({"as_nodes": True}, set()),
        ({"as_nodes": "strict", "device_status": True}, STATUS),
    ],
)
def test_permissions_of_nodes_with_drivers(options, permissions):
    found = list(dra_permissions(**options))
    assert set(map(str, found)) == permissions and len(found) == len(permissions)
    assert all(each.group == "resource.k8s.io" and not each.namespace for each in found)


@pytest.mark.parametrize("provider", ["kind://", "k3s://", "k3d://", "minikube://", "docker://"])
def test_local_clusters_have_no_cloud_controller(provider):
    def node(name, provider):
        metadata = {"name": name, "uid": name, "resourceVersion": "1"}
        return {"metadata": metadata, "spec": {"providerID": provider}}

    nodes = [node("n", f"{provider}x/n")]

    class Api:
        def attempt(self, method, path, body=None, *, query=None):
            return {"gitVersion": "v1", "items": nodes}

    assert check(Api(), ["m"], LABEL, []).cloud == ""
    nodes.append(node("x", f"a{provider}"))
    assert check(Api(), ["m"], LABEL, []).cloud == f"node x has providerID a{provider}"


def test_permission_in_a_namespace_names_it():
    assert (
        str(RequiredPermission("get", "leases", namespace="kube-node-lease"))
        == "get leases in kube-node-lease"
    )


def test_rejected_credentials_are_a_one_line_error(connect, tmp_path):
    with FakeApiServer(token="t") as apiserver:
        path = apiserver.kubeconfig(tmp_path / "other")
        path.write_text(path.read_text().replace('"t"', '"expired"'))
        api = ApiClient(load(path))
        with pytest.raises(ClusterError) as caught:
            run_check(api, "n", required=required_permissions())
        text = str(caught.value)
        assert text.startswith("the API server rejects the credentials (")
        assert text.endswith("): they have expired or belong to another cluster")
        api.close()


def test_unusable_and_unreachable_servers_are_errors(api, apiserver):
    apiserver.faults.fail(418)
    with pytest.raises(ClusterError, match=r"^nodes cannot join through the API server \S+: "):
        run_check(api, "n", required=required_permissions())
    apiserver.stop()
    with pytest.raises(ClusterError, match=r"^the API server at http://127.* is unavailable: "):
        run_check(api, "n")


@pytest.mark.parametrize(
    ("reviews", "nodes", "text"),
    [
        ({"status": "yes"}, {}, "response without status"),
        ({}, {}, "response without status"),
        (
            {"status": {"allowed": True}},
            {"items": "abc"},
            "response is not a list: 'items' is not a list",
        ),
        ({"status": {"allowed": True}}, {"metadata": 5}, "response is not a list: metadata is not"),
    ],
)
def test_malformed_response_is_an_error(reviews, nodes, text):
    class Api:
        url = "http://odd"

        def attempt(self, method, path, body=None, *, query=None):
            return reviews if body is not None else nodes

    with pytest.raises(ClusterError, match=text):
        check(Api(), ["n"], LABEL, [RequiredPermission("list", "nodes")])


@pytest.mark.parametrize("odd", [None, {}, {"metadata": {"name": 5}}])
def test_malformed_node_is_ignored(odd):
    class Api:
        def attempt(self, method, path, body=None, *, query=None):
            return {"items": [odd]}

    assert check(Api(), ["n"], LABEL, []).existing == frozenset()
