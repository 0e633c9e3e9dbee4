"""Acts of the demo that use a separate kubelet: NUMA alignment and structured claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from devicemanager.cli import main as command
from devicemanager.cli import pods
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import print_table
from podresources import Container, Pod, PodResourcesClient
from tools.demo.processes import Process, Record, admit, run_kubelet

POLICY = "single-numa-node"
DEVICES = ("vendor.com/gpu=4@0,1", "vendor.com/nic=2@0,1")
NOT_ALIGNED = (
    "vendor.com/gpu can be aligned to node 0, vendor.com/nic can be aligned to node 1; "
    "there is no common node"
)
HARDWARE = "gpu=2,nic=1,fpga=2"
TOO_FEW_SLICES = "pool mock-gpu-0 has too little compute-slices left"

Check = Callable[[str, bool], None]
"""Function that prints a statement if it is true, and otherwise ends the demo."""


def align_devices(directory: Path, examples: Path, check: Check, timeout: float) -> None:
    """Admit the pods in the directory ``examples`` on a node with a topology policy."""
    flags = ["--topology-policy", POLICY]
    for devices in DEVICES:
        flags += ["--simulate", devices]
    log = directory.with_suffix(".log")
    with run_kubelet("the kubelet with NUMA nodes", directory, log, *flags) as kubelet:
        kubelet.wait_ready(timeout)
        print(f"  devicemanager run --topology-policy {POLICY}, process {kubelet.pid}")
        print(f"  NUMA nodes 0 and 1, simulated devices {' '.join(DEVICES)}")
        admissions = {
            example.stem: _align(kubelet, directory, example, timeout)
            for example in sorted(examples.glob("*.yaml"))
        }
        _check_nodes(_list(directory), check)
        torn = admissions["3-torn"]
        explanation = torn["explanation"]["text"]
        check("torn was rejected for its nodes", torn["reason"] == "TopologyAffinityError")
        check("the explanation says why", any(NOT_ALIGNED in line for line in explanation))
        check("the kubelet exits with status 0", kubelet.stop() == 0)


def _align(kubelet: Process, directory: Path, example: Path, timeout: float) -> Record:
    admission = admit(kubelet, directory, example, timeout)
    if admission["admitted"]:
        for container, given in admission["containers"].items():
            ids = "; ".join(f"{key} {','.join(ids)}" for key, ids in given["devices"].items())
            nodes = "+".join(map(str, given["numa_nodes"] or ()))
            print(f"    container {container}: {ids} (aligned to NUMA node {nodes})")
    else:
        for line in (admission["message"], *admission["explanation"]["text"]):
            print(f"    {line}")
    return admission


def _check_nodes(listed: Sequence[Pod], check: Check) -> None:
    """Check the NUMA nodes of allocated devices in PodResources."""
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
        raise CommandError(f"PodResources lists pods {sorted(nodes)}: expected pair and twins")
    both = {("vendor.com/gpu", 0), ("vendor.com/nic", 0)}
    check("pair's GPU and network card are both on node 0", nodes["pair"] == both)
    check("twins has both its GPUs on node 1", nodes["twins"] == {("vendor.com/gpu", 1)})


def share_hardware(directory: Path, examples: Path, check: Check, timeout: float) -> None:
    """Admit the pods in the directory ``examples`` with structured claims."""
    flags = ["--claims", str(examples), "--simulate-pools", HARDWARE]
    log = directory.with_suffix(".log")
    with run_kubelet("the kubelet with claims", directory, log, *flags) as kubelet:
        kubelet.wait_ready(timeout)
        print(f"  devicemanager run --simulate-pools {HARDWARE} --claims examples/claims")
        admissions = {}
        for example in sorted((examples / "pods").glob("*.yaml")):
            admission = admissions[example.stem] = admit(kubelet, directory, example, timeout)
            if not admission["admitted"]:
                for line in admission["message"].split("; "):
                    print(f"    {line}")
        listed = _list(directory)
        print("\n  PodResources, and the claims in the kubelet's state file:\n")
        print_table(pods.COLUMNS, pods.rows(listed))
        print()
        command(["claims", "list", "--state", str(directory / "device_claims_state")])
        _check_claims(listed, admissions, check)
        check("the kubelet exits with status 0", kubelet.stop() == 0)


def _check_claims(listed: Sequence[Pod], admissions: dict[str, Record], check: Check) -> None:
    """Check the allocated claims in PodResources."""
    allocated = {
        (pod.name, container.name): _claimed(container)
        for pod in listed
        for container in pod.containers
    }
    network = ["mock-nic-0/uplink", "mock-nic-0/vf-0"]
    check(
        "trainer has a partition of a GPU, a function of the NIC and a share of its uplink",
        allocated["trainer", "main"] == ["mock-gpu-0/2g-20gb-0", *network],
    )
    check("its other container shares the network", allocated["trainer", "upload"] == network)
    check("streamer has a share of the same uplink", allocated["streamer", "main"] == network[:1])
    greedy = admissions["2-greedy"]
    check("greedy was rejected because no whole GPU is left", TOO_FEW_SLICES in greedy["message"])
    check("it has no devices", allocated.get(("greedy", "main"), []) == [])


def _claimed(container: Container) -> list[str]:
    return sorted(
        f"{device.pool_name}/{device.device_name}"
        for claim in container.dynamic_resources
        for device in claim.claim_resources
    )


def _list(directory: Path) -> Sequence[Pod]:
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        return client.list()
