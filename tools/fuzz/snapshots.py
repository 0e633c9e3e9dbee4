"""Targets of snapshots: the archive, what is in it, and the pods that kubectl prints."""

from __future__ import annotations

import gzip
import json

from tools.fuzz.files import one_line
from tools.fuzz.guard import Run
from tools.fuzz.model import Target


def targets() -> list[Target]:
    """What somebody sends who has a broken node."""
    return [
        Target(
            "snapshot-archive",
            "a snapshot's archive, of anybody, before it is compressed",
            _archive,
            ("devicemanager.snapshot",),
            ("snapshot/", "snapshot.json", "ustar", "numa.json", '"schema"', '"parts"'),
        ),
        Target(
            "snapshot-part",
            "a file in a snapshot: its name, a line end, its contents",
            _part,
            ("devicemanager.snapshot", "devicemanager.kubelet.host", "checkpoint"),
            (
                "pod-resources.json\n",
                "sockets.json\n",
                "cpu_manager_state\n",
                "memory_manager_state\n",
                "kubelet_internal_checkpoint\n",
                '"pod_resources"',
                '"policyName"',
                '"entries"',
                '{"PodUID":',
            ),
        ),
        Target(
            "kubectl-pods",
            "what kubectl get pods -o json prints, of any cluster",
            _kubectl,
            ("devicemanager.snapshot",),
            (
                '"items"',
                '"metadata"',
                '"uid"',
                '"name"',
                '"annotations"',
                "kubernetes.io/config.hash",
            ),
        ),
    ]


def _archive() -> Run:
    from devicemanager.snapshot import SnapshotError, read_snapshot

    def run(data: bytes) -> None:
        try:
            read_snapshot(gzip.compress(data, 1))
        except SnapshotError as error:
            one_line(str(error))

    return run


def _part() -> Run:
    from devicemanager.snapshot import SnapshotError, archive, layout, read_snapshot, report
    from devicemanager.snapshot.node import Node
    from devicemanager.snapshot.packing import pack
    from devicemanager.snapshot.rules import findings
    from tools.damage.verification import false_findings

    index = {"schema": layout.SCHEMA, "taken": "2026-01-31T12:00:00Z", "tool": "0"}
    head = json.dumps(index | {"node": "n", "root": "/r"}).encode()
    names = {name.encode(): name for name in layout.FILES[1:]}

    def run(data: bytes) -> None:
        name, _, content = data.partition(b"\n")
        if name not in names:
            return None
        try:
            snapshot = read_snapshot(pack({layout.INDEX: head, names[name]: content}, 0))
        except SnapshotError as error:
            return one_line(str(error))
        node = Node(snapshot)
        found = findings(node)
        for line in report.lines(node, found):
            one_line(line)
        verifiable = [each for each in found if not _is_state(each.kind)]
        assert not list(false_findings(snapshot, verifiable))
        assert read_snapshot(archive(snapshot)) == snapshot, "read again, it differs"

    return run


def _is_state(kind: str) -> bool:
    """Of state files nothing is counted afresh."""
    return kind in ("cpu-state", "memory-state")


def _kubectl() -> Run:
    from devicemanager.snapshot import SnapshotError
    from devicemanager.snapshot.names import from_kubectl

    def run(data: bytes) -> None:
        try:
            from_kubectl(data, "pods.json")
        except SnapshotError as error:
            one_line(str(error))

    return run
