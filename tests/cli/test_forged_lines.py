"""Texts of plugins, checkpoints and manifests cannot look like a line of ours."""

from __future__ import annotations

import json

import pytest
import yaml

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import main
from devicemanager.cli.output import lines_of, print_yaml
from devicemanager.control import ControlServer
from devicemanager.testing import pod_manifest

GPU = "vendor.com/gpu"
ENDS = ["\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
FORGED = "pod default/other admitted"


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod_manifest("a", {GPU: 1}, uid="uid-a")))
    return str(path)


@pytest.mark.parametrize("end", ENDS)
def test_explain_escapes_line_ends_in_device_ids(end, tmp_path, manifest, capsys):
    path = tmp_path / "checkpoint"
    forged = f"gpu-0{end}{FORGED}"
    entry = PodDevicesEntry("uid-b", "main", GPU, {0: (forged,)}, b"")
    path.write_bytes(checkpoint.dumps(Checkpoint((entry,), {GPU: (forged,)})))
    assert main(["explain", manifest, "--checkpoint", str(path)]) == 1
    out = capsys.readouterr().out
    assert "gpu-0" in out
    assert FORGED not in out.splitlines()


# A fault's text cannot contain a newline.
@pytest.mark.parametrize("end", ENDS[1:])
def test_ctl_admit_escapes_line_ends_in_messages(
    end, make_mock_kubelet, simulated_plugin, manifest, monkeypatch, capsys
):
    kubelet = make_mock_kubelet()
    simulated_plugin(GPU, 1, kubelet=kubelet)
    kubelet.faults.set("fail-call", rpc="Allocate", text=f"x{end}{FORGED}")
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(kubelet.root))
    with ControlServer(kubelet):
        assert main(["ctl", "admit", manifest]) == 1
    out = capsys.readouterr().out
    assert FORGED in out
    assert FORGED not in out.splitlines()


def test_text_of_another_server_is_split_only_at_newlines():
    assert lines_of("a\x85b\n\nc\u2028d\n") == ["a\\x85b", "", "c\\u2028d"]


@pytest.mark.parametrize("hidden", ["\u202e", "\ufeff", "\U000e0041", "\u2066", "\x1b", "\u200b"])
def test_yaml_escapes_invisible_characters(hidden, capsys):
    value = {"name": f"größe{hidden}x", "a": 1}
    print_yaml(value)
    out = capsys.readouterr().out
    assert hidden not in out
    assert list(yaml.safe_load(out).items()) == list(value.items())


def test_yaml_keeps_readable_characters(capsys):
    print_yaml({"b": "größe", "a": ["東京"]})
    assert capsys.readouterr().out == "b: größe\na:\n- 東京\n"
