"""``devicemanager checkpoint repair`` and ``edit``: output, and files that stay unchanged."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import main
from devicemanager.snapshot import archive, layout
from podresources import MemorySource, PodResourcesServer
from tests.snapshot import made_up

GPU = "vendor.com/gpu"
NAME = "kubelet_internal_checkpoint"
ENTRIES = tuple(PodDevicesEntry(f"u-{n}", "main", GPU, {0: (f"g{n}",)}, b"") for n in range(3))
WHOLE = Checkpoint(ENTRIES, {GPU: ("g0", "g1", "g2")})


@pytest.fixture
def root(directory: Path) -> Path:
    """A kubelet's directory."""
    (directory / "device-plugins").mkdir()
    return directory


@pytest.fixture
def file(root: Path) -> Path:
    """A checkpoint truncated in its last entry."""
    data = checkpoint.dumps(WHOLE)
    path = root / "device-plugins" / NAME
    path.write_bytes(data[: data.index(b'"u-2"') + 5])
    path.chmod(0o640)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["checkpoint", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_repair_is_a_dry_run_by_default(file: Path, root: Path, capsys: Any) -> None:
    before = file.read_bytes()
    status, out, err = run(capsys, "repair", str(file))
    assert (status, err) == (1, "")
    assert [line.removeprefix(f"{file}: ") for line in out.splitlines()] == [
        f"not JSON at character {len(before)}: Expecting ',' delimiter: the file is truncated or "
        "damaged",
        'removed: an entry of pod "u-2"',
        "note: the registered resources are lost: each returns when its plugin registers again; "
        "until then, `verify` reports resources with devices as not registered",
        "kept: 2 pod device entries, 0 registered resources",
        "dry run: --write replaces the file and keeps a copy, --to OTHER writes the result "
        "elsewhere",
    ]
    assert file.read_bytes() == before
    assert names(root) == ["device-plugins"]


def test_write_replaces_the_file_and_keeps_a_copy(file: Path, root: Path, capsys: Any) -> None:
    before = file.read_bytes()
    status, out, _ = run(capsys, "repair", str(file), "--write")
    # Not in device-plugins, which kubelets up to 1.32 clear.
    copy = root / f"{NAME}.before-1"
    assert status == 0
    assert out.endswith(f"{file}: written to {file}; the previous file is {copy}\n")
    assert copy.read_bytes() == before
    assert checkpoint.load(file).entries == ENTRIES[:2]
    assert run(capsys, "verify", str(file))[1].count("is not registered, but allocated to") == 1
    assert file.stat().st_mode & 0o777 == 0o640
    assert names(file.parent) == [NAME]
    assert run(capsys, "repair", str(file), "--write")[:2] == (
        0,
        f"{file}: nothing to do: 2 pod device entries, 0 registered resources\n",
    )
    file.write_bytes(before)
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    assert run(capsys, "repair", str(file), "--write", "--copies", str(elsewhere))[0] == 0
    assert names(elsewhere) == [f"{NAME}.before-1"]
    file.write_bytes(before)
    assert run(capsys, "repair", str(file), "--write")[0] == 0
    assert (root / f"{NAME}.before-2").read_bytes() == before


def test_write_preserves_a_symbolic_link(file: Path, root: Path, capsys: Any) -> None:
    link = root / "link"
    link.symlink_to(file)
    assert run(capsys, "repair", str(link), "--write")[0] == 0
    assert link.is_symlink()
    assert checkpoint.load(file).entries == ENTRIES[:2]


def test_write_is_rejected_while_a_kubelet_runs(file: Path, root: Path, capsys: Any) -> None:
    before = file.read_bytes()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(file.parent / "kubelet.sock"))
        server.listen()
        status, _, err = run(capsys, "repair", str(file), "--write")
        assert (status, file.read_bytes()) == (2, before)
        assert f"a kubelet serves {file.parent}/kubelet.sock and would overwrite the file" in err
        assert names(root) == ["device-plugins"]
    # A killed kubelet leaves its socket behind.
    assert run(capsys, "repair", str(file), "--write")[0] == 0


def test_write_is_rejected_if_the_file_changed_meanwhile(
    file: Path, root: Path, capsys: Any, monkeypatch: Any
) -> None:
    honest = checkpoint.repair

    def and_a_kubelet_writes(data: bytes) -> Any:
        file.write_bytes(checkpoint.dumps(WHOLE))
        return honest(data)

    monkeypatch.setattr(checkpoint, "repair", and_a_kubelet_writes)
    status, _, err = run(capsys, "repair", str(file), "--write")
    assert (status, checkpoint.load(file)) == (2, WHOLE)
    assert f"{file} changed while it was processed: stop its kubelet" in err
    assert names(root) == ["device-plugins"]


def test_write_is_rejected_if_no_copy_can_be_made(file: Path, root: Path, capsys: Any) -> None:
    before = file.read_bytes()
    status, _, err = run(capsys, "repair", str(file), "--write", "--copies", str(root / "none"))
    assert (status, file.read_bytes()) == (2, before)
    assert (
        err == f"devicemanager: error: --copies: {root}/none is not a directory: create it first\n"
    )


