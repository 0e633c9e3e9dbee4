"""``devicemanager checkpoint`` with the DRA manager's state file."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from typing import Any

import attrs
import pytest

from checkpoint import dra
from checkpoint.dra import ClaimState, Device, DriverState, State
from devicemanager.cli import main
from devicemanager.snapshot import archive, layout
from podresources import Container, DynamicResource, MemorySource, Pod, PodResourcesServer
from tests.snapshot import made_up

DRIVER = "gpu.example.com"
ONE = ClaimState(
    "ml",
    "one",
    "uid-1",
    frozenset({"u-1"}),
    {DRIVER: DriverState((Device("w", "d0", "s1", ("r",), ("a/b=c",)), Device("w", "d1")))},
)
TWO = ClaimState(
    "ml", "two", "uid-2", frozenset({"u-1", "u-2"}), {DRIVER: DriverState(None, ("*",))}
)


@pytest.fixture
def file(directory: Path) -> Path:
    path = directory / dra.STATE_NAME
    path.write_bytes(dra.dumps(State((ONE, TWO))))
    return path


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["checkpoint", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_show(file: Path, capsys: Any) -> None:
    status, out, err = run(capsys, "show", str(file))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "claim ml/one (UID uid-1)",
        "  pods: u-1",
        "  driver gpu.example.com: w/d0 share s1 for r: a/b=c",
        "  driver gpu.example.com: w/d1",
        "claim ml/two (UID uid-2)",
        "  pods: u-1, u-2",
        "  driver gpu.example.com, needs no *: no devices yet",
        f"checksum of this data: {dra.checksum(State((ONE, TWO)))}",
    ]


def test_show_as_json(file: Path, capsys: Any) -> None:
    pods = file.with_name("pods.json")
    metadata = {"uid": "u-1", "name": "train", "namespace": "ml"}
    pods.write_text(json.dumps({"items": [{"metadata": metadata}]}))
    _, out, _ = run(capsys, "show", str(file), "-o", "json", "--pods", str(pods))
    shown = json.loads(out)
    assert (shown["format"], shown["problems"]) == ("dra_manager_state", [])
    one, two = shown["claims"]
    assert one["pods"] == [{"uid": "u-1", "pod": "ml/train"}]
    assert one["drivers"][0]["devices"][0] == {
        "pool": "w",
        "device": "d0",
        "share_id": "s1",
        "requests": ["r"],
        "cdi_devices": ["a/b=c"],
    }
    assert two["drivers"] == [{"driver": DRIVER, "devices": None, "skip_node_operations": ["*"]}]


def test_names_of_pods_with_the_same_claims(file: Path, capsys: Any) -> None:
    used = DynamicResource("one", "ml")
    source = MemorySource([Pod("train", "ml", (Container("main", dynamic_resources=(used,)),))])
    with PodResourcesServer(source, file.with_name("k.sock")):
        _, out, _ = run(capsys, "show", str(file), "--socket", str(file.with_name("k.sock")))
    assert "  pods: ml/train (u-1)\n" in out
    assert "  pods: ml/train (u-1), u-2\n" in out


def test_standard_input_and_an_empty_object(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    status, out, _ = run(capsys, "verify", "-")
    assert (status, out) == (0, "-: no checksum, but a kubelet accepts it, 0 claims, 0 pods\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    status, out, _ = run(capsys, "verify", "-", "-o", "json")
    shown = json.loads(out)
    assert (status, shown["checksum"], shown["expected_checksum"]) == (0, None, 4010664294)


def test_verify_reports_devices_of_two_claims(file: Path, capsys: Any) -> None:
    other = ClaimState("ml", "other", "uid-3", frozenset({"u-3"}), ONE.drivers)
    file.write_bytes(dra.dumps(State((ONE, other))))
    status, out, _ = run(capsys, "verify", str(file))
    assert status == 1
    assert "device gpu.example.com/w/d1 is prepared for claims ml/one, ml/other" in out
    _, out, _ = run(capsys, "verify", str(file), "-o", "json")
    report = json.loads(out)
    assert (report["valid"], report["claims"], report["pods"]) == (False, 2, 2)
    assert report["findings"][0]["kind"] == "shared-device"


def test_file_of_before_132(file: Path, capsys: Any) -> None:
    file.write_bytes(b'{"version":"v1","entries":[],"checksum":0}')
    status, out, _ = run(capsys, "verify", str(file))
    assert status == 1
    assert out.startswith(f"{file}: the file has the format of kubelets before v1.32")
    status, _, err = run(capsys, "repair", str(file), "--write")
    assert status == 2
    assert "nothing can be recovered: move the file away" in err


def test_diff(file: Path, capsys: Any) -> None:
    other = file.with_name("other")
    changed = ClaimState("ml", "two", "uid-2", frozenset({"u-2"}), TWO.drivers)
    other.write_bytes(dra.dumps(State((changed, ONE)), share_ids=True))
    status, out, _ = run(capsys, "diff", str(file), str(other))
    skips = "driver gpu.example.com, needs no *: no devices yet"
    assert (status, out.splitlines()) == (
        1,
        [
            f"- claim ml/two: UID uid-2; pods u-1, u-2; {skips}",
            f"+ claim ml/two: UID uid-2; pods u-2; {skips}",
        ],
    )
    other.write_bytes(made_up.WHOLE.checkpoint or b"")
    status, _, err = run(capsys, "diff", str(file), str(other))
    assert status == 2
    assert f"{file} is a dra_manager_state, {other} is a kubelet_internal_checkpoint" in err


def test_repair_writes_the_readable_claims(file: Path, capsys: Any) -> None:
    before = file.read_bytes()
    damaged = before[: before.index(b"uid-2")]
    file.write_bytes(damaged)
    assert run(capsys, "repair", str(file))[0] == 1
    assert file.read_bytes() == damaged
    status, out, _ = run(capsys, "repair", str(file), "--write")
    assert status == 0
    assert f"{file}: kept: 1 claim, 1 pod" in out
    assert dra.loads(file.read_bytes()) == State((ONE,))
    assert file.with_name("dra_manager_state.before-1").read_bytes() == damaged


def test_edit_removes_a_pod(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "edit", str(file), "--drop-pod", "u-1", "--write")
    assert status == 0
    assert f"{file}: removed: pod u-1 of claim ml/one" in out
    assert "no driver is called" in out
    (left,) = dra.loads(file.read_bytes()).claims or ()
    assert (left.name, left.pods) == ("two", {"u-2"})
    status, _, err = run(capsys, "edit", str(file), "--drop-pod", "u-1")
    assert (status, "unknown pod u-1: use one of u-2" in err) == (2, True)


def test_file_of_a_running_kubelet_is_not_replaced(file: Path, capsys: Any) -> None:
    # The kubelet's socket is in a directory below that of the file.
    plugins = file.with_name("device-plugins")
    plugins.mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(plugins / "kubelet.sock"))
    server.listen()
    try:
        status, _, err = run(capsys, "edit", str(file), "--drop-pod", "u-1", "--write")
    finally:
        server.close()
    assert status == 2
    assert f"a kubelet serves {plugins}/kubelet.sock and would overwrite the file" in err


def test_state_file_of_a_snapshot(file: Path, capsys: Any) -> None:
    snapshot = file.with_name("node.tar.gz")
    snapshot.write_bytes(archive(made_up.WHOLE))
    status, out, _ = run(capsys, "show", str(snapshot), "--dra")
    assert (status, out.splitlines()[0]) == (0, "claim ml/shared (UID uid-shared)")
    assert "ml/train (u-train)" in out
    assert run(capsys, "show", str(snapshot))[1].startswith("pod ")


@pytest.mark.parametrize(
    ("problem", "why"), [("Permission denied", ": Permission denied"), (None, "")]
)
def test_snapshot_without_the_state_file(
    problem: str | None, why: str, tmp_path: Path, capsys: Any
) -> None:
    parts = tuple(
        attrs.evolve(each, problem=problem) if each.name == layout.DRA_STATE else each
        for each in made_up.PARTS
    )
    snapshot = attrs.evolve(made_up.WHOLE, dra_state=None, parts=parts if problem else ())
    path = tmp_path / "node.tar.gz"
    path.write_bytes(archive(snapshot))
    status, _, err = run(capsys, "show", str(path), "--dra")
    text = f"{path}: the snapshot has no dra_manager_state{why}"
    assert (status, err) == (2, f"devicemanager: error: {text}\n")
