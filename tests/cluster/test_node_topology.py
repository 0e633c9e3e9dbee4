"""NodeResourceTopology objects: available devices by NUMA node."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.apiserver.authorization import Permission
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import GPU, World


@pytest.fixture
def world() -> World:
    return World()


def join(world: World, **options: Any) -> Any:
    settings = Settings(
        topology_policy="single-numa-node", numa=NumaTopology.of([0, 1], [[10, 21], [21, 10]])
    )
    return world.join(gpus="2@0,4@1", settings=settings, topology=True, **options)


def available(world: World) -> list[str]:
    (found,) = world.all(PLURAL)
    return [zone["resources"][0]["available"] for zone in found["zones"]]


PLURAL = "noderesourcetopologies"


def test_join_publishes_numa_nodes_and_devices(world: World) -> None:
    node = join(world)
    (found,) = world.all(PLURAL)
    assert found["topologyPolicies"] == ["SingleNUMANodeContainerLevel"]
    assert found["attributes"] == [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "container"},
    ]
    assert found["metadata"]["ownerReferences"][0]["uid"] == node.uid
    assert found["zones"] == [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "costs": costs,
            "resources": [
                {"name": GPU, "capacity": count, "allocatable": count, "available": count}
            ],
        }
        for zone, count, costs in (
            (0, "2", [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}]),
            (1, "4", [{"name": "node-0", "value": 21}, {"name": "node-1", "value": 10}]),
        )
    ]


def test_silent_node_writes_the_object_when_it_resumes(world: World) -> None:
    node = join(world)
    node.silent()
    node.kubelet.fail_device(GPU, "gpu-0")
    world.pass_time(60.0)
    assert available(world) == ["2", "4"]
    node.silent(False)
    world.settle()
    assert available(world) == ["1", "4"]


def test_available_devices_follow_pods_and_health(world: World) -> None:
    node = join(world)
    world.run("wide", gpus=3)
    assert available(world) == ["2", "1"]
    world.run("narrow")
    assert available(world) == ["1", "1"]
    node.fail_device(GPU, "gpu-1")
    world.settle()
    assert available(world) == ["0", "1"]
    world.delete("wide")
    assert available(world) == ["0", "4"]
    before = len(world.requests)
    world.pass_time(60.0)
    assert len(world.requests) == before, "no change"


def test_leave_deletes_the_object(world: World) -> None:
    node = join(world)
    node.leave()
    assert world.all(PLURAL) == []


def test_next_process_takes_the_object_over(world: World) -> None:
    join(world)
    world.nodes.pop("n")._pods.close()
    join(world)
    world.run("narrow")
    assert len(world.all(PLURAL)) == 1 and available(world) == ["1", "4"]


def test_missing_definition_causes_one_warning(world: World) -> None:
    world.permissions.allowed = frozenset(
        Permission("", resource, verb)
        for resource in ("nodes", "nodes/status", "pods", "pods/status", "events")
        for verb in ("create", "get", "list", "patch", "delete")
    )
    join(world)
    world.run("train")
    world.pass_time(30.0)
    (warning,) = world.warnings
    assert "is the CustomResourceDefinition installed?" in warning
    assert world.status("train")["phase"] == "Running"
