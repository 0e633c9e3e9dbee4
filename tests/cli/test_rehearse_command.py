"""``devicemanager rehearse``: steps in the order of the command line, output, and errors."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.cli import main
from devicemanager.snapshot import archive
from tests.paths import ROOT
from tests.snapshot import made_up
from tests.snapshot.made_up import GPU
from tests.snapshot.test_broken_node_page import fits

WHOLE = attrs.evolve(made_up.WHOLE, dra_state=None)
PAGE = (ROOT / "docs/rehearse.md").read_text()
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: ml}
spec:
  containers:
  - name: main
    image: registry.example/train
    resources: {limits: {vendor.com/gpu: 1}}
"""


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("node.tar.gz").write_bytes(archive(WHOLE))
    Path("pod.yaml").write_text(MANIFEST)
    Path("nic.yaml").write_text(MANIFEST.replace("vendor.com/gpu", "vendor.com/nic"))


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["rehearse", "node.tar.gz", *argv])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_commands_print_what_the_page_shows(capsys: Any) -> None:
    shown = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.M)
    assert len(shown) == 2
    for command, expected in shown:
        main(shlex.split(command)[1:])
        printed = capsys.readouterr().out
        assert fits(printed.splitlines(), expected.splitlines()), printed


def test_python_example_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    Path("snapshots").mkdir()
    Path("snapshots/node.tar.gz").write_bytes(archive(WHOLE))
    names: dict[str, Any] = {}
    exec(compile(code, "rehearse.md", "exec"), names)
    names["test_upgrade_loses_no_pod"](Path("snapshots/node.tar.gz"))


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["--restart"], 0),
        (["--reboot"], 1),
        (["--drain", "--reboot"], 0),
        (["--reboot", "--drain"], 1),
        (["--kubelet-version", "1.30"], 0),
        (["--devices", f"{GPU}=3", "--restart"], 0),
        (["--without-plugin", GPU, "--reboot"], 1),
        (["--policy", "none", "--scope", "pod", "--admit", "pod.yaml"], 0),
        (["--devices", "vendor.com/nic=1@0", "--admit", "nic.yaml"], 0),
        (["--option", "max-allowable-numa-nodes=x"], 1),
    ],
)
def test_exit_status_says_if_a_pod_would_be_lost(argv: list[str], status: int, capsys: Any) -> None:
    assert run(capsys, *argv)[::2] == (status, "")


def test_json_has_the_steps_in_order(capsys: Any) -> None:
    argv = ["--devices", f"{GPU}=2", "--drain", "--reboot", "--admit", "pod.yaml", "-o", "json"]
    status, out, _ = run(capsys, *argv)
    data = json.loads(out)
    assert (status, data["schema"], data["loses_pods"]) == (0, "devicemanager.rehearsal/v1", False)
    assert data["steps"] == [
        f"set the devices of {GPU} to 2",
        "drain the node",
        "reboot the node",
        "admit pod ml/new",
    ]
    assert data["moved_devices"] == [
        {"resource": GPU, "device": "g0", "from": "ml/train", "to": "ml/new"}
    ]


def test_markdown_is_a_document(capsys: Any) -> None:
    _, out, _ = run(capsys, "--reboot", "-o", "markdown")
    assert out.startswith("## Rehearsal for node worker-1\n\n1. reboot the node\n")
    assert "**What to do first**" in out


def test_moved_devices_are_lines(capsys: Any) -> None:
    _, out, _ = run(capsys, "--drain", "--admit", "pod.yaml")
    assert f"{GPU} g0 moves from ml/train to ml/new\n" in out


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--policy", "x"], "argument --policy: unknown policy 'x': use one of none, best-effort"),
        (["--scope", "x"], "argument --scope: unknown scope 'x': use one of container, pod"),
        (["--option", "x"], "invalid topology option 'x': expected NAME=VALUE"),
        (["--devices", "x"], "invalid devices 'x': expected RESOURCE=N"),
        (["--devices", f"{GPU}=x"], "invalid devices 'x': use a form such as 8, 8@0,1 or 2@0,6@1"),
        (["--kubelet-version", "2"], "invalid kubelet version '2': use a version such as"),
        (["--admit", "none.yaml"], "none.yaml"),
        (["--without-plugin", "x"], "unknown resource x: the node has vendor.com/gpu"),
        (["--devices", "vendor.com/gqu=4"], "unknown resource vendor.com/gqu: the node has"),
        ([], "error: no step is given: add one, such as --restart or --reboot"),
    ],
)
def test_invalid_step_is_one_line(argv: list[str], line: str, capsys: Any) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert line in err.splitlines()[-1]


def test_error_is_json_too(capsys: Any) -> None:
    status, out, _ = run(capsys, "--without-plugin", "x", "-o", "json")
    assert (status, json.loads(out)["error"].startswith("unknown resource x")) == (2, True)
