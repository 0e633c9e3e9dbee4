"""The act of the demo in which devices are aligned to NUMA nodes, or a pod is rejected."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from devicemanager.cli.options import CommandError
from podresources import PodResourcesClient
from tools.demo.processes import Process, Record

POLICY = "single-numa-node"
DEVICES = ("vendor.com/gpu=4@0,1", "vendor.com/nic=2@0,1")
WHY = (
    "vendor.com/gpu can be aligned to node 0, vendor.com/nic can be aligned to node 1; "
    "there is no common node"
)

Check = Callable[[str, bool], None]
"""Says a claim that holds, and ends the demo at one that does not."""


def play(directory: Path, examples: Path, check: Check, timeout: float) -> None:
    """A kubelet of its own in ``directory``, and the pods of ``examples`` in order."""
    manifests = directory / "manifests"
    manifests.mkdir(parents=True)
    flags = ["-o", "json", "--root", str(directory), "--manifests", str(manifests)]
    flags += ["--topology-policy", POLICY]
    for devices in DEVICES:
        flags += ["--simulate", devices]
    program = [sys.executable, "-m", "devicemanager.cli", "run", *flags]
    log = directory.with_suffix(".log")
    with Process("the kubelet with NUMA nodes", program, log) as kubelet:
        kubelet.wait_for("that it is ready", lambda record: record.get("kind") == "ready", timeout)
        print(f"  devicemanager run --topology-policy {POLICY}, process {kubelet.pid}")
        print(f"  NUMA nodes 0 and 1, simulated devices {' '.join(DEVICES)}")
        told = {}
        for example in sorted(examples.glob("*.yaml")):
            shutil.copyfile(example, manifests / example.name)
            told[example.stem] = _admission(kubelet, example, timeout)
        _check_nodes(directory, check)
        torn = told["3-torn"]
        check("torn was rejected for its nodes", torn["reason"] == "TopologyAffinityError")
        check("the explanation says why", any(WHY in line for line in torn["explanation"]["text"]))
        check("the kubelet ends with status 0", kubelet.stop() == 0)


def _admission(kubelet: Process, example: Path, timeout: float) -> Record:
    name = f"default/{example.stem.partition('-')[2]}"
    wanted = {"kind": "admission", "name": name}
    told = kubelet.wait_for(
        f"what becomes of {name}", lambda record: wanted.items() <= record.items(), timeout
    )
    if told["admitted"]:
        print(f"\n  {example.name}: pod {name} is admitted")
        for container, given in told["containers"].items():
            ids = "; ".join(f"{key} {','.join(ids)}" for key, ids in given["devices"].items())
            nodes = "+".join(map(str, given["numa_nodes"] or ()))
            print(f"    container {container}: {ids} (aligned to NUMA node {nodes})")
    else:
        print(f"\n  {example.name}: pod {name} is rejected, {told['reason']}:")
        print(f"    {told['message']}")
        for line in told["explanation"]["text"]:
            print(f"    {line}")
    return told


def _check_nodes(directory: Path, check: Check) -> None:
    """What PodResources says of the nodes, for it is the kubelet's own word."""
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        listed = client.list()
    nodes = {
        pod.name: {
            (each.resource_name, node)
            for container in pod.containers
            for each in container.devices
            for node in each.nodes
        }
        for pod in listed
    }
    if {"pair", "twins"} - nodes.keys():
        raise CommandError(f"PodResources does not list pair and twins, but {sorted(nodes)}")
    both = {("vendor.com/gpu", 0), ("vendor.com/nic", 0)}
    check("pair's GPU and network card are both on node 0", nodes["pair"] == both)
    check("twins has both its GPUs on node 1", nodes["twins"] == {("vendor.com/gpu", 1)})
