"""Act of the demo with a DRA driver: claims are prepared and unprepared, and one pod waits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import checkpoint.dra
from devicemanager.cli import main as command
from podresources import PodResourcesClient
from tools.demo.acts import Check
from tools.demo.processes import run_kubelet

DRIVER: Final = "gpu.example.com"
_CONTROL: Final = "DEVICEMANAGER_CONTROL"


def prepare_claims(directory: Path, examples: Path, check: Check, timeout: float) -> None:
    """Admit the pods in the directory ``examples``, which have ResourceClaims."""
    flags = ["--control", "--simulate-driver", f"{DRIVER}=2"]
    log = directory.with_suffix(".log")
    with run_kubelet("the kubelet with a DRA driver", directory, log, *flags) as kubelet:
        kubelet.wait_ready(timeout)
        kubelet.wait_for(
            "the connection to the driver",
            lambda record: record.get("kind") == "driver-connected",
            timeout,
        )
        print(f"  devicemanager run {' '.join(flags)}, process {kubelet.pid}")
        os.environ[_CONTROL] = str(directory)
        try:
            _play(directory, examples, check)
        finally:
            del os.environ[_CONTROL]
        check("the kubelet exits with status 0", kubelet.stop() == 0)


def _play(directory: Path, examples: Path, check: Check) -> None:
    for example in sorted(examples.glob("*.yaml")):
        check(f"{example.name} is admitted", _run("ctl", "admit", str(example)) == 0)
    _run("dra", "state")
    check("the state file has the device of train", _stored(directory)["train-gpu"] == ["gpu-0"])
    check("the driver has written a CDI file", len(list((directory / "cdi").iterdir())) == 1)
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        (claim,) = (
            each
            for pod in client.list()
            for container in pod.containers
            for each in container.dynamic_resources
        )
    check("PodResources lists the claim", claim.claim_name == "train-gpu")
    check("dra explain says why wait is Pending", _run("dra", "explain", "wait") == 1)
    _run("ctl", "delete", "train", "wait")
    check("both claims are unprepared", _stored(directory) == {})
    check("the driver has removed its CDI file", not list((directory / "cdi").iterdir()))


def _run(*arguments: str) -> int:
    print(f"\n  $ devicemanager {' '.join(arguments)}")
    return command(arguments)


def _stored(directory: Path) -> dict[str, list[str]]:
    """Return the devices of each ResourceClaim in the state file."""
    data = (directory / checkpoint.dra.STATE_NAME).read_bytes()
    return {
        claim.name: [
            device.device for state in claim.drivers.values() for device in state.devices or ()
        ]
        for claim in checkpoint.dra.loads(data).claims or ()
    }
