"""Nodes for Node objects that another program creates and deletes, such as an autoscaler."""

import pytest

from devicemanager.apiserver import Controllers
from devicemanager.cluster import Cluster, ClusterError, NodeOptions, simulated_driver
from devicemanager.cluster.driver_layouts import kwok_drivers
from tests.cluster.objects import GPU, gpu_pod

POOL = {"autoscaler.example.com/pool": "gpu"}
SELECTOR = "autoscaler.example.com/pool=gpu"


def create(apiserver, name, labels=POOL, **status):
    """Create a Node as an autoscaler does: with labels, and with a capacity if it is given."""
    apiserver.create("nodes", {"metadata": {"name": name, "labels": labels}, "status": status})


@pytest.fixture
def cluster(apiserver, tmp_path):
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    with Controllers(apiserver), Cluster.connect(kubeconfig) as found:
        yield found


def is_ready(apiserver, name):
    conditions = (apiserver.get("nodes", name).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_nodes_of_an_autoscaler_are_adopted(cluster, apiserver, until):
    create(apiserver, "first", capacity={"cpu": "8", "pods": "20"})
    create(apiserver, "other", {})
    driver = simulated_driver("gpu.example.com", [None])
    cluster.adopt(SELECTOR, {GPU: 2}, options=NodeOptions(drivers=(driver,)))
    until(lambda: is_ready(apiserver, "first"))
    create(apiserver, "second")
    until(lambda: is_ready(apiserver, "second"))
    amounts = {
        name: {key: apiserver.get("nodes", name)["status"]["capacity"][key] for key in KEYS}
        for name in ("first", "second")
    }
    assert amounts == {
        "first": {"cpu": "8", "memory": "256Gi", "pods": "20", GPU: "2"},
        "second": {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "2"},
    }
    assert not is_ready(apiserver, "other")
    until(lambda: len(apiserver.all("resourceslices")) == 2)
    apiserver.create("pods", gpu_pod("a", nodeName="second"))
    until(lambda: apiserver.get("pods", "a")["status"].get("phase") == "Running")


def test_annotations_of_kwok_add_drivers(apiserver, tmp_path, until):
    warnings = []
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    gpus = {"kwok.x-k8s.io/dra-gpu": "2", "kwok.x-k8s.io/dra-gpu-memory": "24Gi"}
    with Cluster.connect(kubeconfig, warn=warnings.append) as cluster:
        for name, annotations in (("n", gpus), ("bad", {"kwok.x-k8s.io/dra-gpu": "many"})):
            metadata = {"name": name, "labels": POOL, "annotations": annotations}
            apiserver.create("nodes", {"metadata": metadata})
        cluster.adopt(SELECTOR)
        until(lambda: apiserver.all("resourceslices") and warnings)
        (found,) = apiserver.all("resourceslices")
        spec = found["spec"]
        assert (spec["driver"], spec["nodeName"]) == ("gpu.kwok.x-k8s.io", "n")
        assert [each["capacity"]["memory"]["value"] for each in spec["devices"]] == ["24Gi"] * 2
        assert warnings == [
            "node bad is not adopted: annotation kwok.x-k8s.io/dra-gpu: invalid number 'many': "
            "use 1 to 128"
        ]


@pytest.mark.parametrize(
    ("annotation", "driver", "memory"),
    [("dra-gpu", "gpu.kwok.x-k8s.io", "16Gi"), ("dra-nvidia-gpu", "gpu.nvidia.com", "80Gi")],
)
def test_devices_of_kwok_have_a_default_memory(annotation, driver, memory):
    (layout,) = kwok_drivers({f"kwok.x-k8s.io/{annotation}": "1"})
    (device,) = layout.pools[0].slices[0]["devices"]
    assert (layout.driver, device["capacity"]["memory"]["value"]) == (driver, memory)


@pytest.mark.parametrize("memory", ["-16Gi", "0", "-1n"])
def test_memory_of_kwok_devices_is_positive(memory):
    annotations = {"kwok.x-k8s.io/dra-gpu": "1", "kwok.x-k8s.io/dra-gpu-memory": memory}
    with pytest.raises(ClusterError) as error:
        kwok_drivers(annotations)
    assert str(error.value) == (
        f"annotation kwok.x-k8s.io/dra-gpu-memory: {memory!r}: expected more than 0"
    )


KEYS = ("cpu", "memory", "pods", GPU)


def test_deleted_node_leaves_and_its_successor_is_adopted(cluster, apiserver, until):
    create(apiserver, "n")
    cluster.adopt(SELECTOR)
    until(lambda: "n" in cluster.nodes)
    before = cluster.nodes["n"].uid
    apiserver.delete("nodes", "n")
    until(lambda: "n" not in cluster.nodes)
    create(apiserver, "n")
    until(lambda: "n" in cluster.nodes and cluster.nodes["n"].uid != before)
    until(lambda: is_ready(apiserver, "n"))


def test_adopted_nodes_are_never_deleted(apiserver, tmp_path, until):
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    with Controllers(apiserver), Cluster.connect(kubeconfig, leave="delete") as cluster:
        create(apiserver, "n")
        cluster.adopt(SELECTOR)
        until(lambda: "n" in cluster.nodes)
        assert cluster.nodes["n"].kubelet.settings.node_name == "n"
    assert apiserver.get("nodes", "n") is not None
