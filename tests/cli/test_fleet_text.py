"""All lines that ``devicemanager fleet`` prints about a small cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devicemanager.cli import main
from devicemanager.fleet import Fleet, fields, fleet_archive
from tests.cli.test_rehearse_command import MANIFEST
from tests.fleet.made_up import EVERYTHING
from tests.snapshot.made_up import TAKEN

SHOWN = """\
3 nodes of https://cluster.example.com, 2026-01-31T12:00:00Z, kubelet 1.36.1
RESOURCE NODES DEVICES HEALTHY ALLOCATED USED PODS OF 1 PODS OF 2 PODS OF 4 PODS OF 8
vendor.com/gpu 3 10 9 4 44% 5 2 0 0
POOL DEVICES ALLOCATED BLOCKED
gpu.example.com/node-a 3 1 1
- if all free devices were on one node, 1 more pod with 4 vendor.com/gpu would fit
- allocated partitions block 1 free device of gpu.example.com/node-a: the shared \
counters are used up
WARNING: node-b: unhealthy devices of vendor.com/gpu: 1 of 4
ERROR: node-c: the kubelet rejected 1 pod: UnexpectedAdmissionError
basis: the device counts in the status of nodes, the requests of pods, and the snapshots of nodes
"""
FITS = """\
the pod does not fit; copies that fit: 2 of 3; nodes with room: 2 of 3
- quota gpus: requests.vendor.com/gpu allows 2 more copies
- 1 node: the pod does not tolerate a taint of the node
basis: kubelet 1.36.1, verified with …
assumed: the scheduler finds the nodes with room; affinity to other pods, topology spread, \
priorities and preemption are not considered
assumed: pods that wait for a node use nothing yet
"""
PROBLEM = (
    "is rejected if it is admitted before the plugin of vendor.com/gpu has registered -> start the "
    "plugin of vendor.com/gpu before the kubelet admits pods, or drain the node first; a rejected "
    "pod stays Failed (k/k#125579)"
)
CAN_BE_LOST = (
    "1 of 1 pod can be lost; pods that are lost in every order: 0; orders that lose pods or "
    "devices: 1 of 2 possible"
)
REHEARSED = f"""\
NODE RESULT
node-a {CAN_BE_LOST}
node-b {CAN_BE_LOST}
2 of 3 nodes can lose pods; pods that can be lost: 2 of 2; pods that are lost in every order: 0
- node-a: pod ml/train {PROBLEM}
- node-b: pod ml/infer {PROBLEM}
basis: kubelet 1.36.1, verified with …
assumed on 3 nodes: …
assumed on 3 nodes: …
assumed on 3 nodes: …
assumed on 3 nodes: …
assumed on 3 nodes: …
assumed on 3 nodes: …
"""
LAST = """\
assumed: on 3 of 3 nodes, all free devices are equal: the API server shows no device IDs, NUMA \
nodes and policies; add snapshots of the nodes
assumed: extended resources are devices of plugins, and each pod has the devices that it requests
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "fleet.tar.gz"], SHOWN),
        (["fits", "pod.yaml", "fleet.tar.gz", "--replicas", "3"], FITS),
        (["rehearse", "fleet.tar.gz", "--reboot"], REHEARSED),
    ],
    ids=["show", "fits", "rehearse"],
)
def test_text_is_complete(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    objects: dict[str, list[Any]] = {}
    for each in EVERYTHING:
        plural = f"{each['kind'].lower()}{'es' if each['kind'] == 'DeviceClass' else 's'}"
        if plural in fields.KINDS:
            kept = {"status": {}, **fields.kept(each, fields.KINDS[plural])}
            objects.setdefault(plural, []).append(kept)
    fleet = Fleet(TAKEN, "0.1.0", "https://cluster.example.com", (), objects)
    Path("fleet.tar.gz").write_bytes(fleet_archive(fleet))
    Path("pod.yaml").write_text(MANIFEST)
    assert main(["fleet", *words, "--processes", "1"]) == 1
    printed = capsys.readouterr().out.splitlines()
    wanted = (expected + LAST).splitlines()
    assert len(printed) == len(wanted)
    for line, pattern in zip(printed, wanted, strict=True):
        start, more, _ = pattern.partition("…")
        same = " ".join(line.split())
        assert same.startswith(start) if more else same == pattern
