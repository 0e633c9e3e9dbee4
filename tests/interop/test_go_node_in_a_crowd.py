"""A Go plugin serves a mock kubelet that joins a cluster together with 40 in-memory nodes."""

import pytest

from devicemanager.apiserver import Controllers, FakeApiServer
from devicemanager.cluster import Cluster, NodeSpecs
from tests.cluster.objects import GPU, gpu_pod
from tests.timing import wait_until


@pytest.fixture
def cluster(tmp_path):
    with FakeApiServer() as apiserver, Controllers(apiserver):
        kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
        with Cluster.connect(kubeconfig) as connected:
            yield apiserver, connected


def test_go_plugin_serves_one_node_among_many(cluster, node_dir, spawn, go_bin):
    apiserver, joined = cluster
    nodes = joined.join_specs(NodeSpecs.numbered("n", 41, {GPU: 1}, full=1, root=node_dir))

    def allocatable(name):
        return apiserver.get("nodes", name)["status"]["allocatable"].get(GPU)

    assert allocatable("n-0") is None, "no plugin has registered"
    plugin = spawn(go_bin / "plugin", "-dir", nodes[0].kubelet.plugin_dir, "-count", "2")
    plugin.wait_for("registered", unless="register-failed")
    wait_until(lambda: allocatable("n-0") == "2")
    # One pod per device: 40 in-memory nodes have one each, and the plugin has two.
    for number in range(42):
        apiserver.create("pods", gpu_pod(f"p-{number}"))
    wait_until(lambda: joined.pod_counts() == {"Running": 42})
    assert sorted(event["ids"] for event in plugin.events("allocate")) == [["gpu-0"], ["gpu-1"]]
    pods_on_node = [each for each in apiserver.all("pods") if each["spec"]["nodeName"] == "n-0"]
    assert len(pods_on_node) == 2
    apiserver.create("pods", gpu_pod("one-more", nodeName="n-0"))
    rejected = wait_until(lambda: apiserver.get("pods", "one-more")["status"].get("reason"))
    assert rejected == "UnexpectedAdmissionError"
    plugin.terminate()
    wait_until(lambda: allocatable("n-0") == "0")
    assert all(
        apiserver.get("pods", each["metadata"]["name"])["status"]["phase"] == "Running"
        for each in pods_on_node
    )
