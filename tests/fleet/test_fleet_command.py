"""``devicemanager snapshot cluster``, ``fleet`` and ``join --fleet``, and the page about them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.cli import main
from devicemanager.fleet import Fleet, fields, fleet_archive
from devicemanager.snapshot import archive
from podresources import Allocatable, ContainerDevices
from tests.cli.test_rehearse_command import MANIFEST
from tests.fleet.made_up import EVERYTHING, GPU, TEMPLATE, node
from tests.fleet.test_fleet import load_all
from tests.paths import ROOT
from tests.snapshot.made_up import TAKEN, WHOLE
from tests.snapshot.test_broken_node_page import fits

PAGE = (ROOT / "docs/fleet.md").read_text()


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_commands_print_what_the_page_shows(capsys: Any) -> None:
    shown = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.M)
    assert len(shown) == 3
    for command, expected in shown:
        main(shlex.split(command)[1:])
        printed = capsys.readouterr().out
        assert fits(printed.splitlines(), expected.splitlines()), printed


def test_step_that_no_node_can_do_is_an_error(capsys: Any) -> None:
    argv = ["fleet", "rehearse", "fleet.tar.gz", "--without-plugin", "vendor.com/gqu", "--reboot"]
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert "no node can be rehearsed: node-a: unknown resource vendor.com/gqu: the node" in err


def test_python_example_of_the_page_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "fleet.md", "exec"), names)
    assert names["nodes_that_can_lose_pods"]("fleet.tar.gz") == ["node-a", "node-b"]


def test_a_cluster_is_collected_with_snapshots_of_nodes(apiserver: Any, capsys: Any) -> None:
    load_all(apiserver)
    kubeconfig = str(apiserver.kubeconfig(Path("kubeconfig")))
    Path("node.tar.gz").write_bytes(archive(WHOLE))
    take = ["snapshot", "cluster", "--kubeconfig", kubeconfig, "-o", "new.tar.gz"]
    status, out, _ = run(capsys, *take)
    assert (status, out.partition(";")[0]) == (0, "new.tar.gz: 3 nodes, 6 pods")
    assert main([*take, "--node-snapshot", "node.tar.gz"]) == 2
    assert "node.tar.gz: the cluster has no node worker-1" in capsys.readouterr().err
    assert run(capsys, "fleet", "show", "new.tar.gz")[0] == 1


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["fits", "pod.yaml", "fleet.tar.gz"], 0),
        (["fits", "pod.yaml", "fleet.tar.gz", "--replicas", "3"], 1),
        (["rehearse", "fleet.tar.gz", "--restart"], 0),
        (["rehearse", "fleet.tar.gz", "--reboot"], 1),
    ],
)
def test_exit_status_says_if_something_is_wrong(argv: list[str], status: int, capsys: Any) -> None:
    assert run(capsys, "fleet", *argv)[0] == status
    status_json, out, _ = run(capsys, "fleet", *argv, "-o", "json")
    assert status_json == status
    assert json.loads(out)["assumptions"]


@pytest.mark.parametrize(
    ("argv", "schema"),
    [
        (["show", "pod.yaml"], "fleet-report"),
        (["fits", "pod.yaml", "pod.yaml"], "fleet-fit"),
        (["rehearse", "pod.yaml", "--reboot"], "fleet-rehearsal"),
    ],
)
def test_json_of_an_error_names_the_file(argv: list[str], schema: str, capsys: Any) -> None:
    status, out, err = run(capsys, "fleet", *argv, "-o", "json")
    data = json.loads(out)
    assert (status, data["schema"]) == (2, f"devicemanager.{schema}/v1")
    assert data["file"] == "pod.yaml" and data["error"] in err


def test_json_of_show_has_what_the_text_shows(capsys: Any) -> None:
    _, text, _ = run(capsys, "fleet", "show", "fleet.tar.gz")
    status, out, _ = run(capsys, "fleet", "show", "fleet.tar.gz", "-o", "json")
    data = json.loads(out)
    first = f"{len(data['nodes'])} nodes of {data['server']}, {data['taken']}, kubelet "
    assert (status, text.startswith(first)) == (1, True)
    assert all(f"\nassumed: {each}\n" in text for each in data["assumptions"])
    assert text.count("\nassumed: ") == len(data["assumptions"]) > 1
    assert [each in text for each in data["splits"]] == [True, True]
    assert [each["allocated"] for each in data["pools"]] == [1]
    assert data["sizes"] and {each["resource"] for each in data["resources"]} == {GPU}


@pytest.mark.parametrize(("count", "last"), [(20, "node-19"), (22, "… and 2 more: use -o json")])
def test_at_most_twenty_problems_are_shown(count: int, last: str, capsys: Any) -> None:
    nodes = [node(f"node-{number:02}", 4, healthy=3) for number in range(count)]
    Path("many.tar.gz").write_bytes(fleet_archive(Fleet(TAKEN, "0", "s", (), {"nodes": nodes})))
    status, out, _ = run(capsys, "fleet", "show", "many.tar.gz")
    assert (status, out.count("WARNING: ")) == (1, 20)
    before, _, _ = out.partition("\nbasis: ")
    assert last in before.splitlines()[-1]


def test_notes_are_not_problems(capsys: Any) -> None:
    devices = (ContainerDevices(GPU, ("g0", "g1", "g2", "g3")),)
    without_numa = attrs.evolve(WHOLE, allocatable=Allocatable(devices))
    fleet = Fleet(TAKEN, "0", "s", (), {"nodes": [node("worker-1", 4)]})
    for snapshot, lines in ((WHOLE, 0), (without_numa, 1)):
        archives = {"worker-1": archive(snapshot)}
        Path("one.tar.gz").write_bytes(fleet_archive(attrs.evolve(fleet, archives=archives)))
        status, out, _ = run(capsys, "fleet", "show", "one.tar.gz")
        assert (status, out.count("NOTE: worker-1: ")) == (0, lines)


@pytest.mark.parametrize(("replicas", "quotas"), [("2", []), ("3", [2])])
def test_quotas_that_do_not_limit_the_copies_are_left_out(
    replicas: str, quotas: list[int], capsys: Any
) -> None:
    argv = ["fleet", "fits", "pod.yaml", "fleet.tar.gz", "--replicas", replicas, "-o", "json"]
    data = json.loads(run(capsys, *argv)[1])
    assert [each["pods"] for each in data["quotas"]] == quotas
    assert data["basis"].startswith("kubelet 1.36.1")
    assert (data["replicas"], data["pods"]) == (int(replicas), 2)


def test_quotas_and_reasons_are_named(capsys: Any) -> None:
    _, out, _ = run(capsys, "fleet", "fits", "pod.yaml", "fleet.tar.gz", "--replicas", "3")
    assert out.startswith(
        "the pod does not fit; copies that fit: 2 of 3; nodes with room: 2 of 3\n"
    )
    assert f"- quota gpus: requests.{GPU} allows 2 more copies\n" in out
    assert "- 1 node: the pod does not tolerate a taint of the node\n" in out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["rehearse", "fleet.tar.gz"], "no step: add one, such as --reboot"),
        (["show", "pod.yaml"], "pod.yaml: not a fleet"),
        (["fits", "two.yaml", "fleet.tar.gz"], "two.yaml: expected one Pod, found 2"),
        (["fits", "bad.yaml", "fleet.tar.gz"], "spec.containers: Required value"),
    ],
)
def test_mistakes_are_one_line(argv: list[str], text: str, capsys: Any) -> None:
    Path("two.yaml").write_text(f"{MANIFEST}---\n{MANIFEST}")
    Path("bad.yaml").write_text("{kind: Pod, apiVersion: v1, metadata: {name: a}, spec: {}}")
    status, _, error = run(capsys, "fleet", *argv)
    assert (status, error.count("\n")) == (2, 1)
    assert text in error


@pytest.mark.parametrize("option", ["--processes", "--replicas"])
def test_numbers_of_processes_and_replicas_are_positive(option: str, capsys: Any) -> None:
    argv = ["fleet", "fits", "pod.yaml", "fleet.tar.gz", "-o", "json"]
    default = json.loads(run(capsys, *argv)[1])
    assert default["replicas"] == 1
    assert json.loads(run(capsys, *argv, option, "1")[1]) == default
    status, _, err = run(capsys, *argv, option, "0")
    assert status == 2 and f"argument {option}: " in err


def test_templates_come_with_the_pod(capsys: Any) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "half"}]
    spec = {"containers": [{"name": "main", "image": "i"}], "resourceClaims": claims}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    metadata = {"name": "half", "namespace": "default"}
    documents = [pod, {**TEMPLATE, "metadata": metadata}]
    Path("claims.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    status, out, _ = run(capsys, "fleet", "fits", "claims.yaml", "fleet.tar.gz", "--replicas", "2")
    assert status == 1
    assert out.startswith("the pod does not fit; copies that fit: 1 of 2;")


def test_join_fleet_runs_the_nodes_and_pods(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("devicemanager")
    command = [str(program), "join", "--demo", "--plain", "--fleet", "fleet.tar.gz"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "ready" in line:
                process.send_signal(signal.SIGTERM)
    text = "".join(lines)
    assert process.returncode == 0
    assert "3 nodes joined" in text and "created 3 pods of the fleet" in text


def test_join_fleet_excludes_other_nodes(capsys: Any) -> None:
    for option in (["--nodes", "3"], ["--full", "1"], ["--prefix", "n"]):
        assert run(capsys, "join", "--demo", "--fleet", "fleet.tar.gz", *option)[0] == 2


def test_processes_end_when_their_parent_is_killed() -> None:
    program = """
import os, sys, time
from devicemanager.fleet.parallel import in_processes
def work(number):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
list(in_processes(work, range(20), 2))
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(2)}
        process.kill()
        # The processes hold the other end of this pipe until they end.
        assert process.stdout.read() == ""
    assert len(pids) == 2 and os.getpid() not in pids
