"""A storm of rejections on many nodes, and the command that explains one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devicemanager import cli
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import World

NODES = 200


def test_a_storm_on_two_hundred_nodes_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node has two devices left, one on either NUMA node; a scheduler that only counts
    sends a pod that needs two together."""
    world = World()
    settings = Settings(topology_policy="single-numa-node", numa=NumaTopology.of([0, 1]))
    for number in range(NODES):
        world.join(f"n-{number}", gpus="6@0,1", settings=settings)
    for name in ("a", "b", "wide"):
        for number in range(NODES):
            world.run(f"{name}-{number}", f"n-{number}", gpus=2, settle=False)
        world.settle()
    phases = {name: set[str]() for name in ("a", "b", "wide")}
    for pod in world.all("pods"):
        phases[pod["metadata"]["name"].partition("-")[0]].add(pod["status"]["phase"])
    assert phases == {"a": {"Running"}, "b": {"Running"}, "wide": {"Failed"}}
    assert len(world.events("TopologyAffinityError")) == NODES

    files = []
    for name in ("a-7", "b-7", "wide-7"):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(world.pod(name)))
    command = ["explain", *map(str, files), "--devices", "vendor.com/gpu=6@0,1"]
    assert cli.main([*command, "--topology-policy", "single-numa-node"]) == 1
    said = capsys.readouterr().out
    assert "TopologyAffinityError" in said and world.status("wide-7")["reason"] in said
    assert "in use:" in said and "default/a-7" in said
