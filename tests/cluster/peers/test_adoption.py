"""Nodes of an autoscaler, which ``join --adopt`` runs, on the fake and on a real control plane."""

import pytest

from devicemanager.client.api import node_path
from devicemanager.cluster.options import NodeOptions

GPU = "vendor.com/gpu"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def create(peer):
    """Create a Node as an autoscaler does, and return its name."""
    names = []

    def create(number, **annotations):
        name = f"{peer.name}-{number}"
        labels, sizes = {"group": peer.name, "pool": peer.name}, {"cpu": "4", "pods": "20"}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        body = {"metadata": metadata, "status": {"capacity": sizes, "allocatable": sizes}}
        peer.request("POST", "/api/v1/nodes", body)
        names.append(name)
        return name

    yield create
    for name in names:
        if any(each["metadata"]["name"] == name for each in nodes(peer)):
            peer.request("DELETE", node_path(name))


def nodes(peer):
    query = {"labelSelector": f"pool={peer.name}"}
    return peer.request("GET", "/api/v1/nodes", query=query)["items"]


def test_nodes_of_an_autoscaler_run_pods_and_leave(cluster, peer, create):
    first = create(0)
    cluster.adopt(f"pool={peer.name}", {GPU: 2}, options=NodeOptions(status_interval=0.5))
    peer.ready(first)
    capacity = peer.request("GET", node_path(first))["status"]["capacity"]
    assert {name: capacity[name] for name in ("cpu", "pods", GPU)} == {
        "cpu": "4",
        "pods": "20",
        GPU: "2",
    }
    for name in "abc":
        peer.pod(name)
    # The scheduler has no place for the third pod, until the autoscaler creates another Node.
    peer.wait(lambda: sum(each["status"]["phase"] == "Running" for each in peer.pods()) == 2)
    peer.ready(create(1))
    peer.wait(lambda: all(each["status"]["phase"] == "Running" for each in peer.pods()))
    peer.request("DELETE", node_path(first))
    peer.wait(lambda: list(cluster.nodes) == [f"{peer.name}-1"])


def test_annotation_of_kwok_publishes_a_slice(cluster, peer, create):
    if peer.minor < 34:
        pytest.skip("resource.k8s.io/v1 exists since 1.34")
    cluster.adopt(f"pool={peer.name}")
    name = create(0, **{"kwok.x-k8s.io/dra-gpu": "2"})
    query = {"fieldSelector": f"spec.nodeName={name}"}
    (found,) = peer.wait(lambda: peer.request("GET", SLICES, query=query)["items"])
    assert found["spec"]["driver"] == "gpu.kwok.x-k8s.io"
    assert len(found["spec"]["devices"]) == 2
