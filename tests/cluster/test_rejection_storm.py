"""Rejections on many nodes at once, and ``explain`` for one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devicemanager import cli
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.settings import Settings
from tests.cluster.world import World

NODES = 200


def test_explain_shows_why_200_nodes_reject_a_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node has two free devices, one on each NUMA node. A scheduler that only counts binds
    a pod there that needs two on one NUMA node."""
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
    output = capsys.readouterr().out
    assert "TopologyAffinityError" in output and world.status("wide-7")["reason"] in output
    assert "in use:" in output and "default/a-7" in output
