"""What keeps us from joining: one line, and nothing touched."""

import pytest

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.cluster.fake_apiserver import FakeApiServer
from devicemanager.cluster.fake_apiserver.rights import Right
from devicemanager.cluster.preflight import Need, check, needs

LABEL = ("x/virtual", "true")


def look(api, *names, wanted=()):
    return check(api, names, LABEL, wanted)


def node(stub, name, labels=None, **spec):
    stub.create("nodes", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def test_nothing_in_the_way(api, stub):
    node(stub, "theirs")
    node(stub, "ours", dict([LABEL]))
    found = look(api, "ours", "new", wanted=needs(as_nodes=True))
    assert found.version == "v1.32.0+stub"
    assert found.existing == {"ours"}
    assert not found.cloud
    assert {verb for verb, _ in stub.requests} == {"create", "list"}


def test_a_name_that_is_somebody_elses(api, stub):
    for number in range(5):
        node(stub, f"n-{number}")
    with pytest.raises(ClusterError) as caught:
        look(api, *(f"n-{number}" for number in range(4)))
    assert str(caught.value) == (
        "4 of the names are nodes that are not ours (no label x/virtual=true): "
        "n-0, n-1, n-2, …: choose another name"
    )


def test_three_names_are_told(api, stub):
    for number in range(3):
        node(stub, f"n-{number}", {"x/virtual": "false"})
    with pytest.raises(ClusterError, match=r": n-0, n-1, n-2: choose another name$"):
        look(api, "n-0", "n-1", "n-2", "n-3")


def test_what_each_right_is_asked_as(api, stub):
    asked = []

    class Asking:
        def attempt(self, method, path, body=None, *, query=None):
            if body is not None:
                asked.append((method, path, body))
            return {"status": {"allowed": True}}

    wanted = [Need("patch", "pods/status"), Need("get", "leases", "coordination.k8s.io", "x")]
    assert check(Asking(), ["n"], LABEL, wanted).version == ""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    status = {"verb": "patch", "group": "", "resource": "pods", "subresource": "status"}
    lease = {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "x"}
    assert asked == [
        ("POST", path, {**review, "spec": {"resourceAttributes": each}}) for each in (status, lease)
    ]


def test_the_first_of_a_clouds_nodes_is_named(api, stub):
    for name in ("b", "a"):
        node(stub, name, providerID=f"aws:///{name}")
    assert look(api, "m").cloud == "node a has providerID aws:///a"


def test_many_nodes_are_looked_at_by_pages(api, stub, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.client.listing._PAGE", 2)
    for number in range(5):
        node(stub, f"n-{number}")
    with pytest.raises(ClusterError, match="n-4"):
        look(api, "n-4")


@pytest.mark.parametrize(
    "provider, cloud", [("aws:///x", "node n has providerID aws:///x"), ("kind://x", ""), ("", "")]
)
def test_a_cloud_controller_is_noticed(api, stub, provider, cloud):
    node(stub, "n", providerID=provider)
    assert look(api, "m").cloud == cloud


def test_missing_rights_are_named_all_at_once(api, stub):
    allowed = {Right(need.group, need.resource, need.verb) for need in needs()}
    stub.rights.allowed = frozenset(allowed - {Right("", "pods/status", "patch")})
    with pytest.raises(ClusterError) as caught:
        look(api, "n", wanted=needs(as_nodes=True))
    assert str(caught.value) == (
        "rights are missing: patch pods/status, impersonate users, impersonate groups: "
        "deploy/join.yaml has a role with all"
    )


def test_a_right_in_one_namespace_says_so():
    assert (
        str(Need("get", "leases", namespace="kube-node-lease")) == "get leases in kube-node-lease"
    )


def test_credentials_that_are_not_accepted(connect, tmp_path):
    with FakeApiServer(token="t") as stub:
        path = stub.kubeconfig(tmp_path / "other")
        path.write_text(path.read_text().replace('"t"', '"expired"'))
        from devicemanager.cluster.client.api import ApiClient
        from devicemanager.cluster.client.credentials import load

        api = ApiClient(load(path))
        with pytest.raises(ClusterError) as caught:
            look(api, "n", wanted=needs())
        text = str(caught.value)
        assert text.startswith("the API server does not accept the credentials (")
        assert text.endswith("): they have expired, or are another cluster's")
        api.close()


def test_nobody_there_and_somebody_else_there(api, stub):
    stub.faults.fail(418)
    with pytest.raises(ClusterError, match="no API server that can be joined"):
        look(api, "n", wanted=needs())
    stub.stop()
    with pytest.raises(ClusterError, match="cannot be reached at http://127"):
        look(api, "n")


@pytest.mark.parametrize(
    ("reviews", "nodes", "text"),
    [
        ({"status": "yes"}, {}, "the answer has no status"),
        ({}, {}, "the answer has no status"),
        (
            {"status": {"allowed": True}},
            {"items": "abc"},
            "the answer is no list: items is no list",
        ),
        ({"status": {"allowed": True}}, {"metadata": 5}, "the answer is no list: metadata is no"),
    ],
)
def test_an_answer_of_a_wrong_form(reviews, nodes, text):
    class Odd:
        url = "http://odd"

        def attempt(self, method, path, body=None, *, query=None):
            return reviews if body is not None else nodes

    with pytest.raises(ClusterError, match=text):
        check(Odd(), ["n"], LABEL, [Need("list", "nodes")])


@pytest.mark.parametrize("odd", [None, {}, {"metadata": {"name": 5}}])
def test_a_node_of_a_wrong_form_is_nobodys(odd):
    class Odd:
        def attempt(self, method, path, body=None, *, query=None):
            return {"items": [odd]}

    assert check(Odd(), ["n"], LABEL, []).existing == frozenset()
