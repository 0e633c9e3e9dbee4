"""What all commands share: help, suggestions, list formats and the wording of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.cli import main
from devicemanager.cli.options import LIST_FORMATS
from podresources import Allocatable, ContainerDevices, MemorySource, Pod, PodResourcesServer


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_command_without_arguments_prints_its_help(capsys: Any) -> None:
    assert run(capsys) == run(capsys, "--help")
    assert run(capsys)[0] == 0


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("rnu", "run"),
        ("--debgu run", "--debug"),
        ("run --rot x", "--root"),
        ("run --rot=x", "--root"),
        ("ctl wiat pod", "wait"),
        ("claims lst", "list"),
        ("run --topology-policy bestefort", "best-effort"),
        ("pods -o jsn", "json"),
    ],
)
def test_mistyped_word_gets_a_suggestion(line: str, meant: str, capsys: Any) -> None:
    status, out, err = run(capsys, *line.split())
    assert (status, out) == (2, "")
    assert err.endswith(f"; did you mean {meant}?\n")


def test_word_unlike_all_others_gets_no_suggestion(capsys: Any) -> None:
    _, _, err = run(capsys, "xyzzy")
    assert "choose from" in err and "did you mean" not in err


@pytest.mark.parametrize(
    "line",
    [
        "checkpoint show /nosuch",
        "checkpoint diff /nosuch /nosuch",
        "claims validate /nosuch",
        "claims list --claims /nosuch",
        "claims list --state /nosuch",
        "snapshot show /nosuch",
        "explain --snapshot /nosuch pod.yaml",
        "explain --devices a.b/c=1 /nosuch",
        "replay /nosuch",
        "podresources serve /nosuch",
        "run --manifests /nosuch --root /tmp/unused",
        "run --claims /nosuch --root /tmp/unused",
        "run --faults /nosuch --root /tmp/unused",
        "check --waivers /nosuch -- true",
        "join --kubeconfig /nosuch",
        "ctl --control /tmp/unused --token-file /nosuch pods",
    ],
)
def test_missing_file_has_the_same_wording_everywhere(line: str, capsys: Any) -> None:
    status, out, err = run(capsys, *line.split())
    assert (status, out) == (2, "")
    assert "/nosuch: No such file or directory" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "ctl",
            """\
examples, with `devicemanager run --root ./node --control` in another terminal:
  export DEVICEMANAGER_CONTROL=./node
  devicemanager ctl admit pod.yaml
""",
        ),
        (
            "ctl nodes",
            """\
examples, with `devicemanager join --root ./nodes --control` in another terminal:
  export DEVICEMANAGER_CONTROL=./nodes
  devicemanager ctl nodes list
""",
        ),
        ("rehearse", "examples:\n  devicemanager rehearse node.tar.gz --reboot\n"),
        ("claims", "example with virtual hardware:\n  devicemanager claims explain train "),
        ("explain", "examples:\n  devicemanager explain pod.yaml --devices vendor.com/gpu=4@0,1 "),
        (
            "completion",
            "to enable it in every shell (create the directory first):\n"
            "  bash:  devicemanager completion bash > ",
        ),
        ("snapshot", "examples:\n  devicemanager snapshot -o node.tar.gz "),
    ],
)
def test_help_ends_with_examples_on_lines_of_their_own(
    command: str, lines: str, capsys: Any
) -> None:
    status, out, _ = run(capsys, *command.split(), "--help")
    assert status == 0
    assert f"\n\n{lines}" in out


@pytest.fixture
def lists(directory: Path) -> Any:
    source = MemorySource([Pod("train", "ml")], Allocatable((ContainerDevices("a.b/c", ("0",)),)))
    with PodResourcesServer(source, directory / "kubelet.sock") as server:
        socket = ["--socket", str(server.socket_path)]
        claims = ["--claims", "examples/claims", "--simulate-pools", "gpu=1"]
        yield {
            "pods": (["pods", *socket], "ml/train"),
            "resources": (["resources", *socket], "a.b/c"),
            "claims": (["claims", "list", *claims], "default/accelerator"),
            "pools": (["claims", "pools", *claims], "mock-gpu-0"),
        }


@pytest.mark.parametrize("name", ["pods", "resources", "claims", "pools"])
def test_every_list_has_the_same_formats(name: str, lists: Any, capsys: Any) -> None:
    words, first = lists[name]
    shown = {form: run(capsys, *words, "-o", form) for form in LIST_FORMATS}
    assert {status for status, _, _ in shown.values()} == {0}
    data = json.loads(shown["json"][1])
    assert yaml.safe_load(shown["yaml"][1]) == data and "schema" in data
    assert shown["name"][1].splitlines()[0] == first
    assert len(shown["wide"][1].splitlines()) == len(shown["table"][1].splitlines())
    assert all(
        wide.startswith(table.split()[0])
        for table, wide in zip(
            shown["table"][1].splitlines(), shown["wide"][1].splitlines(), strict=True
        )
    )


def test_wide_list_of_claims_has_cdi_devices(lists: Any, capsys: Any) -> None:
    words, _ = lists["claims"]
    assert run(capsys, *words, "-o", "wide")[1].splitlines()[0].endswith("CDI DEVICES")