def test_to_never_overwrites_a_file(file: Path, root: Path, capsys: Any) -> None:
    other = root / "other"
    status, out, _ = run(capsys, "repair", str(file), "--to", str(other))
    assert (status, out.splitlines()[-1]) == (0, f"{file}: written to {other}")
    assert checkpoint.load(other).entries == ENTRIES[:2]
    status, _, err = run(capsys, "repair", str(file), "--to", str(other))
    assert (status, err) == (
        2,
        f"devicemanager: error: {other} already exists: use another file name\n",
    )


def test_repair_works_from_standard_input_to_standard_output(
    file: Path, capsysbinary: Any, monkeypatch: Any
) -> None:
    def piped(*argv: str) -> tuple[int, bytes, bytes]:
        with file.open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            status = main(["checkpoint", *argv])
        captured = capsysbinary.readouterr()
        return status, captured.out, captured.err

    status, out, err = piped("repair", "-", "--to", "-")
    assert status == 0
    assert checkpoint.loads(out).entries == ENTRIES[:2]
    assert b"-: kept: 2 pod device entries" in err
    status, out, err = piped("repair", "-", "--write")
    assert (status, out) == (2, b"")
    assert b"cannot replace - (standard input or a snapshot): use --to PATH" in err


@pytest.mark.parametrize("content", ["", "{", "\0" * 9, '{"Data":{}}x'])
def test_repair_rejects_a_file_without_readable_content(
    file: Path, content: str, capsys: Any
) -> None:
    file.write_text(content)
    status, out, err = run(capsys, "repair", str(file), "--write")
    assert (status, out, file.read_text()) == (2, "", content)
    assert err.endswith(
        "nothing can be recovered: move the file away, and the kubelet starts without it\n"
    )


def test_repair_as_json(file: Path, capsys: Any) -> None:
    status, out, err = run(capsys, "repair", str(file), "-o", "json")
    report = json.loads(out)
    assert (status, err) == (1, "")
    assert report["schema"] == "devicemanager.checkpoint-repair/v1"
    assert (report["changed"], report["pod_device_entries"], report["written"]) == (True, 2, None)
    assert report["dropped"] == ['an entry of pod "u-2"']
    status, out, _ = run(capsys, "repair", str(file), "--write", "-o", "json")
    report = json.loads(out)
    assert (status, report["written"]) == (0, str(file))
    assert Path(report["copy"]).exists()


@pytest.mark.parametrize(
    ("argv", "schema"),
    [
        (["show", "none"], "checkpoint"),
        (["diff", "none", "none"], "checkpoint-diff"),
        (["repair", "none"], "checkpoint-repair"),
        (["repair", "none", "--copies", "x"], "checkpoint-repair"),
        (["edit", "none", "--drop-pod", "u"], "checkpoint-edit"),
    ],
)
def test_failure_as_json(
    argv: list[str], schema: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *argv, "-o", "json")
    report = json.loads(out)
    assert status == 2
    assert report["schema"] == f"devicemanager.{schema}/v1"
    assert err == f"devicemanager: error: {report['error']}\n"


def test_file_on_standard_output_is_not_mixed_with_messages(file: Path, capsys: Any) -> None:
    status, _, err = run(capsys, "repair", str(file), "--to", "-", "-o", "json")
    assert status == 2
    assert "--to - and -o json both write to standard output" in err


# --- edit


def test_edit_removes_pods(file: Path, capsys: Any) -> None:
    file.write_bytes(checkpoint.dumps(WHOLE))
    status, out, err = run(capsys, "edit", str(file), "--drop-pod", "")
    assert (status, out) == (2, "") and "invalid value '': expected the UID of a pod" in err
    drop = ["--drop-pod", "u-0", "--drop-pod", "u-2"]
    status, out, _ = run(capsys, "edit", str(file), *drop)
    assert status == 1
    assert out.splitlines()[:3] == [
        f"{file}: removed: pod u-0, container main, resource {GPU}",
        f"{file}: removed: pod u-2, container main, resource {GPU}",
        f"{file}: kept: 1 pod device entry, 1 registered resource",
    ]
    assert checkpoint.load(file) == WHOLE
    assert run(capsys, "edit", str(file), *drop, "--write")[0] == 0
    assert checkpoint.load(file) == Checkpoint(ENTRIES[1:2], WHOLE.registered_devices)


def test_edit_rejects_an_unknown_pod(file: Path, capsys: Any) -> None:
    file.write_bytes(checkpoint.dumps(WHOLE))
    status, out, err = run(capsys, "edit", str(file), "--drop-pod", "u-9", "--write")
    assert (status, out) == (2, "")
    assert err.endswith("unknown pod u-9: use one of u-0, u-1, u-2\n")
    assert checkpoint.load(file) == WHOLE


