"""``devicemanager snapshot`` and ``snapshot show``."""

from __future__ import annotations

import gzip
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.cli import main
from devicemanager.snapshot import archive, layout
from devicemanager.testing import pod_manifest
from podresources import Allocatable
from tests.snapshot.made_up import GPU, WHOLE, pod, saved, without


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["snapshot", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def shown(tmp_path: Path, capsys: Any) -> Any:
    """Function that runs ``snapshot show`` on a snapshot."""

    def show(snapshot: Any, *argv: str) -> tuple[int, str, str]:
        (tmp_path / "s.tar.gz").write_bytes(archive(snapshot))
        return run(capsys, "show", str(tmp_path / "s.tar.gz"), *argv)

    return show


def test_snapshot_of_a_mock_kubelet_shows_its_devices(
    mock_kubelet: Any, simulated_plugin: Any, tmp_path: Path, capsys: Any
) -> None:
    plugin = simulated_plugin(GPU, 2)
    mock_kubelet.admit(pod_manifest("train", {GPU: 1}))
    file = tmp_path / "node.tar.gz"
    where = ["--root", str(mock_kubelet.root), "-o", str(file)]
    status, out, err = run(capsys, *where)
    assert (status, err) == (0, "")
    assert out.startswith(f"{file}: 5 of 11 parts; not on this node: cpu_manager_state")
    assert file.stat().st_mode & 0o777 == 0o600
    status, out, _ = run(capsys, "show", str(file))
    assert status == 0
    assert "no problems found\n" in out
    assert f"{GPU}  2              2            1          gpu-mock-0,gpu-mock-1\n" in out
    assert f"({os.getpid()})" in out
    file.unlink()
    plugin.stop()
    mock_kubelet.wait_for_resource(GPU, 0)
    assert run(capsys, *where)[0] == 0
    status, out, _ = run(capsys, "show", str(file))
    assert status == 1
    assert f"ERROR: {GPU}: no device is allocatable\n" in out
    assert "  in use by default/train\n" in out
    assert "https://github.com/kubernetes/kubernetes/issues/121994" in out


def test_existing_file_is_not_overwritten(mock_kubelet: Any, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    status, out, err = run(capsys, "--root", str(mock_kubelet.root), "-o", str(file))
    assert (status, out, file.read_text()) == (2, "", "mine")
    assert err == f"devicemanager: error: {file} already exists: use another file name\n"


def test_full_disk_leaves_no_partial_file(mock_kubelet: Any, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "whole"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        status, out, err = run(capsys, "--root", str(mock_kubelet.root), "-o", str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (status, out) == (2, "")
    assert err == f"devicemanager: error: {file}: File too large\n"
    assert not file.exists()


def test_default_file_name_has_node_and_time(
    mock_kubelet: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "--root", str(mock_kubelet.root))[0] == 0
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("snapshot-")
    assert made.name.endswith("Z.tar.gz")


def test_snapshot_can_be_piped(
    mock_kubelet: Any, capsysbinary: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    assert main(["snapshot", "--root", str(mock_kubelet.root), "-o", "-"]) == 0
    captured = capsysbinary.readouterr()
    assert captured.err.startswith(b"-: 4 of 11 parts")
    (tmp_path / "piped").write_bytes(captured.out)
    with (tmp_path / "piped").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["snapshot", "show", "-"]) == 0


def test_directory_without_a_kubelet_is_a_one_line_error(tmp_path: Path, capsys: Any) -> None:
    status, out, err = run(capsys, "--root", str(tmp_path), "-o", str(tmp_path / "x"))
    assert (status, out) == (2, "")
    assert "no files of a kubelet found in" in err
    assert not (tmp_path / "x").exists()


def test_unreadable_source_of_several_parts_warns_once(
    mock_kubelet: Any, tmp_path: Path, capsys: Any
) -> None:
    """PodResources is the source of pods and of allocatable devices."""
    path, root = mock_kubelet.pod_resources_socket, mock_kubelet.root
    mock_kubelet.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        _, _, err = run(capsys, "--root", str(root), "-o", str(tmp_path / "node.tar.gz"))
    assert err == f"devicemanager: warning: {path}: no process is listening: not in the snapshot\n"


def test_other_compressed_file_is_an_error(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "kubelet_internal_checkpoint.gz"
    file.write_bytes(gzip.compress(b"x" * 2000))
    for words in (["snapshot", "show"], ["checkpoint", "verify"]):
        assert main([*words, str(file)]) == 2
        assert capsys.readouterr().err == (
            f"devicemanager: error: {file}: not a snapshot: compressed, but not a tar archive "
            "(invalid header); if it is a checkpoint, decompress it first\n"
        )


def test_unreadable_part_is_a_warning_and_in_the_report(
    mock_kubelet: Any, tmp_path: Path, capsys: Any
) -> None:
    (mock_kubelet.root / "cpu_manager_state").mkdir()
    file = tmp_path / "node.tar.gz"
    _, out, err = run(capsys, "--root", str(mock_kubelet.root), "-o", str(file))
    seen = f"{mock_kubelet.root}/cpu_manager_state: it is a directory, not a regular file"
    assert err == f"devicemanager: warning: {seen}: not in the snapshot\n"
    assert "4 of 11 parts; not on this node: kubelet_internal_checkpoint, memory" in out
    _, out, _ = run(capsys, "show", str(file))
    assert "\nno problems found, but 1 part could not be read\n" in out
    assert f"\ncould not be read:\n  cpu_manager_state: {seen}\n" in out
    assert "  memory_manager_state: " in out


def test_report_begins_with_problems(shown: Any) -> None:
    status, out, err = shown(attrs.evolve(WHOLE, pods=(pod("a", "g0"), pod("b", "g0"))))
    lines = out.splitlines()
    assert (status, err) == (1, "")
    assert lines[0] == "node worker-1, 2026-01-31T12:00:00Z, kubelet in /var/lib/kubelet"
    assert lines[2:9] == [
        "1 error",
        "",
        f"ERROR: device g0 of {GPU} is allocated to 2 pods: ml/a, ml/b",
        "  according to PodResources",
        "  -> delete one of the pods, and do not trust what the device computed while both had it",
        "  -> do not restart the kubelet or a container before you delete the pod: both "
        "pods would get the device again",
        "  see docs/broken-node.md#two-pods-on-one-device "
        "https://github.com/kubernetes/kubernetes/issues/137534 "
        "https://github.com/kubernetes/kubernetes/issues/75880",
    ]
    assert "topology policy restricted, scope container" in lines
    assert "NUMA nodes 0,1" in lines


def test_report_as_json(shown: Any) -> None:
    status, out, _ = shown(attrs.evolve(WHOLE, allocatable=Allocatable()), "-o", "json")
    data = json.loads(out)
    assert (status, data["schema"]) == (1, "devicemanager.snapshot-report/v1")
    (found,) = data["findings"]
    assert (found["kind"], found["severity"]) == ("resource-without-plugin", "error")
    assert found["device_ids"] == ["g0", "g1", "g2", "g3"]
    assert found["pods"] == ["ml/infer", "ml/train"]
    assert data["pods"] == {"u-infer": "ml/infer", "u-train": "ml/train"}
    assert data["resources"] == [
        {"resource_name": GPU, "in_checkpoint": 4, "allocatable": 0, "held": 3}
    ]
    bare = attrs.evolve(WHOLE, pods=(), checkpoint=saved())
    (row,) = json.loads(shown(bare, "-o", "json")[1])["resources"]
    assert (row["in_checkpoint"], row["held"]) == (4, 0)
    blind = without(WHOLE, layout.POD_RESOURCES, "no permission")
    assert json.loads(shown(blind, "-o", "json")[1])["resources"][0]["held"] is None
    status, out, _ = shown(WHOLE, "-o", "json")
    assert (status, json.loads(out)["findings"]) == (0, [])


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\ufeff", "\U000e0041", "\u2028", "\r"])
def test_invisible_characters_in_names_are_escaped(hidden: str, shown: Any) -> None:
    given = attrs.evolve(WHOLE, node=f"n{hidden}", pods=(pod(f"p{hidden}", "g0"),))
    _, out, _ = shown(given)
    assert hidden not in out


def test_terminal_sequences_in_names_are_escaped(shown: Any) -> None:
    _, out, _ = shown(attrs.evolve(WHOLE, node="\x1b[31m\u202eevil", pods=(pod("\x1b]0;x", "g0"),)))
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31m\\u202eevil" in out


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", gzip.compress(b"x" * 600), b"\x1f\x8b\x08"],
    ids=["empty", "json", "no tar", "cut off"],
)
def test_invalid_snapshot_is_a_one_line_error(content: bytes, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    status, out, err = run(capsys, "show", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"devicemanager: error: {file}: ")
    assert len(err.splitlines()) == 1
    status, out, err = run(capsys, "show", str(file), "-o", "json")
    data = json.loads(out)
    assert (status, data["file"]) == (2, str(file))
    assert err == f"devicemanager: error: {data['error']}\n"


def test_directory_and_missing_file_are_errors(tmp_path: Path, capsys: Any) -> None:
    assert run(capsys, "show", str(tmp_path))[2].endswith(" is a directory, not a regular file\n")
    assert run(capsys, "show", str(tmp_path / "none"))[2].endswith("No such file or directory\n")


def test_usage_of_show_is_separate(capsys: Any) -> None:
    status, _, err = run(capsys, "show")
    assert status == 2
    assert err.startswith("usage: devicemanager snapshot show [-h] [-o {text,json}] FILE\n")
    assert "devicemanager snapshot show: error: the following arguments are required" in err


def test_unknown_counts_are_question_marks(shown: Any) -> None:
    _, out, _ = shown(without(WHOLE, layout.ALLOCATABLE, "switched off"))
    assert f"{GPU}  4              ?            3 " in out


def test_snapshot_without_the_extra_can_be_taken_but_not_shown(
    mock_kubelet: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    for name in ("reading", "statefiles", "rules", "rules.alignment"):
        monkeypatch.delitem(sys.modules, f"devicemanager.snapshot.{name}", raising=False)
    file = str(tmp_path / "node.tar.gz")
    assert run(capsys, "--root", str(mock_kubelet.root), "-o", file)[0] == 0
    status, _, err = run(capsys, "show", file)
    assert (status, err) == (
        2,
        "devicemanager: error: msgspec is not installed: pip install "
        "'kubelet-devicemanager[snapshot]'\n",
    )
