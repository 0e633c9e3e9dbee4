"""Check reports about snapshots with a damaged checkpoint, and about damaged archives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import checkpoint
from devicemanager.snapshot import (
    Listening,
    Part,
    PodDirectories,
    Snapshot,
    SnapshotError,
    SocketSeen,
    archive,
    findings,
    layout,
    read_snapshot,
)
from podresources import Allocatable, Container, ContainerDevices, Pod
from tools.damage.checkpoints import run
from tools.damage.verification import false_findings, missed_problems
from tools.damage.ways import damaged

_ROOT = "/var/lib/kubelet"


def snapshot_of(original: bytes, data: bytes) -> Snapshot:
    """Return the snapshot of a node whose kubelet has ``original`` in memory and ``data`` on
    disk."""
    saved = checkpoint.loads(original, verify=False)
    containers: dict[str, dict[str, list[ContainerDevices]]] = {}
    for entry in saved.entries or ():
        devices = containers.setdefault(entry.pod_uid, {}).setdefault(entry.container_name, [])
        for node, ids in (entry.device_ids or {}).items():
            nodes = () if node == -1 else (node,)
            devices.append(ContainerDevices(entry.resource_name, tuple(ids or ()), nodes))
    pods = tuple(
        Pod(f"pod-{number}", "ml", tuple(Container(n, tuple(d)) for n, d in each.items()))
        for number, each in enumerate(containers.values())
    )
    allocatable = tuple(
        ContainerDevices(name, tuple(ids or ()))
        for name, ids in (saved.registered_devices or {}).items()
    )
    # A process listens on both sockets, so that only the checkpoint is wrong.
    names = ("device-plugins/kubelet.sock", "pod-resources/kubelet.sock")
    return Snapshot(
        taken="2026-01-31T12:00:00Z",
        tool="0",
        node="worker",
        root=_ROOT,
        parts=tuple(Part(name, f"{_ROOT}/{name}") for name in layout.FILES[1:]),
        pods=pods,
        allocatable=Allocatable(allocatable),
        checkpoint=data,
        sockets=tuple(SocketSeen(f"{_ROOT}/{name}", Listening.LISTENING, 1) for name in names),
        directories=PodDirectories(tuple(containers)),
    )


def report_faults(original: bytes, data: bytes) -> Iterator[str]:
    """Yield false and missing findings for the snapshot of a node whose checkpoint was damaged."""
    snapshot = snapshot_of(original, data)
    found = findings(snapshot)
    yield from false_findings(snapshot, found)
    yield from missed_problems(snapshot, found)
    if read_snapshot(archive(snapshot)) != snapshot:
        yield "the archive differs from the snapshot"


def archive_faults(original: bytes, seed: int) -> Iterator[str]:
    """Yield each error of reading a damaged archive. A one-line error for the archive is
    correct."""
    # Compression spreads damage, so most damaged archives can only be rejected.
    _, data = damaged(archive(snapshot_of(original, original)), seed)
    try:
        found = findings(read_snapshot(data))
    except SnapshotError as error:
        if "\n" in str(error):
            yield f"more than one line: {error}"
    else:
        yield from false_findings(read_snapshot(data), found)
    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        file = Path(directory) / "node.tar.gz"
        file.write_bytes(data)
        status, _, errors = run("snapshot", "show", str(file))
        if status not in (0, 1, 2) or "(a bug;" in errors or len(errors.splitlines()) > 1:
            yield f"snapshot show exited with {status}: {errors}"
