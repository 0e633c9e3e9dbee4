"""Nodes that ask in their own names, on an API server that lets a node do what a kubelet may."""

import threading

import pytest

from devicemanager.cluster import Cluster, ClusterError, NodeOptions
from devicemanager.cluster.client.errors import Forbidden
from devicemanager.cluster.fake_apiserver.rights import Right
from devicemanager.cluster.preflight import needs
from tests.cluster.objects import GPU, gpu_pod


def rights(as_nodes):
    return frozenset(
        Right(need.group, need.resource, need.verb) for need in needs(as_nodes=as_nodes)
    )


def test_a_whole_life_takes_only_what_no_node_may_do(stub, tmp_path, until):
    """Strictly: all else is allowed to the node, and to nobody else."""
    stub.rights.allowed = rights("strict")
    said = []
    kubeconfig = stub.kubeconfig(tmp_path / "kubeconfig")

    def phase(name):
        found = stub.get("pods", name)
        return found and found["status"].get("phase")

    with Cluster.connect(kubeconfig, as_nodes="strict", warn=said.append) as cluster:
        first, second = cluster.join_light("n", 2, {GPU: 1})
        for name in ("a", "b"):
            stub.create("pods", gpu_pod(name, nodeName=first.name))
        until(lambda: (phase("a"), phase("b")) == ("Running", "Failed"))
        cluster.leave([first.name], "keep")
        (first,) = cluster.join_light("n", 1, {GPU: 1})
        until(lambda: [str(pod.phase) for pod in first.kubelet.pods().values()] == ["Running"])
        stub.delete("pods", "a")
        until(lambda: phase("a") is None)
        stub.delete("nodes", second.name)
        until(lambda: list(cluster.nodes) == [first.name])
    assert stub.all("nodes") == []
    assert stub.rights.used == stub.rights.allowed
    assert said == ["node n-1 was deleted: it has left"]


def test_the_watches_of_a_node_end_with_it(stub, tmp_path, until):
    def watches():
        return [each.name for each in threading.enumerate() if each.name.startswith("watch ")]

    before = len(watches())
    with Cluster.connect(stub.kubeconfig(tmp_path / "kubeconfig"), as_nodes="strict") as cluster:
        first, second = cluster.join_light("n", 2, {GPU: 1})
        assert len(watches()) == before + 4
        cluster.leave([first.name])
        until(lambda: len(watches()) == before + 2)
        assert not second.is_over
    assert len(watches()) == before


@pytest.mark.parametrize(("as_nodes", "watches"), [(False, 1), ("strict", 3)])
def test_a_server_that_lost_everything(stub, tmp_path, until, as_nodes, watches):
    """Whoever registers again lists what is new."""
    options = NodeOptions(on_deleted="register")
    with Cluster.connect(stub.kubeconfig(tmp_path / "kubeconfig"), as_nodes=as_nodes) as cluster:
        cluster.join_light("n", 2, {GPU: 1}, options=options)
        (gone,) = cluster.join_light("m", 1, {GPU: 1})
        # A watch that has not begun would begin on the new server, at a version yet to come.
        until(lambda: all(stub.requests["watch", what] == watches for what in ("nodes", "pods")))
        stub.wipe()
        until(lambda: gone.is_over and len(stub.all("nodes")) == 2)
        assert sorted(cluster.nodes) == ["n-0", "n-1"]
        stub.create("pods", gpu_pod("a", nodeName="n-1"))
        until(lambda: stub.get("pods", "a")["status"].get("phase") == "Running")


def test_rights_are_looked_at_before(stub, tmp_path):
    stub.rights.allowed = rights("strict") - {Right("", "users", "impersonate")}
    kubeconfig = stub.kubeconfig(tmp_path / "kubeconfig")
    with (
        Cluster.connect(kubeconfig, as_nodes="strict") as cluster,
        pytest.raises(ClusterError, match="rights are missing: impersonate users: "),
    ):
        cluster.join_light("n")


def test_more_nodes_than_there_may_be_connections(stub, tmp_path, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda which: (1024, 4096))
    kubeconfig = stub.kubeconfig(tmp_path / "kubeconfig")
    names = [f"n-{number}" for number in range(449)]
    with Cluster.connect(kubeconfig, as_nodes="strict") as cluster:
        cluster.check(names[:448])
        with pytest.raises(ClusterError, match=r"449 nodes .* take 1026 open files, and 1024 are"):
            cluster.check(names)


@pytest.mark.parametrize(
    ("method", "path", "selector"),
    [
        ("GET", "/api/v1/pods", ""),
        ("GET", "/api/v1/pods", "spec.nodeName=other"),
        ("GET", "/api/v1/nodes", ""),
        ("GET", "/api/v1/nodes/other", ""),
        ("PATCH", "/api/v1/nodes/other/status", ""),
        ("DELETE", "/api/v1/nodes/own", ""),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/other", ""),
        ("GET", "/apis/batch/v1/jobs", ""),
    ],
)
def test_what_a_node_may_not_do_on_the_stub(api, method, path, selector):
    query = {"fieldSelector": selector} if selector else None
    with pytest.raises(Forbidden, match='User "system:node:own" cannot'):
        api.request(method, path, {} if method == "PATCH" else None, query=query, user="own")


def test_a_node_keeps_its_own_lease_on_the_stub(api):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    lease = api.request("POST", leases, {"metadata": {"name": "own"}, "spec": {}}, user="own")
    api.request("PUT", f"{leases}/own", lease, user="own")
    api.request("PATCH", f"{leases}/own", {}, patch="merge", user="own")
    assert api.request("GET", f"{leases}/own", user="own")["metadata"]["name"] == "own"
    api.request("DELETE", f"{leases}/own", user="own")
