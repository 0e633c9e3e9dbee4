"""The published PodResources client in Go with PodResourcesServer."""

import pytest

from podresources import (
    Allocatable,
    Container,
    ContainerDevices,
    ContainerMemory,
    MemorySource,
    Pod,
    PodResourcesServer,
)

GPU = "vendor.com/gpu"
ALLOCATED = (ContainerDevices(GPU, ("a", "b"), (0, 1)), ContainerDevices("vendor.com/nic", ("n",)))
PODS = (
    Pod("idle", "default", (Container("c"),)),
    Pod(
        "train",
        "ml",
        (
            Container("side", ALLOCATED[1:], restartable_init=True),
            Container(
                "c", ALLOCATED[:1], cpu_ids=(2, 3), memory=(ContainerMemory("memory", 4096),)
            ),
        ),
    ),
)


@pytest.fixture
def socket(node_dir):
    path = node_dir / "kubelet.sock"
    source = MemorySource(PODS, Allocatable(ALLOCATED, cpu_ids=(2, 3)))
    with PodResourcesServer(source, path, qps=None):
        yield path


@pytest.fixture
def query(go_api, podres, socket):
    return lambda *words: podres(socket, *words, program=go_api / "podres")


def entry(resource, device, numa):
    return {"resource": resource, "ids": [device], "numa": numa}


GPUS = [entry(GPU, device, [node]) for device in "ab" for node in (0, 1)]
NIC = entry("vendor.com/nic", "n", None)


def container(name, devices=(), cpus=None, memory=0):
    return {"name": name, "devices": list(devices), "cpu_ids": cpus, "memory_blocks": memory}


TRAIN = {
    "name": "train",
    "namespace": "ml",
    "containers": [container("side", [NIC]), container("c", GPUS, [2, 3], 1)],
}


def test_list(query):
    idle = {"name": "idle", "namespace": "default", "containers": [container("c")]}
    assert query("list") == [idle, TRAIN]


def test_get(query):
    assert query("get", "train", "ml") == TRAIN


def test_get_of_unknown_pod(query):
    error = query("get", "train", "default")["error"]
    assert error["message"] == "pod train in namespace default not found"


def test_allocatable(query):
    assert query("allocatable") == {"devices": [*GPUS, NIC], "cpu_ids": [2, 3], "memory_blocks": 0}


def test_v1alpha1(query):
    _, train = query("list-v1alpha1")
    assert [c["name"] for c in train["containers"]] == ["c"]
    allocated = [(d["resource"], i) for d in train["containers"][0]["devices"] for i in d["ids"]]
    assert sorted(set(allocated)) == [(GPU, "a"), (GPU, "b")]


def test_calls_above_rate_limit_fail(go_bin, podres, node_dir):
    with PodResourcesServer(MemorySource(), node_dir / "slow.sock", qps=0.001, burst=1):
        assert podres(node_dir / "slow.sock", "list") == []
        error = podres(node_dir / "slow.sock", "list")["error"]
    assert error == {"code": "ResourceExhausted", "message": "rejected by rate limit"}
