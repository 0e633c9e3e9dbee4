"""``devicemanager pods``, ``resources`` and ``checkpoint``, and what all commands share."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import _COMMANDS, main
from devicemanager.core.runoptions import (
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
)
from devicemanager.kubelet.wire.settings import settings_to_bytes
from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    MemorySource,
    Pod,
    PodResourcesServer,
)

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"


@pytest.fixture
def socket(directory: Path) -> Iterator[str]:
    """A server whose node has two pods and names with control characters."""
    held = (
        ContainerDevices(GPU, ("gpu-1",), (1,)),
        ContainerDevices(GPU, ("gpu-0",), (0,)),
        ContainerDevices(NIC, ("nic\x1b[31m",)),
    )
    claim = DynamicResource("net", "ml", (ClaimResource("d", "pool", "x"),))
    memory = (ContainerMemory("hugepages-2Mi", 4096, (1,)),)
    main_ = Container("main", held, cpu_ids=(3, 2), memory=memory, dynamic_resources=(claim,))
    pods = [Pod("train", "ml", (main_,)), Pod("web", "default", (Container("nginx"),))]
    free = tuple(ContainerDevices(GPU, (f"gpu-{n}",), (n,)) for n in range(3))
    source = MemorySource(pods, Allocatable(free, cpu_ids=(2, 3)))
    with PodResourcesServer(source, directory / "kubelet.sock") as server:
        yield str(server.socket_path)


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# --- pods and resources


def test_pods_as_plain_table(socket: str, capsys: Any) -> None:
    status, out, err = run(capsys, "pods", "--socket", socket)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["NAMESPACE", "POD", "CONTAINER", "RESOURCE", "COUNT", "DEVICES", "NUMA"],
        ["default", "web", "nginx", "-", "0", "-", "-"],
        ["ml", "train", "main", GPU, "2", "gpu-0,gpu-1", "0,1"],
        ["ml", "train", "main", NIC, "1", "nic\\x1b[31m", "-"],
        ["ml", "train", "main", "cpu", "2", "2,3", "-"],
        ["ml", "train", "main", "hugepages-2Mi", "4096", "-", "1"],
        ["ml", "train", "main", "claim", "ml/net", "1", "pool/x", "-"],
    ]
    starts = [
        line.index(word) for line, word in zip(out.splitlines(), ["POD", "web"], strict=False)
    ]
    assert len(set(starts)) == 1


def test_pods_as_json(socket: str, capsys: Any) -> None:
    status, out, _ = run(capsys, "pods", "--socket", socket, "-o", "json")
    shown = json.loads(out)
    pods = shown["pod_resources"]
    assert status == 0
    assert shown["schema"] == "devicemanager.pods/v1"
    assert [pod["name"] for pod in pods] == ["web", "train"]
    assert pods[1]["containers"][0]["devices"][0] == {
        "resource_name": GPU,
        "device_ids": ["gpu-1"],
        "numa_nodes": [1],
    }
    assert pods[1]["containers"][0]["cpu_ids"] == [3, 2]
    assert pods[1]["containers"][0]["memory"] == [
        {"memory_type": "hugepages-2Mi", "size": 4096, "numa_nodes": [1]}
    ]
    assert pods[1]["containers"][0]["dynamic_resources"] == [
        {
            "claim_name": "net",
            "claim_namespace": "ml",
            "claim_resources": [
                {
                    "driver_name": "d",
                    "pool_name": "pool",
                    "device_name": "x",
                    "share_id": None,
                    "cdi_devices": [],
                }
            ],
        }
    ]


def test_resources_as_table_and_json(socket: str, capsys: Any) -> None:
    status, out, _ = run(capsys, "resources", "--socket", socket)
    assert status == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        [GPU, "3", "2", "1", "gpu-0,gpu-1,gpu-2", "0,1,2"],
        [NIC, "0", "1", "0", "-", "-"],
        ["cpu", "2", "-", "-", "2,3", "-"],
    ]
    status, out, _ = run(capsys, "resources", "--socket", socket, "-o", "json")
    assert [each["device_ids"] for each in json.loads(out)["devices"]] == [
        ["gpu-0"],
        ["gpu-1"],
        ["gpu-2"],
    ]


def test_long_cells_are_neither_cut_nor_wrapped(directory: Path, capsys: Any) -> None:
    ids = tuple(f"a-rather-long-device-id-{number:04}" for number in range(200))
    source = MemorySource([], Allocatable((ContainerDevices(GPU, ids),)))
    with PodResourcesServer(source, directory / "kubelet.sock") as server:
        _, out, _ = run(capsys, "resources", "--socket", str(server.socket_path))
    assert ",".join(ids) in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("command", ["pods", "resources"])
def test_missing_socket_is_a_one_line_error(command: str, directory: Path, capsys: Any) -> None:
    status, out, err = run(capsys, command, "--socket", str(directory / "none.sock"))
    assert (status, out) == (2, "")
    assert err.startswith(f"devicemanager: error: there is no socket at {directory}/none.sock")
    assert len(err.splitlines()) == 1


def test_socket_path_that_is_too_long_is_an_error(capsys: Any) -> None:
    status, _, err = run(capsys, "pods", "--socket", "/" + "x" * 120)
    assert status == 2
    assert "has 121 bytes, the kernel allows 107" in err


# --- checkpoint


def settings() -> bytes:
    return settings_to_bytes(
        ContainerSettings(
            envs={"GPUS": "0\n1"},
            mounts=(Mount(container_path="/data", host_path="/host", read_only=True),),
            devices=(DeviceSpec(container_path="/dev/x", host_path="/dev/y"),),
            annotations={"k": "v"},
            cdi_devices=("v.com/c=d",),
            network_interfaces=(NetworkInterface("ens1", "net0"),),
            pci_devices=(PciDevice("10de", "20b0"),),
            filesystem_devices=(
                DeviceSpec(container_path="/dev/f", host_path="/dev/f", permissions="r"),
            ),
        )
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    entries = (
        PodDevicesEntry("u-1", "main", GPU, {0: ("g0", "g1"), -1: ("g2",)}, settings()),
        PodDevicesEntry("u-1", "main", NIC, None, b"\xff"),
        PodDevicesEntry("u-2", "main", NIC, {0: ("n0",)}, None),
    )
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(checkpoint.dumps(Checkpoint(entries, {GPU: ("g0", "g1", "g2"), NIC: None})))
    return path


def test_show_as_text(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "checkpoint", "show", str(file))
    lines = out.splitlines()
    assert status == 0
    assert lines[:10] == [
        "pod u-1, container main",
        f"  {GPU}: g2; g0,g1 on NUMA node 0",
        "    env GPUS=0\\n1",
        "    mount /host at /data (read-only)",
        "    device /dev/y at /dev/x (rw)",
        "    device /dev/f at /dev/f (r)",
        "    annotation k=v",
        "    CDI device v.com/c=d",
        "    network interface ens1 as net0",
        "    PCI device 10de:20b0",
    ]
    assert lines[10] == f"  {NIC}: no devices"
    assert lines[11].startswith("    allocation response unreadable: invalid Contain")
    assert lines[12:] == [
        "pod u-2, container main",
        f"  {NIC}: n0 on NUMA node 0",
        f"registered {GPU}: 3 healthy: g0,g1,g2",
        f"registered {NIC}: 0 healthy: -",
        f"checksum of this data: {checkpoint.verify(file)}",
    ]


def test_show_as_json(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "checkpoint", "show", "-o", "json", str(file))
    shown = json.loads(out)
    assert status == 0
    first, second, _ = shown["pod_device_entries"]
    assert first["devices"] == [
        {"numa_node": None, "ids": ["g2"]},
        {"numa_node": 0, "ids": ["g0", "g1"]},
    ]
    assert first["settings"]["envs"] == {"GPUS": "0\n1"}
    assert first["settings_error"] is None
    assert second["settings"] is None
    assert second["settings_error"].startswith("invalid ContainerAllocateResponse of 1 byte ")
    assert shown["schema"] == "devicemanager.checkpoint/v1"
    assert shown["problems"] == []
    assert shown["checksum"] == shown["expected_checksum"]
    assert shown["registered_devices"] == {GPU: ["g0", "g1", "g2"], NIC: []}
    assert shown["checksum"] == checkpoint.verify(file)


def test_show_of_an_empty_checkpoint(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "empty"
    file.write_bytes(checkpoint.dumps(Checkpoint(None, None)))
    _, out, _ = run(capsys, "checkpoint", "show", str(file))
    assert out.splitlines()[:2] == ["no devices are allocated", "no resources are registered"]


def test_verify_of_intact_file(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "checkpoint", "verify", str(file))
    checksum = checkpoint.verify(file)
    assert status == 0
    assert out == (
        f"{file}: checksum {checksum} is correct, 3 pod device entries, 2 registered resources\n"
    )
    _, out, _ = run(capsys, "checkpoint", "verify", "-o", "json", str(file))
    assert json.loads(out) == {
        "schema": "devicemanager.checkpoint-verify/v1",
        "file": str(file),
        "format": "kubelet_internal_checkpoint",
        "valid": True,
        "checksum": checksum,
        "expected_checksum": checksum,
        "pod_device_entries": 3,
        "registered_resources": 2,
        "problems": [],
        "findings": [],
    }


def test_altered_file_has_a_wrong_checksum(file: Path, capsys: Any) -> None:
    right = checkpoint.verify(file)
    file.write_bytes(file.read_bytes().replace(b"g0", b"g7"))
    has = checkpoint.inspect(file.read_bytes()).expected
    why = f"the file has checksum {right}, but its data has checksum {has}: the file was altered"
    status, out, err = run(capsys, "checkpoint", "verify", str(file))
    assert (status, err) == (1, "")
    assert out == (
        f"{file}: {why}\n{file}: a kubelet does not load this file; readable: 3 pod "
        "device entries, 2 registered resources\n"
    )
    status, out, err = run(capsys, "checkpoint", "show", str(file))
    assert status == 1
    assert f"  {GPU}: g2; g7,g1 on NUMA node 0\n" in out
    assert err == f"devicemanager: warning: {file}: {why}\n"
    status, out, err = run(capsys, "checkpoint", "show", "--no-verify", str(file))
    assert (status, err) == (0, "")
    assert "g7" in out
    status, _, err = run(capsys, "explain", "pod.yaml", "--checkpoint", str(file))
    assert status == 2
    assert err == f"devicemanager: error: {file}: {why}; {SHOWS}\n"


SHOWS = "use `devicemanager checkpoint show` to see its content"


def test_readable_part_of_a_truncated_file_is_shown(file: Path, capsys: Any) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"u-2"')])
    status, out, err = run(capsys, "checkpoint", "show", str(file))
    assert status == 1
    assert "pod u-1, container main\n" in out
    assert "u-2" not in out
    assert "no registered resources can be read\n" in out
    assert "not JSON at character" in err
    assert run(capsys, "checkpoint", "show", "--no-verify", str(file))[0] == 1
    status, out, err = run(capsys, "checkpoint", "show", "-o", "json", str(file))
    shown = json.loads(out)
    assert (status, err) == (1, "")
    assert [entry["pod_uid"] for entry in shown["pod_device_entries"]] == ["u-1", "u-1"]
    assert shown["checksum"] is None
    assert len(shown["problems"]) == 1
    status, out, err = run(capsys, "checkpoint", "verify", str(file))
    assert (status, err) == (1, "")
    assert out.endswith("readable: 2 pod device entries, 0 registered resources\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"garbage", "not JSON at character 0"),
        (b'{"Data":{"PodDeviceEntries":[{"PodUID":"a"', 'cannot be read: an entry of pod "a"'),
        (b'{"Data":"{\\"kind\\"', "not JSON at character 8"),
    ],
    ids=["empty", "garbage", "truncated", "claims"],
)
def test_show_of_a_file_without_readable_parts(tmp_path: Path, capsys: Any, content, why) -> None:
    """The command must not say that no devices are allocated: that is not known."""
    path = tmp_path / "saved"
    path.write_bytes(content)
    status, out, err = run(capsys, "checkpoint", "show", str(path))
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"devicemanager: error: {path}: nothing can be read: ")
    assert why in err
    status, out, _ = run(capsys, "checkpoint", "show", "-o", "json", str(path))
    assert (status, len(json.loads(out)["problems"])) == (1, 1)


def test_verify_reports_inconsistent_content(tmp_path: Path, capsys: Any) -> None:
    entries = (
        PodDevicesEntry("u-1", "main", GPU, {0: ("g0",)}, b""),
        PodDevicesEntry("u-2", "main", GPU, {0: ("g0",)}, b""),
        PodDevicesEntry("u-2", "main", GPU, {0: ("g1",)}, b""),
        PodDevicesEntry("u-3", "main", NIC, {0: ("n\x1b",)}, b""),
    )
    path = tmp_path / "saved"
    path.write_bytes(checkpoint.dumps(Checkpoint(entries, {GPU: ("g0", "g1")})))
    status, out, err = run(capsys, "checkpoint", "verify", str(path))
    assert (status, err) == (1, "")
    assert out.splitlines()[1:] == [
        f"{path}: device g0 of {GPU} is allocated to 2 pods: u-1, u-2",
        f"{path}: pod u-2, container main has 2 entries for {GPU}",
        f"{path}: {NIC} is not registered, but allocated to: u-3",
    ]
    status, out, _ = run(capsys, "checkpoint", "verify", "-o", "json", str(path))
    shown = json.loads(out)
    assert (status, shown["valid"], shown["problems"]) == (1, False, [])
    assert shown["findings"][0] == {
        "kind": "held-twice",
        "message": f"device g0 of {GPU} is allocated to 2 pods: u-1, u-2",
        "resource": GPU,
        "pods": ["u-1", "u-2"],
    }


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"\0" * 100])
def test_failed_verify_as_json(tmp_path: Path, capsys: Any, content: bytes) -> None:
    file = tmp_path / "broken"
    file.write_bytes(content)
    status, out, err = run(capsys, "checkpoint", "verify", "-o", "json", str(file))
    shown = json.loads(out)
    assert (status, err) == (1, "")
    assert shown["valid"] is False
    assert len(shown["problems"]) == 1


def test_unreadable_file_as_json(tmp_path: Path, capsys: Any) -> None:
    for path in (tmp_path, tmp_path / "none"):
        status, out, err = run(capsys, "checkpoint", "verify", "-o", "json", str(path))
        shown = json.loads(out)
        assert status == 2
        assert shown["valid"] is False
        assert err == f"devicemanager: error: {shown['problems'][0]}\n"


def test_checkpoint_from_standard_input(file: Path, capsys: Any, monkeypatch: Any) -> None:
    def piped(*argv: str) -> tuple[int, str, str]:
        with file.open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            return run(capsys, *argv)

    status, out, _ = piped("checkpoint", "verify", "-")
    assert (status, out.split()[:2]) == (0, ["-:", "checksum"])
    assert piped("checkpoint", "show", "-") == run(capsys, "checkpoint", "show", str(file))
    assert piped("checkpoint", "diff", "-", str(file)) == (0, "", "")
    twice = (
        "devicemanager: error: standard input (-) is used for more than one file: it can be read "
        "only once"
    )
    assert piped("checkpoint", "diff", "-", "-") == (2, "", f"{twice}\n")
    explain = ["explain", "-", "--devices", f"{GPU}=1", "--checkpoint", "-"]
    assert piped(*explain) == (2, "", f"{twice}\n")
    monkeypatch.setattr("sys.stdin", None)
    closed = "devicemanager: error: standard input is closed: use a file name instead of -\n"
    assert run(capsys, "checkpoint", "verify", "-") == (2, "", closed)


def test_diff_compares_files_with_a_wrong_checksum(file: Path, tmp_path: Path, capsys: Any) -> None:
    altered = tmp_path / "altered"
    altered.write_bytes(file.read_bytes().replace(b'"n0"', b'"n7"'))
    status, out, err = run(capsys, "checkpoint", "diff", str(file), str(altered))
    assert status == 1
    assert out.splitlines() == [
        f"- pod u-2 main {NIC}: n0 on NUMA node 0",
        f"+ pod u-2 main {NIC}: n7 on NUMA node 0",
    ]
    assert err.startswith(f"devicemanager: warning: {altered}: the file has checksum ")
    # Equal data with another checksum is a different file.
    altered.write_bytes(file.read_bytes().replace(b'"Checksum":', b'"Checksum":1'))
    status, out, err = run(capsys, "checkpoint", "diff", str(file), str(altered))
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    status, out, err = run(capsys, "checkpoint", "diff", "-o", "json", str(file), str(altered))
    shown = json.loads(out)
    assert (status, err, shown["differences"]) == (1, "", [])
    assert [len(each["problems"]) for each in shown["files"]] == [0, 1]


def test_diff_as_json(file: Path, tmp_path: Path, capsys: Any) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(checkpoint.dumps(Checkpoint(None, {GPU: ("g0",)})))
    _, out, _ = run(capsys, "checkpoint", "diff", "-o", "json", str(file), str(empty))
    shown = json.loads(out)
    assert shown["schema"] == "devicemanager.checkpoint-diff/v1"
    first, *_, last, gone = shown["differences"]
    assert first["about"] == ["pod", "u-1", "main", GPU]
    assert first["old"]["settings"]["cdi_devices"] == ["v.com/c=d"]
    assert first["new"] is None
    assert last == {"about": ["registered", GPU], "old": ["g0", "g1", "g2"], "new": ["g0"]}
    assert gone == {"about": ["registered", NIC], "old": [], "new": None}


def test_diff_as_text(file: Path, tmp_path: Path, capsys: Any) -> None:
    loaded = checkpoint.load(file)
    first, *_ = loaded.entries or ()
    moved = PodDevicesEntry("u-2", "main", NIC, {1: ("n0",)}, None)
    other = tmp_path / "other"
    registered = {GPU: ("g2", "g1", "g0")}
    other.write_bytes(checkpoint.dumps(Checkpoint((moved, first), registered)))
    status, out, _ = run(capsys, "checkpoint", "diff", str(file), str(other))
    lines = out.splitlines()
    assert status == 1
    assert lines[0].startswith(f"- pod u-1 main {NIC}: no devices; allocation response unreadable")
    assert lines[1:] == [
        f"- pod u-2 main {NIC}: n0 on NUMA node 0",
        f"+ pod u-2 main {NIC}: n0 on NUMA node 1",
        f"- registered {NIC}: -",
    ]
    assert run(capsys, "checkpoint", "diff", str(file), str(file)) == (0, "", "")
    status, _, err = run(capsys, "checkpoint", "diff", str(file), str(tmp_path / "none"))
    assert status == 2
    assert "none: No such file" in err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"\0" * 100])
def test_arbitrary_file_content_causes_no_traceback(
    tmp_path: Path, capsys: Any, content: bytes
) -> None:
    file = tmp_path / "broken"
    file.write_bytes(content)
    status, out, err = run(capsys, "checkpoint", "verify", str(file))
    assert (status, err) == (1, "")
    assert all(line.startswith(f"{file}: ") for line in out.splitlines())
    assert len(out.splitlines()) == 2
    assert "afresh" not in out


def test_directory_instead_of_checkpoint_suggests_the_file(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    say = f"devicemanager: error: {tmp_path} is a directory"
    nothing = f"{say}, and it does not contain kubelet_internal_checkpoint\n"
    assert run(capsys, "checkpoint", "show", str(tmp_path)) == (2, "", nothing)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)  # root can read every directory
        denied = f"{say}, and you are not allowed to read it\n"
        assert run(capsys, "checkpoint", "show", str(tmp_path)) == (2, "", denied)
    file = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    file.parent.mkdir()
    file.touch()
    meant = f"{say}; did you mean {file}?\n"
    for flags in ([], ["--no-verify"]):
        assert run(capsys, "checkpoint", "show", *flags, str(tmp_path)) == (2, "", meant)
    explain = ["explain", "pod.yaml", "--checkpoint", str(file.parent)]
    assert run(capsys, *explain)[2] == meant.replace(str(tmp_path), str(file.parent), 1)


def test_file_that_is_not_regular_gets_fitting_advice(tmp_path: Path, capsys: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    status, _, err = run(capsys, "checkpoint", "show", str(tmp_path / "pipe"))
    assert status == 2
    assert err.endswith("; check its type and permissions\n")


@pytest.mark.parametrize("command", ["pods", "resources"])
def test_path_that_is_not_a_podresources_socket_is_an_error(
    command: str, directory: Path, socket: str, capsys: Any
) -> None:
    def error_of(path: Path | str) -> str:
        status, out, err = run(capsys, command, "--socket", str(path))
        assert (status, out) == (2, "")
        return err.removeprefix("devicemanager: error: ").rstrip("\n")

    assert error_of(directory) == f"{directory} is a directory; did you mean {socket}?"
    (directory / "root").mkdir()
    (directory / "root" / "pod-resources").symlink_to(directory)
    meant = directory / "root" / "pod-resources" / "kubelet.sock"
    assert error_of(directory / "root").endswith(f" is a directory; did you mean {meant}?")
    (directory / "none").mkdir()
    assert error_of(directory / "none").endswith("and it does not contain kubelet.sock")
    (directory / "file").touch()
    assert error_of(directory / "file").startswith(f"{directory / 'file'} is not a socket")
    assert "there is no socket" in error_of(directory / "nothing")
    registration = directory / "root" / "device-plugins"
    registration.symlink_to(directory)
    meant = f"is the plugin registration socket; did you mean {meant}?"
    assert error_of(registration / "kubelet.sock") == f"{registration / 'kubelet.sock'} {meant}"


# --- what all commands share


@pytest.mark.parametrize(
    "command",
    [
        "pods --socket=",
        "top --socket=",
        "checkpoint show FILE",
        "checkpoint verify FILE",
        "checkpoint diff FILE FILE",
        "checkpoint repair x --to=",
        "checkpoint show x --pods=",
        "snapshot show FILE",
        "explain FILE",
        "explain x --allocatable=",
        "claims validate FILE",
        "claims list --state=",
        "replay FILE",
        "record --output=",
        "podresources serve FILE",
        "check --waivers= x",
        "run --calls=",
        "run --faults=",
    ],
)
def test_empty_file_name_is_rejected(command: str, capsys: Any) -> None:
    argv = ["" if word == "FILE" else word for word in command.split()]
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert err.endswith(": invalid value '': expected a file\n")


@pytest.mark.parametrize("name", ["--root=", "--dev=", "--sys=", "--cdi="])
def test_exec_rejects_empty_directory_names(name: str, capsys: Any) -> None:
    status, out, err = run(capsys, "exec", "--root", "/", name, "true")
    assert (status, out) == (2, "")
    assert err.endswith(f"argument {name[:-1]}: invalid value '': expected a directory\n")


@pytest.mark.parametrize(
    "argv",
    [["--debug"], ["nonsense"], ["pods", "-o", "xml"], ["checkpoint"], ["checkpoint", "show"]],
)
def test_wrong_usage_exits_with_2(argv: list[str], capsys: Any) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert "error: " in err


@pytest.mark.parametrize(
    "argv",
    [
        ["explain", "pod.yaml", "--simulate", "gpu=1"],
        ["claims", "pools", "--sim", "gpu=1"],
        ["pods", "--sock", "x"],
    ],
)
def test_options_cannot_be_abbreviated(argv: list[str], capsys: Any) -> None:
    """``explain --simulate`` once meant ``--simulate-pools``."""
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert f"unrecognized arguments: {argv[-2]} {argv[-1]}" in err.splitlines()[-1]


def test_help_and_version(capsys: Any) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    headings, listed = re.findall(r"^(.*):$", out, re.M), re.findall(r"^  ([a-z]+) ", out, re.M)
    assert headings[0] == "a mock kubelet" and headings[-1] == "options"
    assert sorted(listed) == sorted(_COMMANDS) and listed[:2] == ["run", "ctl"]
    assert run(capsys, "--help", "pods") == (0, out, "")
    status, out, _ = run(capsys, "--version")
    assert (status, out.split()[0]) == (0, "devicemanager")


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["exec", "--root", ".", "ls", "-la"], True),
        (["check", "./plugin", "--socket-dir", "{plugin_dir}"], True),
        (["record", "./plugin", "--verbose"], True),
        (["check", "--verbose", "--", "./plugin"], False),
        (["pods", "--verbose"], False),
    ],
)
def test_options_of_a_command_to_run_require_two_dashes(
    argv: list[str], hint: bool, capsys: Any
) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert "unrecognized arguments: -" in err
    assert err.endswith("; put the command to run after --\n") is hint


def test_unexpected_error_is_one_line_without_debug(capsys: Any, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr(checkpoint, "read", fail)
    status, _, err = run(capsys, "checkpoint", "verify", "x")
    assert status == 2
    assert err == (
        "devicemanager: error: unexpected ZeroDivisionError: a b (a bug; --debug shows where)\n"
    )
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "checkpoint", "verify", "x"])


def test_ctrl_c_is_quiet(capsys: Any, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "read", interrupt)
    assert run(capsys, "checkpoint", "verify", "x") == (130, "", "")


COMMAND = [sys.executable, "-m", "devicemanager.cli"]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, devicemanager.cli as c; c.main(['--help']);"
        "heavy = {'grpc', 'google.protobuf', 'rich', 'yaml', 'watchdog', 'kubernetes', 'attr'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["checkpoint", "show", "FILE"], 141),
        (["top", "--once", "--socket", "SOCKET"], 141),
        (["run", "--help"], 0),
    ],
)
def test_broken_pipe_is_not_an_error(file: Path, socket: str, argv: list[str], status: int) -> None:
    named = {"FILE": str(file), "SOCKET": socket}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [*COMMAND, *(named.get(word, word) for word in argv)],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=30,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (status, b"")


@pytest.mark.parametrize(
    ("argv", "unbuffered"),
    [
        (["checkpoint", "show", "FILE"], "1"),
        (["checkpoint", "show", "FILE"], ""),
        (["--help"], ""),
        (["run", "--help"], ""),  # longer than a buffer
    ],
)
def test_full_disk_is_a_one_line_error(file: Path, argv: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*COMMAND, *(str(file) if word == "FILE" else word for word in argv)],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=30,
        )
    assert result.returncode == 2
    assert result.stderr == b"devicemanager: error: standard output: No space left on device\n"


def test_closed_output_is_a_one_line_error(file: Path) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    result = subprocess.run([*shell, "checkpoint", "show", str(file)], stderr=-1, timeout=30)
    assert result.returncode == 2
    assert result.stderr == b"devicemanager: error: standard output: Bad file descriptor\n"
    result = subprocess.run([*shell, "pods", "--help"], stderr=-1, timeout=30)
    assert result.stderr == b"devicemanager: error: standard output: Bad file descriptor\n"
    result = subprocess.run([*shell, "nonsense"], stderr=-1, timeout=30)
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr
    shell[2] = 'exec "$@" >&- 2>&-'
    assert subprocess.run([*shell, "checkpoint", "show", "none"], timeout=30).returncode == 2


def test_package_can_be_run_as_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "devicemanager", "--version"], capture_output=True, timeout=30
    )
    assert (result.returncode, result.stdout[:13]) == (0, b"devicemanager")


def test_ascii_terminal_gets_escapes(tmp_path: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "checkpoint", "show", str(tmp_path / "\u00e9")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=30,
    )
    assert result.returncode == 2
    assert b"\\xe9: No such file" in result.stderr


def test_control_characters_in_errors_are_escaped(tmp_path: Path, capsys: Any) -> None:
    status, _, err = run(capsys, "checkpoint", "verify", str(tmp_path / "\x1b[31m\u202ered é"))
    assert status == 2
    assert "/\\x1b[31m\\u202ered é: No such file" in err


@pytest.mark.parametrize(
    "argv", [["pods", "--socket=a\0b"], ["explain", "a\0b"], ["run", "--root=\0"]]
)
def test_null_character_in_file_name_is_rejected(argv: list[str], capsys: Any) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("without a null character")
