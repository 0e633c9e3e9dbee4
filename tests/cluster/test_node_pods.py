"""Pods on a node in the cluster, from binding to deletion, without sockets and in virtual time."""

from __future__ import annotations

import pytest

from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


def held(world: World, name: str = "n") -> int:
    """Devices that somebody holds on a node."""
    kubelet = world.nodes[name].kubelet
    kubelet.manager.self_check()
    return sum(each.pod is not None for each in kubelet.inventory())


def main(world: World, name: str) -> dict:
    (status,) = world.status(name)["containerStatuses"]
    return status


def test_a_pod_runs_with_one_patch(world: World) -> None:
    world.join(address="127.1.0.1")
    world.run("train")
    status = world.status("train")
    assert status["phase"] == "Running" and world.patches("train") == 1
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert main(world, "train")["allocatedResourcesStatus"] == [
        {"name": GPU, "resources": [{"resourceID": "gpu-0", "health": "Healthy"}]}
    ]
    assert main(world, "train")["image"] == "i:1"
    assert status["hostIP"] == "127.1.0.1" and status["podIP"].startswith("198.")
    world.pass_time(30.0)
    assert world.patches("train") == 1, "nothing has changed"
    assert held(world) == 1 and world.warnings == []
