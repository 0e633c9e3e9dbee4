"""Snapshots of a made-up node, without problems unless a test adds one."""

from __future__ import annotations

import json
from typing import Any

import attrs

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry, dra
from checkpoint.dra import ClaimState
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.host.numa import NumaMachine
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import (
    KubeletConfig,
    Listening,
    LoggedPod,
    Part,
    PodDirectories,
    Snapshot,
    SocketSeen,
)
from podresources import Allocatable, Container, ContainerDevices, Pod

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
DRIVER = "gpu.example.com"
ROOT = "/var/lib/kubelet"
TAKEN = "2026-01-31T12:00:00Z"
PARTS = tuple(Part(name, f"{ROOT}/{name}") for name in layout.FILES if name != layout.INDEX)
MACHINE = NumaMachine(
    NumaTopology.of([0, 1], [[10, 21], [21, 10]]),
    {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)},
    {"memory": {0: 8 << 30, 1: 8 << 30}},
)


def entry(uid: str, *ids: str, resource: str = GPU, container: str = "main") -> PodDevicesEntry:
    return PodDevicesEntry(uid, container, resource, {0: ids}, b"")


def saved(*entries: PodDevicesEntry, registered: dict[str, tuple[str, ...]] | None = None) -> bytes:
    return checkpoint.dumps(
        Checkpoint(entries, {GPU: ("g0", "g1", "g2", "g3")} if registered is None else registered)
    )


def claims(*claims: ClaimState) -> bytes:
    return dra.dumps(dra.State(claims))


def claim(name: str, *uids: str, device: str | None = None, times: int = 1) -> ClaimState:
    devices = None if device is None else (dra.Device("worker-1", device),) * times
    drivers = {DRIVER: dra.DriverState(devices)}
    return ClaimState("ml", name, f"uid-{name}", frozenset(uids), drivers)


def pod(name: str, *ids: str, resource: str = GPU, container: str = "main") -> Pod:
    devices = tuple(ContainerDevices(resource, (id_,), (int(id_[-1]) // 2,)) for id_ in ids)
    return Pod(name, "ml", (Container(container, devices),))


def allocatable(*ids: str, resource: str = GPU) -> Allocatable:
    return Allocatable(
        tuple(ContainerDevices(resource, (id_,), (int(id_[-1]) // 2,)) for id_ in ids)
    )


def socket(path: str, state: Listening = Listening.LISTENING) -> SocketSeen:
    process = (7, "plugin") if state is Listening.LISTENING else (None, None)
    return SocketSeen(f"{ROOT}/{path}", state, *process)


SOCKETS = (
    socket("device-plugins/gpu.sock"),
    socket("device-plugins/kubelet.sock"),
    socket("pod-resources/kubelet.sock"),
)


def cpu_state(policy: str = "none", default: str = "", **changes: Any) -> bytes:
    """Return a state file; by default that of a CPU manager without a policy."""
    content = {"policyName": policy, "defaultCpuSet": default, "checksum": 1353318690}
    return json.dumps(content | changes).encode()


def memory_state(policy: str = "None", **changes: Any) -> bytes:
    content = {"policyName": policy, "machineState": {}, "checksum": 4236770233}
    return json.dumps(content | changes).encode()


WHOLE = Snapshot(
    taken=TAKEN,
    tool="0.1.0",
    node="worker-1",
    root=ROOT,
    parts=PARTS,
    pods=(pod("infer", "g2"), pod("train", "g0", "g1")),
    allocatable=allocatable("g0", "g1", "g2", "g3"),
    checkpoint=saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2")),
    cpu_state=cpu_state(),
    memory_state=memory_state(),
    dra_state=claims(claim("shared", "u-train", "u-infer", device="gpu-0")),
    dra_health=b"{}",
    sockets=SOCKETS,
    numa=MACHINE,
    config=KubeletConfig(f"{ROOT}/config.yaml", {"topologyManagerPolicy": "restricted"}),
    directories=PodDirectories(("u-infer", "u-train"), (LoggedPod("ml", "train", "u-train"),)),
)
"""Four GPUs on two NUMA nodes, three of them allocated to two pods."""


def without(snapshot: Snapshot, name: str, problem: str, *, absent: bool = False) -> Snapshot:
    """Return the snapshot as if a part had not been read."""
    fields = {
        layout.POD_RESOURCES: "pods",
        layout.ALLOCATABLE: "allocatable",
        layout.CHECKPOINT: "checkpoint",
        layout.SOCKETS: "sockets",
        layout.CONFIG: "config",
        layout.PODS: "directories",
        layout.NUMA: "numa",
    }
    parts = tuple(
        Part(name, part.source, problem, absent) if part.name == name else part
        for part in snapshot.parts
    )
    return attrs.evolve(snapshot, parts=parts, **{fields[name]: None})
