"""``devicemanager pods``, ``resources`` and ``checkpoint``, and what all commands share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import main
from devicemanager.core.runoptions import (
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
)
from devicemanager.wire.settings import settings_to_bytes
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
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def socket(directory: Path) -> Iterator[str]:
    """A server whose node has two pods and names that no terminal should see raw."""
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


def test_pods_as_a_plain_table(socket: str, capsys: Any) -> None:
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
    pods = json.loads(out)["pod_resources"]
    assert status == 0
    assert [pod["name"] for pod in pods] == ["web", "train"]
    assert pods[1]["containers"][0]["devices"][0] == {
        "resource_name": GPU,
        "device_ids": ["gpu-1"],
        "topology": {"nodes": [{"ID": "1"}]},
    }


def test_resources(socket: str, capsys: Any) -> None:
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
def test_no_socket_is_one_line(command: str, directory: Path, capsys: Any) -> None:
    status, out, err = run(capsys, command, "--socket", str(directory / "none.sock"))
    assert (status, out) == (1, "")
    assert err.startswith(f"devicemanager: error: there is no socket at {directory}/none.sock")
    assert len(err.splitlines()) == 1


def test_a_path_too_long_for_a_socket(capsys: Any) -> None:
    status, _, err = run(capsys, "pods", "--socket", "/" + "x" * 120)
    assert status == 1
    assert "has 121 bytes, the kernel allows 107" in err


# --- checkpoint


def settings() -> bytes:
    return settings_to_bytes(
        ContainerSettings(
            envs={"GPUS": "0\n1"},
            mounts=(Mount("/data", "/host", True),),
            devices=(DeviceSpec("/dev/x", "/dev/y"),),
            annotations={"k": "v"},
            cdi_devices=("v.com/c=d",),
            network_interfaces=(NetworkInterface("ens1", "net0"),),
            pci_devices=(PciDevice("10de", "20b0"),),
            filesystem_devices=(DeviceSpec("/dev/f", "/dev/f", "r"),),
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


def test_show(file: Path, capsys: Any) -> None:
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
    assert lines[11].startswith("    allocation response unreadable: 1 bytes are not")
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
    assert first["device_ids"] == {"0": ["g0", "g1"], "-1": ["g2"]}
    assert first["settings"]["envs"] == {"GPUS": "0\n1"}
    assert "settings_error" in second
    assert shown["registered_devices"] == {GPU: ["g0", "g1", "g2"], NIC: []}
    assert shown["checksum"] == checkpoint.verify(file)


def test_show_of_an_empty_checkpoint(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "empty"
    file.write_bytes(checkpoint.dumps(Checkpoint(None, None)))
    _, out, _ = run(capsys, "checkpoint", "show", str(file))
    assert out.splitlines()[:2] == ["no pod holds a device", "no resource is registered"]


def test_verify(file: Path, capsys: Any) -> None:
    status, out, _ = run(capsys, "checkpoint", "verify", str(file))
    checksum = checkpoint.verify(file)
    assert status == 0
    assert out == (
        f"{file}: checksum {checksum} is right, 3 pod device entries, 2 registered resources\n"
    )
    _, out, _ = run(capsys, "checkpoint", "verify", "-o", "json", str(file))
    assert json.loads(out) == {
        "file": str(file),
        "valid": True,
        "checksum": checksum,
        "entries": 3,
        "registered_resources": 2,
    }


def test_an_altered_file(file: Path, capsys: Any) -> None:
    file.write_bytes(file.read_bytes().replace(b"g0", b"g7"))
    for action in ("show", "verify"):
        status, out, err = run(capsys, "checkpoint", action, str(file))
        assert (status, out) == (1, "")
        assert f"devicemanager: error: {file}: the file says checksum" in err
        assert "; `devicemanager checkpoint show --no-verify` shows it all the same" in err
        assert "afresh" not in err
        assert len(err.splitlines()) == 1
    status, out, _ = run(capsys, "checkpoint", "show", "--no-verify", str(file))
    assert status == 0
    assert "g7" in out


def test_diff(file: Path, tmp_path: Path, capsys: Any) -> None:
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
    assert "none: no such file" in err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"\0" * 100])
def test_no_file_content_makes_a_traceback(tmp_path: Path, capsys: Any, content: bytes) -> None:
    file = tmp_path / "broken"
    file.write_bytes(content)
    status, out, err = run(capsys, "checkpoint", "verify", str(file))
    assert (status, out) == (1, "")
    assert err.startswith(f"devicemanager: error: {file}: ")
    assert len(err.splitlines()) == 1
    assert "afresh" not in err


def test_a_directory_is_no_checkpoint(tmp_path: Path, capsys: Any) -> None:
    say = f"devicemanager: error: {tmp_path} is a directory"
    nothing = f"{say}, and there is no kubelet_internal_checkpoint in it\n"
    assert run(capsys, "checkpoint", "show", str(tmp_path)) == (1, "", nothing)
    file = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    file.parent.mkdir()
    file.touch()
    meant = f"{say}; did you mean {file}?\n"
    for flags in ([], ["--no-verify"]):
        assert run(capsys, "checkpoint", "show", *flags, str(tmp_path)) == (1, "", meant)
    explain = ["explain", "pod.yaml", "--checkpoint", str(file.parent)]
    assert run(capsys, *explain)[2] == meant.replace(str(tmp_path), str(file.parent), 1)


def test_what_is_no_regular_file_gets_advice_that_fits(tmp_path: Path, capsys: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    status, _, err = run(capsys, "checkpoint", "show", str(tmp_path / "pipe"))
    assert status == 1
    assert err.endswith("; check its type and permissions\n")


@pytest.mark.parametrize("command", ["pods", "resources"])
def test_what_is_no_socket(command: str, directory: Path, socket: str, capsys: Any) -> None:
    def error_of(path: Path | str) -> str:
        status, out, err = run(capsys, command, "--socket", str(path))
        assert (status, out) == (1, "")
        return err.removeprefix("devicemanager: error: ").rstrip("\n")

    assert error_of(directory) == f"{directory} is a directory; did you mean {socket}?"
    (directory / "root").mkdir()
    (directory / "root" / "pod-resources").symlink_to(directory)
    meant = directory / "root" / "pod-resources" / "kubelet.sock"
    assert error_of(directory / "root").endswith(f" is a directory; did you mean {meant}?")
    (directory / "none").mkdir()
    assert error_of(directory / "none").endswith("and there is no kubelet.sock in it")
    (directory / "file").touch()
    assert error_of(directory / "file").startswith(f"{directory / 'file'} is not a socket")
    assert "there is no socket" in error_of(directory / "nothing")


# --- what all commands share


@pytest.mark.parametrize(
    "argv", [[], ["nonsense"], ["pods", "-o", "xml"], ["checkpoint"], ["checkpoint", "show"]]
)
def test_wrong_usage_is_status_2(argv: list[str], capsys: Any) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert "error: " in err


def test_help_and_version(capsys: Any) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for command in ("run", "demo", "simulate", "explain", "pods", "resources", "checkpoint"):
        assert f"\n    {command}" in out
    status, out, _ = run(capsys, "--version")
    assert (status, out.split()[0]) == (0, "devicemanager")


def test_an_error_nobody_foresaw_is_one_line_unless_asked(capsys: Any, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr(checkpoint, "load", fail)
    status, _, err = run(capsys, "checkpoint", "verify", "x")
    assert status == 1
    assert err == (
        "devicemanager: error: unexpected ZeroDivisionError: a b (a bug; --debug shows where)\n"
    )
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "checkpoint", "verify", "x"])


def test_ctrl_c_is_quiet(capsys: Any, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "load", interrupt)
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


def test_a_reader_that_goes_away_is_no_error(file: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [*COMMAND, "checkpoint", "show", str(file)],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=30,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("argv", "unbuffered"),
    [(["checkpoint", "show", "FILE"], "1"), (["checkpoint", "show", "FILE"], ""), (["--help"], "")],
)
def test_a_full_disk_is_one_line(file: Path, argv: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*COMMAND, *(str(file) if word == "FILE" else word for word in argv)],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=30,
        )
    assert result.returncode == 1
    assert result.stderr == b"devicemanager: error: standard output: No space left on device\n"


def test_a_closed_output_is_one_line(file: Path) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    result = subprocess.run([*shell, "checkpoint", "show", str(file)], stderr=-1, timeout=30)
    assert result.returncode == 1
    assert result.stderr == b"devicemanager: error: standard output: Bad file descriptor\n"
    result = subprocess.run([*shell, "nonsense"], stderr=-1, timeout=30)
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr
    shell[2] = 'exec "$@" >&- 2>&-'
    assert subprocess.run([*shell, "checkpoint", "show", "none"], timeout=30).returncode == 1


def test_the_package_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "devicemanager", "--version"], capture_output=True, timeout=30
    )
    assert (result.returncode, result.stdout[:13]) == (0, b"devicemanager")


def test_an_ascii_terminal_gets_escapes(tmp_path: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "checkpoint", "show", str(tmp_path / "\u00e9")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=30,
    )
    assert result.returncode == 1
    assert b"\\xe9: no such file" in result.stderr
