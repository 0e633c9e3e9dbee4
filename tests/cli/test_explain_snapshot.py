"""``devicemanager explain --snapshot``: pods on the node of a snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from checkpoint import PodDevicesEntry
from devicemanager.cli import main
from devicemanager.snapshot import archive, layout
from devicemanager.snapshot.model import KubeletConfig, Snapshot
from devicemanager.testing import pod_manifest
from podresources import Allocatable
from tests.snapshot.made_up import (
    GPU,
    ROOT,
    WHOLE,
    allocatable,
    cpu_state,
    entry,
    memory_state,
    pod,
    saved,
    without,
)

# Four GPUs: g0 and g1 on node 0, both allocated to train; g2 and g3 on node 1, g2 to infer.
FIXED = attrs.evolve(
    WHOLE,
    checkpoint=saved(
        entry("u-train", "g0", "g1"), PodDevicesEntry("u-infer", "main", GPU, {1: ("g2",)}, b"")
    ),
)


@pytest.fixture
def explain(tmp_path: Path, capsys: Any) -> Any:
    """Explain a pod with some limits on the node of a snapshot."""

    def say(snapshot: Snapshot, limits: dict[str, Any], *argv: str) -> tuple[int, str, str]:
        (tmp_path / "s.tar.gz").write_bytes(archive(snapshot))
        manifest = pod_manifest("new", limits, namespace="ml", uid="u-new")
        (tmp_path / "pod.yaml").write_text(json.dumps(manifest))
        files = [str(tmp_path / "pod.yaml"), "--snapshot", str(tmp_path / "s.tar.gz")]
        status = main(["explain", *files, *argv])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return say


def test_devices_allocations_numa_nodes_and_policy_come_from_the_snapshot(explain: Any) -> None:
    status, out, err = explain(WHOLE, {GPU: 2})
    assert (status, err) == (1, "")
    assert "policy restricted, scope container\n" in out
    assert "    node 0 [##] 0 of 2 free\n    node 1 [#.] 1 of 2 free\n" in out
    assert f"  {GPU} g2: pod ml/infer, container main\n" in out
    assert f"  {GPU} g0, g1: pod ml/train, container main\n" in out
    assert explain(WHOLE, {GPU: 1})[0] == 0


def test_changes_are_compared_with_the_unchanged_node(explain: Any) -> None:
    status, out, _ = explain(WHOLE, {GPU: 2}, "--without-pod", "infer")
    assert status == 0
    assert "chosen: g2, g3\n" in out
    assert out.endswith(
        "note: without the changes, pod ml/new is rejected: TopologyAffinityError\n"
    )
    for name in ("ml/infer", "u-infer"):
        assert explain(WHOLE, {GPU: 2}, "--without-pod", name)[0] == 0
    many = ["--without-pod", "train", "--without-pod", "infer"]
    assert explain(WHOLE, {GPU: 3}, *many)[0] == 0
    single = ["--what-if", "policy=single-numa-node"]
    assert explain(WHOLE, {GPU: 3}, *many, *single)[0] == 1
    status, out, _ = explain(WHOLE, {GPU: 1}, *single, "--what-if", "scope=pod")
    assert (status, "policy single-numa-node, scope pod" in out) == (0, True)
    option = ["--what-if", "prefer-closest-numa-nodes=true", "-o", "json"]
    _, out, _ = explain(WHOLE, {GPU: 1}, *option)
    assert json.loads(out)["pods"][0]["policy"]["prefer_closest_numa_nodes"] is True


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--without-pod", "trian"], "unknown pod trian: did you mean ml/train?"),
        (["--without-pod", "zzz"], "use one of ml/infer, ml/train"),
        (["--what-if", "max-allowable-numa-nodes=few"], "max-allowable-numa-nodes"),
        (["--checkpoint", "x"], "--checkpoint and --snapshot exclude each other"),
        (["--allocatable", "x"], "--allocatable and --snapshot"),
    ],
)
def test_invalid_input_is_a_one_line_error(explain: Any, argv: list[str], problem: str) -> None:
    status, out, err = explain(WHOLE, {GPU: 1}, *argv)
    assert (status, out) == (2, "")
    assert problem in err
    assert len(err.splitlines()) == 1


def test_without_pod_is_rejected_if_no_pod_has_devices(explain: Any) -> None:
    empty = attrs.evolve(WHOLE, checkpoint=saved(), pods=(), cpu_state=None, memory_state=None)
    status, _, err = explain(empty, {GPU: 1}, "--without-pod", "zzz")
    assert (status, err) == (
        2,
        "devicemanager: error: --without-pod: unknown pod zzz: no pod has devices\n",
    )


def test_changes_require_a_snapshot(capsys: Any) -> None:
    for argv in (["--what-if", "policy=none"], ["--without-pod", "a"]):
        assert main(["explain", "pod.yaml", "--devices", f"{GPU}=1", *argv]) == 2
        assert "require --snapshot" in capsys.readouterr().err
    assert main(["explain", "pod.yaml", "--what-if", "policy=most"]) == 2
    assert "use one of none, best-effort" in capsys.readouterr().err


def test_failure_as_json(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "x").write_text("{}")
    (tmp_path / "pod.yaml").write_text(json.dumps(pod_manifest("new", {GPU: 1})))
    argv = [str(tmp_path / "pod.yaml"), "--snapshot", str(tmp_path / "x"), "-o", "json"]
    assert main(["explain", *argv]) == 2
    captured = capsys.readouterr()
    assert f"devicemanager: error: {json.loads(captured.out)['error']}\n" == captured.err


def test_devices_are_free_only_if_their_pod_surely_does_not_exist(explain: Any) -> None:
    data = saved(entry("u-train", "g0", "g1"), entry("u-infer", "g2"), entry("u-old", "g3"))
    old = attrs.evolve(WHOLE, checkpoint=data)
    status, out, _ = explain(old, {GPU: 1})
    assert status == 0
    assert (
        "note: pod u-old no longer exists: its devices count as free, because the "
        "kubelet frees them at the next admission\n" in out
    )
    unsure = attrs.evolve(old, directories=None)
    status, out, _ = explain(unsure, {GPU: 1})
    assert status == 1
    assert "its devices count as allocated: to free them, use --without-pod u-old\n" in out
    assert explain(unsure, {GPU: 1}, "--without-pod", "u-old")[0] == 0


def test_podresources_replaces_a_missing_or_damaged_checkpoint(explain: Any) -> None:
    for broken, why in (
        (without(WHOLE, layout.CHECKPOINT, "Permission denied"), "could not be read"),
        (attrs.evolve(WHOLE, checkpoint=b"{"), "is damaged"),
    ):
        status, out, _ = explain(broken, {GPU: 2})
        assert status == 1
        assert f"{GPU} g0, g1: pod ml/train, container main\n" in out
        assert f"note: the checkpoint {why}: allocated devices are taken from PodResources\n" in out
        assert explain(broken, {GPU: 2}, "--without-pod", "infer")[0] == 0
    blind = without(attrs.evolve(WHOLE, checkpoint=b"{"), layout.POD_RESOURCES, "no")
    assert "note: the checkpoint is damaged: only its readable part" in explain(blind, {GPU: 1})[1]
    nothing = without(without(WHOLE, layout.CHECKPOINT, "no"), layout.POD_RESOURCES, "no")
    assert "note: allocated devices are unknown" in explain(nothing, {GPU: 1})[1]


def test_devices_that_are_not_allocatable_are_unhealthy(explain: Any) -> None:
    status, out, _ = explain(
        attrs.evolve(WHOLE, allocatable=allocatable("g0", "g1", "g2")), {GPU: 1}
    )
    assert status == 1
    assert "x unhealthy" in out
    none = ["--what-if", "policy=none"]
    status, out, _ = explain(attrs.evolve(WHOLE, allocatable=Allocatable()), {GPU: 1}, *none)
    assert status == 1
    assert "no healthy devices present; cannot allocate unhealthy devices" in out


def test_devices_can_be_added(explain: Any) -> None:
    assert explain(WHOLE, {"vendor.com/nic": 1}, "--devices", "vendor.com/nic=2@0,1")[0] == 0


def configured(**settings: Any) -> KubeletConfig:
    return KubeletConfig(
        f"{ROOT}/config.yaml", {"topologyManagerPolicy": "single-numa-node", **settings}
    )


def test_exclusive_cpus_of_containers_are_in_use(explain: Any) -> None:
    node = attrs.evolve(
        FIXED,
        config=configured(cpuManagerPolicy="static", reservedSystemCPUs="4"),
        cpu_state=cpu_state("static", "0,4-7", entries={"u-train": {"main": "1-3"}}, checksum=0),
    )
    wants = {"cpu": 2, "memory": "1Gi", GPU: 1}
    assert explain(node, wants)[0] == 0
    # On node 1 three CPUs are free, because one is reserved; on node 0 one is free.
    status, out, _ = explain(node, wants | {"cpu": 4})
    assert status == 1
    assert "cpu fits on nodes 0+1" in out
    assert explain(node, wants | {"cpu": 4}, "--without-pod", "train")[0] == 0
    # Without the static policy no container has exclusive CPUs.
    shared = attrs.evolve(node, config=configured())
    assert "cpu" not in explain(shared, wants | {"cpu": 4})[1]


def test_memory_of_containers_is_in_use(explain: Any) -> None:
    def table(free: int) -> dict[str, Any]:
        return {"memoryMap": {"memory": {"total": 8 << 30, "allocatable": free}}, "cells": [0]}

    held = {"u-infer": {"main": [{"numaAffinity": [1], "type": "memory", "size": 6 << 30}]}}
    state = memory_state(
        "Static", machineState={"0": table(8 << 30), "1": table(7 << 30)}, entries=held
    )
    node = attrs.evolve(FIXED, config=configured(memoryManagerPolicy="Static"), memory_state=state)
    assert explain(node, {"cpu": 1, "memory": "1Gi", GPU: 1})[0] == 0
    status, out, _ = explain(node, {"cpu": 1, "memory": "2Gi", GPU: 1})
    assert status == 1
    assert "memory can be aligned to node 0" in out
    assert explain(node, {"cpu": 1, "memory": "2Gi", GPU: 1}, "--without-pod", "infer")[0] == 0


def test_unreadable_state_files_are_ignored(explain: Any) -> None:
    config = configured(cpuManagerPolicy="static", memoryManagerPolicy="Static")
    node = attrs.evolve(FIXED, config=config, cpu_state=b"{", memory_state=b"{")
    assert explain(node, {"cpu": 1, "memory": "1Gi", GPU: 1})[0] == 0


def test_numa_nodes_of_devices_replace_those_of_the_machine(
    explain: Any,
) -> None:
    far = Allocatable(
        tuple(attrs.evolve(each, nodes=(3,)) for each in allocatable("g0", "g3").devices)
    )
    _, out, _ = explain(attrs.evolve(WHOLE, allocatable=far, pods=(pod("a", "g0"),)), {GPU: 1})
    assert "node 3 [" in out
    huge = Allocatable(
        tuple(attrs.evolve(each, nodes=(10**9, -4)) for each in allocatable("g3").devices)
    )
    none = ["--what-if", "policy=none"]
    assert explain(attrs.evolve(WHOLE, allocatable=huge), {GPU: 1}, *none)[0] == 0
