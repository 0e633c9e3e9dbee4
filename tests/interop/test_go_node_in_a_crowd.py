"""A real plugin, in Go, serves one mock kubelet among a hundred in-memory nodes."""

import time

import pytest

from devicemanager.cluster import Cluster, NodeSpecs
from devicemanager.cluster.fake_apiserver import Controllers, FakeApiServer
from tests.cluster.objects import GPU, gpu_pod


def until(test, seconds=60):
    end = time.monotonic() + seconds
    while not (found := test()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.fixture
def cluster(tmp_path):
    with FakeApiServer() as apiserver, Controllers(apiserver):
        kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
        with Cluster.connect(kubeconfig) as found:
            yield apiserver, found


def test_go_plugin_serves_one_node_among_many(cluster, node_dir, spawn, go_bin):
    apiserver, joined = cluster
    nodes = joined.join_specs(NodeSpecs.numbered("n", 101, {GPU: 1}, full=1, root=node_dir))

    def allocatable(name):
        return apiserver.get("nodes", name)["status"]["allocatable"].get(GPU)

    assert allocatable("n-0") is None, "no plugin has registered"
    plugin = spawn(go_bin / "plugin", "-dir", nodes[0].kubelet.plugin_dir, "-count", "2")
    plugin.wait_for("registered", unless="register-failed")
    until(lambda: allocatable("n-0") == "2")
    for number in range(102):
        apiserver.create("pods", gpu_pod(f"p-{number}"))
    until(lambda: joined.pod_counts() == {"Running": 102})
    assert sorted(event["ids"] for event in plugin.events("allocate")) == [["gpu-0"], ["gpu-1"]]
    on_it = [each for each in apiserver.all("pods") if each["spec"]["nodeName"] == "n-0"]
    assert len(on_it) == 2
    apiserver.create("pods", gpu_pod("one-more", nodeName="n-0"))
    rejected = until(lambda: apiserver.get("pods", "one-more")["status"].get("reason"))
    assert rejected == "UnexpectedAdmissionError"
    plugin.terminate()
    until(lambda: allocatable("n-0") == "0")
    assert all(
        apiserver.get("pods", each["metadata"]["name"])["status"]["phase"] == "Running"
        for each in on_it
    )
