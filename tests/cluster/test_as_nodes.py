"""Nodes that impersonate themselves, on an API server with the Node authorizer."""

import threading

import pytest

from devicemanager.apiserver import Controllers, Permission
from devicemanager.client.api import pod_path
from devicemanager.client.errors import Forbidden
from devicemanager.cluster import Cluster, ClusterError, NodeOptions
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.preflight import dra_permissions, required_permissions
from tests.cluster.objects import GPU, gpu_pod, granted


def test_strict_uses_only_permissions_that_no_node_has(apiserver, tmp_path, until):
    """The process has no other permissions; everything else is done as a node."""
    apiserver.permissions.allowed = granted(required_permissions(as_nodes="strict"))
    warnings = []
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")

    def phase(name):
        found = apiserver.get("pods", name)
        return found and found["status"].get("phase")

    with Cluster.connect(kubeconfig, as_nodes="strict", warn=warnings.append) as cluster:
        first, second = cluster.join_in_memory("n", 2, {GPU: 1})
        for name in ("a", "b"):
            apiserver.create("pods", gpu_pod(name, nodeName=first.name))
        until(lambda: (phase("a"), phase("b")) == ("Running", "Failed"))
        cluster.leave([first.name], "keep")
        (first,) = cluster.join_in_memory("n", 1, {GPU: 1})
        until(lambda: [str(pod.phase) for pod in first.kubelet.pods().values()] == ["Running"])
        apiserver.delete("pods", "a")
        until(lambda: phase("a") is None)
        apiserver.delete("nodes", second.name)
        until(lambda: list(cluster.nodes) == [first.name])
    assert apiserver.all("nodes") == []
    assert apiserver.permissions.used == apiserver.permissions.allowed
    assert warnings == ["node n-1 has left: its Node object was deleted"]


def test_node_publishes_slices_and_reads_claims_as_itself(apiserver, tmp_path, until):
    """Only the status of devices is written with an identity that is not the node's."""
    required = [
        *required_permissions(as_nodes="strict"),
        *dra_permissions(as_nodes="strict", device_status=True),
    ]
    apiserver.permissions.allowed = granted(required)
    driver = "gpu.example.com"
    options = NodeOptions(
        drivers=(simulated_driver(driver, [None]),), device_status=True, taints=()
    )
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    entry = {"name": "gpu", "resourceClaimName": "gpu"}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    with (
        Controllers(apiserver),
        Cluster.connect(kubeconfig, as_nodes="strict") as cluster,
    ):
        cluster.join_in_memory("n", 1, options=options)
        until(lambda: apiserver.all("resourceslices"))
        apiserver.create("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        claim = {"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": [request]}}}
        apiserver.create("resourceclaims", claim)
        spec = {"containers": [container], "resourceClaims": [entry]}
        apiserver.create("pods", {"metadata": {"name": "a"}, "spec": spec})
        until(lambda: apiserver.get("pods", "a")["status"].get("phase") == "Running")
        until(lambda: apiserver.get("resourceclaims", "gpu")["status"].get("devices"))
    assert Permission("resource.k8s.io", "resourceclaims/status", "patch") in (
        apiserver.permissions.used
    )


def test_watches_of_a_node_end_with_it(apiserver, tmp_path, until):
    def watches():
        return [each.name for each in threading.enumerate() if each.name.startswith("watch ")]

    before = len(watches())
    with Cluster.connect(
        apiserver.kubeconfig(tmp_path / "kubeconfig"), as_nodes="strict"
    ) as cluster:
        first, second = cluster.join_in_memory("n", 2, {GPU: 1})
        assert len(watches()) == before + 4
        cluster.leave([first.name])
        until(lambda: len(watches()) == before + 2)
        assert not second.is_over
    assert len(watches()) == before


@pytest.mark.parametrize(("as_nodes", "watches"), [(False, 1), ("strict", 3)])
def test_nodes_survive_the_loss_of_the_servers_data(apiserver, tmp_path, until, as_nodes, watches):
    """Nodes that re-register list the new server's pods."""
    options = NodeOptions(on_deleted="register")
    with Cluster.connect(
        apiserver.kubeconfig(tmp_path / "kubeconfig"), as_nodes=as_nodes
    ) as cluster:
        cluster.join_in_memory("n", 2, {GPU: 1}, options=options)
        (other,) = cluster.join_in_memory("m", 1, {GPU: 1})
        # A watch that starts after the wipe would wait for a version in the future.
        until(
            lambda: all(apiserver.requests["watch", what] == watches for what in ("nodes", "pods"))
        )
        apiserver.wipe()
        until(lambda: other.is_over and len(apiserver.all("nodes")) == 2)
        assert sorted(cluster.nodes) == ["n-0", "n-1"]
        apiserver.create("pods", gpu_pod("a", nodeName="n-1"))
        until(lambda: apiserver.get("pods", "a")["status"].get("phase") == "Running")


def test_join_checks_permissions_first(apiserver, tmp_path):
    apiserver.permissions.allowed = granted(required_permissions(as_nodes="strict")) - {
        Permission("", "users", "impersonate")
    }
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    with (
        Cluster.connect(kubeconfig, as_nodes="strict") as cluster,
        pytest.raises(ClusterError, match=r"^missing permissions: impersonate users: "),
    ):
        cluster.join_in_memory("n")


def test_strict_checks_the_limit_of_open_files(apiserver, tmp_path, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda which: (1024, 4096))
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    names = [f"n-{number}" for number in range(449)]
    with Cluster.connect(kubeconfig, as_nodes="strict") as cluster:
        cluster.check(names[:448])
        with pytest.raises(
            ClusterError,
            match=r"^separate watches for 449 nodes need 1026 open files, but the limit is 1024: ",
        ):
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
def test_fake_apiserver_denies_access_to_foreign_objects(api, method, path, selector):
    query = {"fieldSelector": selector} if selector else None
    with pytest.raises(Forbidden, match='User "system:node:own" cannot'):
        api.request(method, path, {} if method == "PATCH" else None, query=query, user="own")


@pytest.mark.parametrize(
    ("method", "part", "text"),
    [("PATCH", ("status",), "update pod status for"), ("DELETE", (), "delete")],
)
def test_fake_apiserver_lets_a_node_write_only_its_own_pods(api, apiserver, method, part, text):
    apiserver.create("pods", gpu_pod("a", nodeName="own"))
    path, patch = pod_path("default", "a", *part), "merge" if method == "PATCH" else None
    text = f'pods "a" is forbidden: node "other" can only {text} pods with spec.nodeName set to'
    with pytest.raises(Forbidden, match=text):
        api.request(method, path, {}, patch=patch, user="other")
    api.request(method, path, {}, patch=patch, user="own")


def test_fake_apiserver_lets_a_node_write_its_own_lease(api):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    lease = api.request("POST", leases, {"metadata": {"name": "own"}, "spec": {}}, user="own")
    api.request("PUT", f"{leases}/own", lease, user="own")
    api.request("PATCH", f"{leases}/own", {}, patch="merge", user="own")
    assert api.request("GET", f"{leases}/own", user="own")["metadata"]["name"] == "own"
    api.request("DELETE", f"{leases}/own", user="own")
