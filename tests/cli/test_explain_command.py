"""``devicemanager explain``: devices from flags and files, text and data, its page."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import main
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.wire.settings import settings_to_bytes
from devicemanager.testing import pod_manifest
from tests.paths import ROOT

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
GIVEN = ContainerSettings(envs={"GPU": "g0"})
SINGLE = ["--topology-policy", "single-numa-node"]


@pytest.fixture
def pod(tmp_path: Path) -> Any:
    """Return a function that writes a manifest and returns its path."""

    def write(name: str, *containers: dict[str, int], **options: Any) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(pod_manifest(name, *containers, **options)))
        return str(path)

    return write


def explain(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["explain", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def data(capsys: Any, *argv: str) -> tuple[int, Any]:
    status, out, err = explain(capsys, *argv, "-o", "json")
    assert err == ""
    return status, json.loads(out)


# --- the page


def shown_on_the_page() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "explain.md").read_text()
    return re.findall(r"^```console\n\$ devicemanager (explain .*)\n((?:.*\n)*?)```$", page, re.M)


@pytest.mark.parametrize(("command", "output"), shown_on_the_page())
def test_page_shows_the_real_output(
    command: str, output: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(ROOT)
    status = main(shlex.split(command))
    assert capsys.readouterr().out == output
    assert status == (" rejected: " in output)


def test_page_has_a_rejection_and_an_admission() -> None:
    first = [output.splitlines()[0] for _, output in shown_on_the_page()]
    assert first == [
        "pod default/torn rejected: TopologyAffinityError",
        "pod default/torn admitted",
    ]


# --- admissions


def test_pods_are_admitted_one_after_another(pod: Any, capsys: Any) -> None:
    pods = [pod("a", {GPU: 1}), pod("b", {GPU: 2})]
    status, out, err = explain(capsys, *pods, "--devices", f"{GPU}=2@0", *SINGLE)
    assert (status, err) == (1, "")
    assert out == (
        "pod default/b rejected: TopologyAffinityError\n"
        "  Resources cannot be allocated with Topology locality\n"
        "  policy single-numa-node, scope container\n"
        "\n"
        "container main\n"
        f"  {GPU}: 2 requested\n"
        "    node 0 [#.] 1 of 2 free\n"
        "    fits nowhere\n"
        f"  => single-numa-node: {GPU} fits nowhere: 2 requested, 1 free\n"
        f"     no other policy would help: not enough free: {GPU}\n"
        "\n"
        "legend: . free, # in use, x unhealthy, * chosen\n"
        "\n"
        "in use:\n"
        f"  {GPU} gpu-0: pod default/a, container main\n"
    )
    # In the opposite order, both fit.
    assert explain(capsys, *reversed(pods), "--devices", f"{GPU}=3@0")[0] == 0


def test_all_flag_explains_every_pod(pod: Any, capsys: Any) -> None:
    pods = [pod("a", {GPU: 3}), pod("b", {GPU: 1})]
    status, out, _ = explain(capsys, *pods, "--all", "--devices", f"{GPU}=2")
    assert status == 0
    assert re.findall(r"^pod \S+ \w+", out, re.M) == [
        "pod default/a rejected",
        "pod default/b admitted",
    ]
    status, report = data(capsys, *pods, "--all", "--devices", f"{GPU}=2")
    assert [each["admitted"] for each in report["pods"]] == [False, True]
    assert report["pods"][0]["reason"] == "UnexpectedAdmissionError"


def test_json_of_an_admission(pod: Any, capsys: Any) -> None:
    pods = [pod("a", {GPU: 1}), pod("b", {GPU: 1, NIC: 1})]
    devices = ["--devices", f"{GPU}=2@0,1@1", "--devices", f"{NIC}=2@0,1"]
    unhealthy = ["--unhealthy", f"{NIC}=nic-0"]
    status, report = data(capsys, *pods, *devices, *unhealthy, *SINGLE)
    (answer,) = report["pods"]
    (step,) = answer["steps"]
    assert status == 0
    assert answer["pod"]["name"] == "b"
    assert answer["policy"]["numa_nodes"] == [0, 1]
    assert step["resources"] == [
        {
            "resource": GPU,
            "request": 1,
            "free": 2,
            "chosen": ["gpu-2"],
            "places": [
                {"numa_node": 0, "free": 1, "devices": {"gpu-0": "in use", "gpu-1": "free"}},
                {"numa_node": 1, "free": 1, "devices": {"gpu-2": "chosen"}},
            ],
        },
        {
            "resource": NIC,
            "request": 1,
            "free": 1,
            "chosen": ["nic-1"],
            "places": [
                {"numa_node": 0, "free": 0, "devices": {"nic-0": "unhealthy"}},
                {"numa_node": 1, "free": 1, "devices": {"nic-1": "chosen"}},
            ],
        },
    ]
    merge = step["merge"]
    assert merge["affinity"] == {"numa_nodes": [1], "preferred": True}
    assert merge["hints"][GPU] == [
        {"numa_nodes": [0], "preferred": True},
        {"numa_nodes": [1], "preferred": True},
        {"numa_nodes": [0, 1], "preferred": False},
    ]
    assert merge["hints"][NIC][0] == {"numa_nodes": [1], "preferred": True}
    assert merge["summary"] == "single-numa-node: aligned to node 1"
    assert answer["holders"] == [
        {
            "pod": "default/a",
            "uid": answer["holders"][0]["uid"],
            "container": "main",
            "resource": GPU,
            "device_ids": ["gpu-0"],
        }
    ]
    assert report["notes"] == []


def test_json_of_a_rejection(pod: Any, capsys: Any) -> None:
    status, report = data(capsys, pod("a", {GPU: 2}), "--devices", f"{GPU}=2@0,1", *SINGLE)
    (step,) = report["pods"][0]["steps"]
    assert status == 1
    _, short = data(capsys, pod("a", {GPU: 2}), "--devices", f"{GPU}=1@0", *SINGLE)
    summary = short["pods"][0]["steps"][0]["merge"]["summary"]
    assert summary.endswith("fits nowhere: 2 requested, 1 free")
    assert step["merge"]["faults"] == {GPU: "wide"}
    assert step["merge"]["other_policies_admitting"] == ["restricted", "best-effort", "none"]


def test_listed_policies_really_admit_the_pod(pod: Any, capsys: Any) -> None:
    argv = [pod("a", {GPU: 1}), pod("b", {GPU: 2}), "--devices", f"{GPU}=3@0,1"]
    _, report = data(capsys, *argv, "--unhealthy", f"{GPU}=gpu-2", *SINGLE)
    said = report["pods"][0]["steps"][0]["merge"]["other_policies_admitting"]
    # One GPU is free, so no policy can allocate two; with free GPUs on both nodes, some can.
    assert said == ["best-effort", "none"]
    _, out, _ = explain(capsys, *argv, "--unhealthy", f"{GPU}=gpu-2", *SINGLE)
    assert f"no other policy would help: not enough free: {GPU}" in out
    for policy in ("restricted", "best-effort", "none"):
        _, report = data(capsys, *argv, *SINGLE)
        said = report["pods"][0]["steps"][0]["merge"]["other_policies_admitting"]
        assert (explain(capsys, *argv, "--topology-policy", policy)[0] == 0) == (policy in said)


def test_cpus_of_the_machine_are_aligned(pod: Any, capsys: Any, tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("{nodes: 0-1, cpus: {0: 0-3, 1: 4-7}}")
    wants = {"cpu": 3, "memory": "1Gi", GPU: 1}
    argv = [pod("a", wants), pod("b", wants), "--numa", str(machine), *SINGLE]
    assert explain(capsys, *argv, "--devices", f"{GPU}=2@0,1")[0] == 0
    status, out, _ = explain(capsys, *argv, "--devices", f"{GPU}=2@0")
    assert status == 1
    assert "  cpu fits on node 1!, nodes 0+1 (! preferred)\n" in out
    assert "cpu can be aligned to node 1; there is no common node" in out


def test_unknown_resource_suggests_a_similar_name(pod: Any, capsys: Any) -> None:
    typo = f"{GPU}u"
    argv = [pod("a", {typo: 1, NIC: 0, "cpu": 1}), "--devices", f"{GPU}=2"]
    status, out, _ = explain(capsys, *argv)
    assert status == 0  # like the kubelet: admitted without the device
    assert f"{typo}: 1 requested, not registered: the kubelet ignores this request" in out
    why = f"no plugin has registered {typo}; did you mean {GPU}?"
    assert out.endswith(f"\n\nwarning: {why}\n")
    status, out, _ = explain(capsys, *argv, "--strict")
    assert status == 1
    assert out.startswith("pod default/a rejected: ")
    status, report = data(capsys, *argv, "--declare", typo)
    assert (status, report["pods"][0]["reason"]) == (1, "UnexpectedAdmissionError")
    assert report["pods"][0]["unregistered"] == {typo: why}


def test_unknown_resource_without_similar_name(pod: Any, capsys: Any) -> None:
    _, out, _ = explain(capsys, pod("a", {NIC: 1}), "--devices", "example.org/disk=1")
    assert out.endswith(f"\nwarning: no plugin has registered {NIC}\n")


def test_devices_flag_rejects_invalid_resource_names(pod: Any, capsys: Any) -> None:
    status, _, err = explain(capsys, pod("a", {GPU: 1}), "--devices", "gpu=1")
    assert status == 2
    assert "argument --devices: invalid resource 'gpu': expected a name with a domain" in err


def test_node_without_devices_is_an_error(pod: Any, capsys: Any) -> None:
    assert explain(capsys, pod("a", {GPU: 1})) == (
        2,
        "",
        "devicemanager: error: the node has no devices: use --devices, --checkpoint, "
        "--allocatable, --snapshot or --claims\n",
    )


def test_manifest_from_standard_input(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(pod_manifest("a", {GPU: 1}))))
    status, out, _ = explain(capsys, "-", "--devices", f"{GPU}=1")
    assert (status, out.splitlines()[0]) == (0, "pod default/a admitted")
    monkeypatch.setattr("sys.stdin", io.StringIO("word"))
    status, _, err = explain(capsys, "-", "--devices", f"{GPU}=1")
    assert status == 2
    assert "kind: Pod" in err


# --- a real node's files


@pytest.fixture
def node(tmp_path: Path) -> list[str]:
    """Two GPUs on each of two nodes: one of each is allocated, one is unhealthy."""
    entries = (
        PodDevicesEntry("u-1", "main", GPU, {0: ("g0",)}, b""),
        PodDevicesEntry("u-2", "main", GPU, {1: ("g2",)}, b""),
        PodDevicesEntry("u-2", "side", GPU, {-1: ("lost",)}, b""),
    )
    saved = tmp_path / "saved"
    saved.write_bytes(checkpoint.dumps(Checkpoint(entries, {GPU: ("g0", "g1", "g2", "g3")})))
    rows = [
        {"resource_name": GPU, "device_ids": ["g0", "g1"], "numa_nodes": [0]},
        {"resource_name": GPU, "device_ids": ["g2"], "numa_nodes": [1]},
        {"resource_name": GPU, "device_ids": ["g3"], "numa_nodes": [1]},
    ]
    allocatable = tmp_path / "node.json"
    allocatable.write_text(json.dumps({"devices": rows}))
    return ["--checkpoint", str(saved), "--allocatable", str(allocatable)]


def test_checkpoint_with_allocatable_devices(node: Any, pod: Any, capsys: Any) -> None:
    status, out, _ = explain(capsys, pod("a", {GPU: 2}), *node, *SINGLE)
    assert status == 1
    assert (
        "    node 0  [#.] 1 of 2 free\n    node 1  [#.] 1 of 2 free\n    no node [#]  0 of 1 free\n"
    ) in out
    assert "free only across nodes 0+1; fewer nodes would be enough if no device were in use" in out
    assert out.endswith(
        "in use:\n"
        f"  {GPU} g0: pod u-1, container main\n"
        f"  {GPU} g2: pod u-2, container main\n"
        f"  {GPU} lost: pod u-2, container side\n"
    )
    assert explain(capsys, pod("a", {GPU: 1}), *node, *SINGLE)[0] == 0
    assert explain(capsys, pod("a", {GPU: 2}), *node, *SINGLE, "--devices", f"{GPU}=1@1")[0] == 0


def test_checkpoint_alone_notes_unknown_numa_nodes(node: Any, pod: Any, capsys: Any) -> None:
    alone = node[:2]
    status, out, _ = explain(capsys, pod("a", {GPU: 2}), *alone, *SINGLE)
    assert status == 1
    assert "    no node [..#] 2 of 3 free\n" in out
    note = (
        f"the explanation may be wrong: the NUMA nodes of 3 devices of {GPU} are not in the "
        "checkpoint; use --allocatable"
    )
    assert out.endswith(f"\n\nnote: {note}\n")
    _, report = data(capsys, pod("a", {GPU: 2}), *alone, *SINGLE)
    assert report["notes"] == [note]
    # With policy none, NUMA nodes do not matter.
    assert "note: " not in explain(capsys, pod("a", {GPU: 2}), *alone)[1]


def test_pod_in_the_checkpoint_keeps_its_devices(node: Any, pod: Any, capsys: Any) -> None:
    _, report = data(capsys, pod("again", {GPU: 1}, uid="u-1"), *node, *SINGLE)
    assert report["pods"][0]["steps"][0]["resources"][0]["chosen"] == ["g0"]
    assert report["notes"] == [
        "pod default/again is in the checkpoint already and keeps its devices"
    ]
    _, report = data(capsys, pod("new", {GPU: 1}), *node)
    assert report["notes"] == []


def test_pod_in_the_checkpoint_shows_its_container_settings(
    pod: Any, capsys: Any, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    answer = settings_to_bytes(ContainerSettings(envs={"GPU": "g1"}, cdi_devices=("v/c=absent",)))
    entries = (
        PodDevicesEntry("u", "main", GPU, {-1: ("g0",)}, settings_to_bytes(GIVEN)),
        PodDevicesEntry("u", "main-2", GPU, {-1: ("g1",)}, answer),
    )
    saved.write_bytes(checkpoint.dumps(Checkpoint(entries, {GPU: ("g0", "g1")})))
    again = pod("again", {GPU: 1}, {GPU: 1}, uid="u")
    _, report = data(capsys, again, "--checkpoint", str(saved))
    main, side = (report["pods"][0]["containers"][name] for name in ("main", "main-2"))
    assert main == {"oci": {"process": {"env": ["GPU=g0"]}}, "oci_error": None}
    assert side["oci"] is None
    assert side["oci_error"].startswith("unresolvable CDI devices v/c=absent: searched /etc/cdi")


def test_allocated_device_that_is_not_registered_is_unhealthy(
    pod: Any, capsys: Any, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    entry = PodDevicesEntry("u-1", "main", GPU, {-1: ("lost",)}, b"")
    saved.write_bytes(checkpoint.dumps(Checkpoint((entry,), {GPU: ("g1",)})))
    status, out, _ = explain(capsys, pod("again", {GPU: 1}, uid="u-1"), "--checkpoint", str(saved))
    assert status == 1
    assert "previously allocated devices are no longer healthy" in out
    assert out.endswith("\nnote: pod default/again is in the checkpoint already\n")


def test_device_on_several_numa_nodes(pod: Any, capsys: Any, tmp_path: Path) -> None:
    rows = [{"resource_name": GPU, "device_ids": ["g"], "numa_nodes": [node]} for node in (0, 1)]
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"devices": rows}))
    _, out, _ = explain(capsys, pod("a", {GPU: 1}), "--allocatable", str(file))
    assert "    node 0 [*] 1 of 1 free\n    node 1 [*] 1 of 1 free\n" in out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--checkpoint", "none"], "none: No such file or directory"),
        (["--allocatable", "none"], "none: No such file or directory"),
        (
            ["--allocatable", "list"],
            "invalid file list: expected the output of `devicemanager resources -o json`",
        ),
        (
            ["--allocatable", "text"],
            "invalid file text: expected the output of `devicemanager resources -o json`",
        ),
        (
            ["--unhealthy", f"{GPU}=gpu-7"],
            f"unknown device gpu-7 of {GPU}: use one of gpu-0, gpu-1",
        ),
        (["--topology-policy", "restricted", "--topology-option", "x=1"], 'Policy option: "x"'),
        (["--numa", "none"], "invalid --numa 'none': use `host`"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    argv: list[str], text: str, pod: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list").write_text("[1]")
    Path("text").write_text("devices")
    status, out, err = explain(capsys, pod("a", {GPU: 1}), "--devices", f"{GPU}=2", *argv)
    assert (status, out) == (2, "")
    assert text in err
    assert len(err.splitlines()) == 1


def test_repeated_pod_is_an_error(pod: Any, capsys: Any) -> None:
    first, again = pod("a", {GPU: 1}, uid="u"), pod("b", {GPU: 1}, uid="u")
    for second in (first, again):
        status, _, err = explain(capsys, first, second, "--devices", f"{GPU}=2")
        name = "a" if second is first else "b"
        assert (status, err) == (
            2,
            f"devicemanager: error: {second}: pod default/{name} (UID u) is also in {first}: "
            "remove one, or change its name or metadata.uid\n",
        )


@pytest.mark.parametrize("count", ["1000000", "99999999999", "60000@0,60000@1"])
def test_too_many_devices_are_an_error(count: str, capsys: Any) -> None:
    status, _, err = explain(capsys, "pod.yaml", "--devices", f"{GPU}={count}")
    assert status == 2
    assert err.splitlines()[-1] == (
        f"devicemanager explain: error: argument --devices: invalid devices '{GPU}={count}': too "
        "many devices: use at most 100000; kubelets reject longer lists"
    )


def test_device_ids_sort_by_number(pod: Any, capsys: Any) -> None:
    _, out, _ = explain(capsys, pod("a", {GPU: 11}), "--devices", f"{GPU}=11")
    assert "chosen: gpu-00, gpu-01, gpu-02," in out
