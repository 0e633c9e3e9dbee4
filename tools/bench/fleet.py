"""Benchmark ``devicemanager fleet``: a thousand nodes with 8 devices and 20 pods each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from devicemanager.fleet import Fleet, fleet_archive
from devicemanager.fleet.model import Object
from tools.bench.clock import timed
from tools.bench.model import Case, Measurement, Scale

_DEVICES: Final = 8
_PODS: Final = 20
_RESOURCE: Final = "vendor.com/gpu"


def cases(scale: Scale) -> list[Case]:
    """Return the case, which runs the command as a user does."""
    return [Case("fleet", partial(_fleet, scale.fleet_nodes))]


def made_up(nodes: int) -> Fleet:
    """Return a fleet of nodes that have 6 to 8 devices in use by 5 to 8 of their 20 pods."""
    return Fleet(
        "2026-01-31T12:00:00Z",
        "bench",
        "https://cluster.example.com",
        (),
        {
            "nodes": tuple(_node(number) for number in range(nodes)),
            "pods": tuple(pod for number in range(nodes) for pod in _pods(number)),
        },
    )


def _node(number: int) -> Object:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", _RESOURCE: str(_DEVICES)}
    name = f"node-{number:04}"
    return {
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "nodeInfo": {"kubeletVersion": f"v1.{36 - number % 3}.0"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pods(node: int) -> Iterator[Object]:
    with_devices = 5 + node % 4
    for number in range(_PODS):
        name = f"pod-{node:04}-{number:02}"
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
        if number < with_devices:
            # The first pod of some nodes has two devices, so that nodes differ.
            count = 2 if number == 0 and with_devices < _DEVICES else 1
            resources["limits"] = {_RESOURCE: str(count)}
        yield {
            "metadata": {"name": name, "namespace": "ml", "uid": name},
            "spec": {
                "nodeName": f"node-{node:04}",
                "containers": [{"name": "main", "image": "i", "resources": resources}],
            },
            "status": {"phase": "Running"},
        }


def _fleet(nodes: int) -> list[Measurement]:
    program = Path(sys.executable).with_name("devicemanager")
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as directory:
        path = Path(directory) / "fleet.tar.gz"
        path.write_bytes(fleet_archive(made_up(nodes)))

        def taken(action: str, *options: str) -> float:
            command = [str(program), "fleet", action, str(path), *options]
            # The exit status is 1, because pods would be lost.
            return timed(partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=False))

        return [
            Measurement(
                f"fleet show: {nodes} nodes with {_PODS} pods",
                [taken("show")],
                at_most=5 * nodes,
            ),
            Measurement(
                f"fleet rehearse --kubelet-version 1.37: {nodes} nodes with {_PODS} pods",
                [taken("rehearse", "--kubelet-version", "1.37")],
                at_most=60 * nodes,
            ),
        ]
