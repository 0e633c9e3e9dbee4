"""What our code makes of a snapshot with a damaged checkpoint, and of a damaged archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import checkpoint
from devicemanager.snapshot import SnapshotError, archive, findings, read_snapshot
from devicemanager.snapshot import layout as files
from devicemanager.snapshot.model import (
    Listening,
    Part,
    PodDirectories,
    Snapshot,
    SocketSeen,
)
from podresources import Allocatable, Container, ContainerDevices, Pod
from tools.damage.checkpoints import run
from tools.damage.claims import overlooked, untrue
from tools.damage.ways import damaged

__all__ = ["archive_faults", "report_faults", "snapshot_of"]

_ROOT = "/var/lib/kubelet"


def snapshot_of(original: bytes, data: bytes) -> Snapshot:
    """A node whose kubelet knows what ``original`` says, and has ``data`` on its disk."""
    saved = checkpoint.loads(original, verify=False)
    containers: dict[str, dict[str, list[ContainerDevices]]] = {}
    for entry in saved.entries or ():
        held = containers.setdefault(entry.pod_uid, {}).setdefault(entry.container_name, [])
        for node, ids in (entry.device_ids or {}).items():
            nodes = () if node == -1 else (node,)
            held.append(ContainerDevices(entry.resource_name, tuple(ids or ()), nodes))
    pods = tuple(
        Pod(f"pod-{number}", "ml", tuple(Container(n, tuple(held)) for n, held in each.items()))
        for number, each in enumerate(containers.values())
    )
    offered = tuple(
        ContainerDevices(name, tuple(ids or ()))
        for name, ids in (saved.registered_devices or {}).items()
    )
    names = ("device-plugins/kubelet.sock", "pod-resources/kubelet.sock")
    return Snapshot(
        taken="2026-01-31T12:00:00Z",
        tool="0",
        node="worker",
        root=_ROOT,
        parts=tuple(Part(name, f"{_ROOT}/{name}") for name in files.FILES[1:]),
        pods=pods,
        allocatable=Allocatable(offered),
        checkpoint=data,
        sockets=tuple(SocketSeen(f"{_ROOT}/{name}", Listening.LISTENING, 1) for name in names),
        directories=PodDirectories(tuple(containers)),
    )


def report_faults(original: bytes, data: bytes) -> Iterator[str]:
    """What the report of such a node says that is not so, and what it does not say."""
    snapshot = snapshot_of(original, data)
    found = findings(snapshot)
    yield from untrue(snapshot, found)
    yield from overlooked(snapshot, found)
    if read_snapshot(archive(snapshot)) != snapshot:
        yield "the archive says something else than what was put into it"


def archive_faults(original: bytes, seed: int) -> Iterator[str]:
    """A damaged archive is read as one, or is rejected with one line."""
    _, data = damaged(archive(snapshot_of(original, original)), seed)
    try:
        found = findings(read_snapshot(data))
    except SnapshotError as error:
        if "\n" in str(error):
            yield f"more than one line: {error}"
    else:
        yield from untrue(read_snapshot(data), found)
    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        file = Path(directory) / "node.tar.gz"
        file.write_bytes(data)
        status, _, errors = run("snapshot", "show", str(file))
        if status not in (0, 1, 2) or "(a bug;" in errors or len(errors.splitlines()) > 1:
            yield f"snapshot show ended with {status}: {errors}"
