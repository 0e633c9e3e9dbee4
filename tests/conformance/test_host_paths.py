"""Host paths in responses, judged by declared directories: checks A11, A12 and K14."""

from __future__ import annotations

import contextlib
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.conformance import Hardware, Severity, select
from devicemanager.conformance.checks import allocate, restarts
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing.processes import PluginProcess
from protos import deviceplugin_v1beta1 as dp


def _response(*, device: str = "", mount: str = "") -> dp.ContainerAllocateResponse:
    response = dp.ContainerAllocateResponse()
    if device:
        response.devices.add(host_path=device, container_path="/dev/card", permissions="rw")
    if mount:
        response.mounts.add(host_path=mount, container_path="/data")
    return response


@pytest.fixture
def hw(tmp_path: Path) -> Path:
    """Root directory of a node with a device node and a directory of it."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/card0").touch()
    (tmp_path / "sys/class/card/card0").mkdir(parents=True)
    return tmp_path


def _run(hw: Path, **hardware: Any) -> Any:
    plugin = SimpleNamespace(
        path=lambda path: hw / path.lstrip("/"),
        under_test=SimpleNamespace(hardware=Hardware(**hardware)),
        end=lambda process: process.stop(),
    )
    return SimpleNamespace(plugin=plugin, kubelet=SimpleNamespace(plugin_dir="/plugins"))


@pytest.mark.parametrize(
    ("judge", "response", "text"),
    [
        (
            allocate.a11,
            _response(device="/dev/card9"),
            "card: the device node /dev/card9 does not exist in {hw}/dev (--dev)",
        ),
        (
            allocate.a12,
            _response(mount="/sys/class/card/card9"),
            "card: the mount /sys/class/card/card9 does not exist in {hw}/sys (--sys)",
        ),
        (
            allocate.a12,
            _response(mount="/dev/card9"),
            "card: the mount /dev/card9 does not exist in {hw}/dev (--dev)",
        ),
    ],
)
def test_path_that_declared_hardware_lacks_is_a_failure(
    judge: Any,
    response: dp.ContainerAllocateResponse,
    text: str,
    hw: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocate, "_every_response", lambda run: iter([("card", response)]))
    assert judge.severity is Severity.MUST
    with pytest.raises(Failed) as failed:
        judge.run(_run(hw, dev=hw / "dev", sys=hw / "sys"))
    assert str(failed.value) == text.format(hw=hw)
    with pytest.raises(Warned, match=r" on this machine: declare fake hardware with --(dev|sys)$"):
        judge.run(_run(hw))


@pytest.mark.parametrize(
    "response",
    [
        _response(device="/run/card/0"),
        _response(device="/dev/../card0"),
        _response(mount="/run/card"),
        _response(mount="/dev/shm/card"),
        _response(mount="/sys/fs/bpf/card"),
    ],
)
def test_missing_path_elsewhere_is_a_warning(
    response: dp.ContainerAllocateResponse, hw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "_every_response", lambda run: iter([("card", response)]))
    judge: Any = allocate.a11 if response.devices else allocate.a12
    with pytest.raises(Warned, match=r"does not exist on this machine$"):
        judge.run(_run(hw, dev=hw / "dev", sys=hw / "sys"))


def test_other_file_than_a_device_node_fails_only_on_this_machine(
    hw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_ISREG((hw / "dev/card0").stat().st_mode)
    response = _response(device="/dev/card0", mount="/sys/class/card/card0")
    monkeypatch.setattr(allocate, "_every_response", lambda run: iter([("card", response)]))
    assert allocate.a11.run(_run(hw, dev=hw / "dev")) == "1 device node"
    assert allocate.a12.run(_run(hw, sys=hw / "sys")) is None
    with pytest.raises(Failed, match=r"^card: /dev/card0 is not a device node$"):
        allocate.a11.run(_run(hw))


def _k14(
    monkeypatch: pytest.MonkeyPatch,
    hw: Path,
    response: dp.ContainerAllocateResponse,
    stop: Callable[[], object] = lambda: None,
) -> str:
    monkeypatch.setattr(restarts, "assume_allocates", lambda *args: None)
    run = _run(hw, dev=hw / "dev", sys=hw / "sys")
    answer = SimpleNamespace(container_responses=[response])
    client = SimpleNamespace(allocate=lambda ids: answer)
    run.start = run.relaunch = lambda *args: None
    run.healthy_ids = lambda: ["card0"]
    run.client = lambda: contextlib.nullcontext(client)
    monkeypatch.setattr(restarts, "stop", lambda run: stop())
    run.process = SimpleNamespace(machine_path=run.plugin.path)
    [check] = select(["K14"])
    return str(check.run(run))


def test_k14_counts_the_paths_in_all_declared_directories(
    hw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = _response(device="/dev/card0", mount="/sys/class/card/card0")
    assert _k14(monkeypatch, hw, both) == "2 host paths"
    one = _response(device="/dev/card9", mount="/sys/class/card/card0")
    assert _k14(monkeypatch, hw, one) == "1 host path"
    with pytest.raises(
        Failed, match=f"^{hw}/sys/class/card/card0 was removed by the plugin's exit"
    ):
        _k14(monkeypatch, hw, both, (hw / "sys/class/card/card0").rmdir)


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("", "the response names no device node and no mount"),
        ("/dev/card9", "the response names /dev/card9, which does not exist"),
        ("card0", "the response names card0, which does not exist"),
    ],
)
def test_k14_is_skipped_without_a_file(
    device: str, text: str, hw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Skipped) as skipped:
        _k14(monkeypatch, hw, _response(device=device))
    assert str(skipped.value) == text


def test_paths_of_a_process_on_this_machine(hw: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    with MockKubelet() as kubelet:
        process = PluginProcess(
            kubelet, command, at_node_paths=True, dev=hw / "dev", sys=hw / "sys", cdi=hw / "cdi"
        )
        assert process.machine_path("/dev/card0") == hw / "dev/card0"
        assert process.machine_path("/dev/null") == Path("/dev/null")
        assert process.machine_path("/sys/class/card") == hw / "sys/class/card"
        assert process.machine_path("/var/lib/kubelet/data") == kubelet.root / "data"
        assert process.machine_path("/etc") == Path("/etc")
        for target in ("/etc/cdi", "/var/run/cdi", Path("/var/run").resolve() / "cdi"):
            assert process.machine_path(f"{target}/a.json") == hw / "cdi/a.json"
        plain = PluginProcess(kubelet, command)
        assert plain.machine_path("/dev/card0") == Path("/dev/card0")


def test_links_of_a_process_lead_to_what_it_sees(hw: Path) -> None:
    """A link such as /sys/class/card/first -> /sys/class/card/card0."""
    (hw / "sys/class/card/first").symlink_to("/sys/class/card/card0")
    (hw / "sys/class/card/loop").symlink_to("loop")
    with MockKubelet() as kubelet:
        process = PluginProcess(
            kubelet, ["sh", "-c", "echo ready; sleep 60"], at_node_paths=True, sys=hw / "sys"
        )
        with process:
            kubelet.wait_for(lambda: process.output() == ["ready"], what="its start")
            assert process.seen_path("/sys/class/card/first").is_dir()
            with pytest.raises(OSError, match="loop"):
                process.seen_path("/sys/class/card/loop")