def test_edit_rejects_a_damaged_file(file: Path, capsys: Any) -> None:
    status, _, err = run(capsys, "edit", str(file), "--drop-pod", "u-0")
    assert status == 2
    assert err.endswith("use `devicemanager checkpoint repair` first\n")


def test_show_lists_unreadable_parts(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "show", str(file))
    assert status == 1
    assert 'cannot be read: an entry of pod "u-2"\n' in out
    _, out, _ = run(capsys, "show", str(file), "-o", "json")
    assert json.loads(out)["lost"] == ['an entry of pod "u-2"']
    _, out, _ = run(capsys, "verify", str(file))
    assert f'{file}: cannot be read: an entry of pod "u-2"\n' in out


def test_standard_input_can_be_a_text_stream(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(checkpoint.dumps(WHOLE).decode()))
    assert run(capsys, "edit", "-", "--drop-pod", "u-1")[0] == 1


# --- names of pods, and checkpoints in snapshots


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "node.tar.gz"
    path.write_bytes(archive(made_up.WHOLE))
    return path


def pods_shown(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("pod ")]


NAMED = ["pod ml/train (u-train), container main", "pod ml/infer (u-infer), container main"]


def test_show_takes_pod_names_from_a_snapshot(snapshot: Path, tmp_path: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "show", str(snapshot))
    assert (status, pods_shown(out)) == (0, NAMED)
    plain = tmp_path / "plain"
    plain.write_bytes(made_up.WHOLE.checkpoint or b"")
    assert pods_shown(run(capsys, "show", str(plain))[1])[0] == "pod u-train, container main"
    status, out, _ = run(capsys, "show", str(plain), "--snapshot", str(snapshot))
    assert (status, pods_shown(out)) == (0, NAMED)
    _, out, _ = run(capsys, "show", str(snapshot), "-o", "json")
    report = [each["pod"] for each in json.loads(out)["pod_device_entries"]]
    assert report == ["ml/train", "ml/infer"]


def test_show_takes_pod_names_from_podresources(root: Path, capsys: Any) -> None:
    (root / "saved").write_bytes(made_up.WHOLE.checkpoint or b"")
    with PodResourcesServer(MemorySource(made_up.WHOLE.pods or ()), root / "s") as server:
        where = ["--socket", str(server.socket_path)]
        _, out, _ = run(capsys, "show", str(root / "saved"), *where)
    assert pods_shown(out) == NAMED


def test_show_takes_pod_names_from_kubectl(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "saved").write_bytes(made_up.WHOLE.checkpoint or b"")
    mirror = {"kubernetes.io/config.hash": "u-infer"}
    items = [
        {"metadata": {"name": "train", "namespace": "ml", "uid": "u-train"}},
        {"metadata": {"name": "infer", "namespace": "ml", "uid": "x", "annotations": mirror}},
    ]
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"kind": "List", "items": items}))
    where = ["show", str(tmp_path / "saved"), "--pods"]
    assert pods_shown(run(capsys, *where, str(pods))[1]) == NAMED
    pods.write_text(json.dumps(items[0]))
    with pods.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert pods_shown(run(capsys, *where, "-")[1]) == [NAMED[0], "pod u-infer, container main"]
    monkeypatch.setattr("sys.stdin", None)
    twice = run(capsys, "show", "-", "--pods", "-")
    assert "standard input (-) is used for more than one file" in twice[2]
    for content in ("[", "[]", '{"items": 5}', '{"items": [5]}', "{}", "[" * 100_000):
        pods.write_text(content)
        status, out, err = run(capsys, *where, str(pods), "-o", "json")
        assert status == 2
        assert err == f"devicemanager: error: {json.loads(out)['error']}\n"
        assert "kubectl get pods" in err


def test_checkpoint_in_a_snapshot_is_read(snapshot: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(capsys, "verify", str(snapshot))[0] == 0
    plain = tmp_path / "plain"
    plain.write_bytes(made_up.WHOLE.checkpoint or b"")
    assert run(capsys, "diff", str(snapshot), str(plain))[:2] == (0, "")
    status, _, err = run(capsys, "edit", str(snapshot), "--drop-pod", "u-train", "--write")
    assert status == 2
    assert f"cannot replace {snapshot} (standard input or a snapshot): use --to PATH" in err
    other = tmp_path / "other"
    edited = run(capsys, "edit", str(snapshot), "--drop-pod", "u-train", "--to", str(other))
    assert edited[0] == 0
    assert [each.pod_uid for each in checkpoint.load(other).entries or ()] == ["u-infer"]
    bare = made_up.without(made_up.WHOLE, layout.CHECKPOINT, "Permission denied")
    snapshot.write_bytes(archive(bare))
    status, _, err = run(capsys, "show", str(snapshot))
    assert (status, err) == (
        2,
        f"devicemanager: error: {snapshot}: the snapshot has no {NAME}: Permission denied\n",
    )
    snapshot.write_bytes(b"\x1f\x8bnothing")
    status, out, _ = run(capsys, "verify", str(snapshot), "-o", "json")
    assert (status, json.loads(out)["valid"]) == (2, False)
