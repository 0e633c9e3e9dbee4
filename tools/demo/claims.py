"""The act of the demo with structured claims: partitions, a rejection, a shared NIC."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from devicemanager.cli import main as command
from devicemanager.cli import pods
from devicemanager.cli.output import print_table
from podresources import Container, Pod, PodResourcesClient
from tools.demo.processes import Process, Record

HARDWARE = "gpu=2,nic=1,fpga=2"
WHY = "pool mock-gpu-0 has too little compute-slices left"

Check = Callable[[str, bool], None]
"""Says a claim that holds, and ends the demo at one that does not."""


def play(directory: Path, examples: Path, check: Check, timeout: float) -> None:
    """A kubelet of its own in ``directory``, with the claims and pods of ``examples``."""
    manifests = directory / "manifests"
    manifests.mkdir(parents=True)
    flags = ["-o", "json", "--root", str(directory), "--manifests", str(manifests)]
    flags += ["--claims", str(examples), "--simulate-pools", HARDWARE]
    program = [sys.executable, "-m", "devicemanager.cli", "run", *flags]
    log = directory.with_suffix(".log")
    with Process("the kubelet with claims", program, log) as kubelet:
        kubelet.wait_for("that it is ready", lambda record: record.get("kind") == "ready", timeout)
        print(f"  devicemanager run --simulate-pools {HARDWARE} --claims examples/claims")
        told = {}
        for example in sorted((examples / "pods").glob("*.yaml")):
            shutil.copyfile(example, manifests / example.name)
            told[example.stem] = _admission(kubelet, example, timeout)
        with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
            listed = client.list()
        print("\n  What a node agent sees of it, and what the kubelet keeps:\n")
        print_table(pods.COLUMNS, pods.rows(listed))
        print()
        command(["claims", "list", "--state", str(directory / "device_claims_state")])
        _check(listed, told, check)
        check("the kubelet ends with status 0", kubelet.stop() == 0)


def _admission(kubelet: Process, example: Path, timeout: float) -> Record:
    name = f"default/{example.stem.partition('-')[2]}"
    wanted = {"kind": "admission", "name": name}
    told = kubelet.wait_for(
        f"what becomes of {name}", lambda record: wanted.items() <= record.items(), timeout
    )
    if told["admitted"]:
        print(f"\n  {example.name}: pod {name} is admitted")
    else:
        print(f"\n  {example.name}: pod {name} is rejected, {told['reason']}:")
        for line in told["message"].split("; "):
            print(f"    {line}")
    return told


def _check(listed: Sequence[Pod], told: dict[str, Record], check: Check) -> None:
    """What PodResources says of the claims, for it is the kubelet's own word."""
    held = {
        (pod.name, container.name): _devices(container)
        for pod in listed
        for container in pod.containers
    }
    check(
        "trainer has a partition of a GPU, a function of the NIC and a share of its uplink",
        held["trainer", "main"] == ["mock-gpu-0/2g-20gb-0", "mock-nic-0/uplink", "mock-nic-0/vf-0"],
    )
    network = ["mock-nic-0/uplink", "mock-nic-0/vf-0"]
    check("its other container shares the network", held["trainer", "upload"] == network)
    check("streamer has a share of the same uplink", held["streamer", "main"] == network[:1])
    greedy = told["2-greedy"]
    check("greedy was rejected, for want of a whole GPU", WHY in greedy["message"])
    check("it holds nothing", held.get(("greedy", "main"), []) == [])


def _devices(container: Container) -> list[str]:
    return sorted(
        f"{device.pool_name}/{device.device_name}"
        for claim in container.dynamic_resources
        for device in claim.claim_resources
    )
