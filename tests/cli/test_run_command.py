"""``devicemanager run``: sockets, events, static pods, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devicemanager.cli import main
from devicemanager.cli.kubelet_log import KubeletLog
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.objects.manifests import parse
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from podresources import PodResourcesClient, ids_by_resource
from tests.hostile import hostile
from tests.paths import ROOT
from tools.demo.processes import Process

DEADLINE = 30
RUN = [sys.executable, "-m", "devicemanager.cli", "run"]
COMMAND = [str(Path(sys.executable).with_name("devicemanager"))]
GPU = "vendor.com/gpu"


@pytest.fixture
def directory(directory: Path) -> Path:
    (directory / "manifests").mkdir()
    return directory


def kubelet(directory: Path, *flags: str) -> Process:
    pods = ["--manifests", str(directory / "manifests")]
    command = [*RUN, "-o", "json", "--root", str(directory), *pods, *flags]
    return Process("the kubelet", command, directory / "log")


def wait(process: Process, kind: str, **facts: Any) -> dict[str, Any]:
    wanted = {"kind": kind, **facts}
    return process.wait_for(kind, lambda record: wanted.items() <= record.items(), DEADLINE)


def manifest(name: str, gpus: int) -> str:
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: gpus}}}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container]},
        }
    )


def held(directory: Path) -> dict[str, tuple[str, ...]]:
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        return {
            pod.name: ids_by_resource(pod.containers[0].devices).get(GPU, ())
            for pod in client.list()
        }


def test_a_start_waits_for_no_import_that_only_plugins_pods_or_rejections_need(
    directory: Path,
) -> None:
    log = directory / "log"
    python, *arguments = RUN
    command = [python, "-X", "importtime", *arguments, "-o", "json", "--root", str(directory)]
    with Process("the kubelet", command, log) as process:
        wait(process, "ready")
    imported = {line.rpartition("|")[2].strip() for line in log.read_text().splitlines()}
    assert "devicemanager.kubelet.mock" in imported
    assert not imported & {
        "devicemanager.core.allocation.explain",
        "devicemanager.objects.manifests",
        "devicemanager.plugin.manager",
        "devicemanager.plugin.values",
        "devicemanager.kubelet.pods.static_pods",
        "devicemanager.control",
        "kubernetes",
        "msgspec",
        "rich",
        "secrets",
        "starlette",
        "tenacity",
        "uvicorn",
    }


def test_pods_come_and_go_with_their_manifests(directory: Path) -> None:
    manifests = directory / "manifests"
    (manifests / "a.yaml").write_text(manifest("a", 1))
    calls = directory / "calls"
    with kubelet(directory, "--simulate", f"{GPU}=3", "--calls", str(calls)) as process:
        socket = wait(process, "pod-resources-socket")["path"]
        assert socket == str(directory / "pod-resources" / "kubelet.sock")
        wait(process, "ready")
        first = wait(process, "admission", name="default/a")
        assert first["admitted"]
        assert first["containers"]["main"] == {
            "devices": {GPU: ["gpu-mock-0"]},
            "claims": {},
            "numa_nodes": None,
            "settings": {
                "envs": {"GPU_0": "/dev/0"},
                "mounts": [],
                "devices": [],
                "annotations": {},
                "cdi_devices": [],
                "network_interfaces": [],
                "pci_devices": [],
                "conflicts": [],
            },
            "settings_error": None,
            "oci": {"process": {"env": ["GPU_0=/dev/0"]}},
            "oci_error": None,
            "start_error": None,
        }
        assert first["schema"] == "devicemanager.run/v1"
        (manifests / "b.yaml").write_text(manifest("b", 3))
        second = wait(process, "admission", name="default/b")
        assert not second["admitted"]
        assert "Requested: 3, Available: 2" in second["message"]
        (manifests / "a.yaml").unlink()
        wait(process, "terminated", pod=first["pod"])
        # Written again, the rejected one is tried again.
        (manifests / "b.yaml").write_text(manifest("b", 3))
        wait(process, "admission", name="default/b", admitted=True)
        assert held(directory) == {"b": ("gpu-mock-0", "gpu-mock-1", "gpu-mock-2")}
        assert process.stop() == 0
    recorded = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [each["number"] for each in recorded] == [*range(1, len(recorded) + 1)]
    asked = [each["request"] for each in recorded if each["rpc"] == "Allocate"]
    assert [each["container_requests"][0]["devices_ids"] for each in asked] == [
        ["gpu-mock-0"],
        ["gpu-mock-0", "gpu-mock-1", "gpu-mock-2"],
    ]
    assert recorded[-1]["rpc"] == "ListAndWatch" and recorded[-1]["response"] is None


def test_a_rejection_for_its_nodes_is_explained(directory: Path) -> None:
    flags = ["--topology-policy", "single-numa-node", "--simulate", f"{GPU}=3@0,1"]
    (directory / "manifests" / "a.yaml").write_text(manifest("a", 2))
    (directory / "manifests" / "b.yaml").write_text(manifest("b", 1))
    (directory / "manifests" / "c.yaml").write_text(manifest("c", 2))
    with kubelet(directory, *flags) as process:
        first = wait(process, "admission", name="default/a")
        assert first["containers"]["main"]["numa_nodes"] == [0]
        assert wait(process, "admission", name="default/b")["admitted"]
        rejected = wait(process, "admission", name="default/c")
        assert rejected["reason"] == "TopologyAffinityError"
        assert rejected["explanation"]["policy"]["name"] == "single-numa-node"
        (step,) = rejected["explanation"]["steps"]
        assert step["resources"][0]["free"] == 0
        assert rejected["explanation"]["text"] == [
            "policy single-numa-node, scope container",
            "container main",
            f"  {GPU}: 2 requested",
            "    node 0 [##] 0 of 2 free",
            "    node 1 [#]  0 of 1 free",
            "    fits nowhere",
            f"  => single-numa-node: {GPU} fits nowhere: 2 requested, 0 free",
            f"     no other policy would help: not enough free: {GPU}",
            "legend: . free, # in use, x unhealthy, * chosen",
            "in use:",
            f"  {GPU} gpu-mock-0, gpu-mock-2: pod default/a, container main",
            f"  {GPU} gpu-mock-1: pod default/b, container main",
        ]
        assert [one["pod"] for one in rejected["explanation"]["holders"]] == [
            "default/a",
            "default/b",
        ]


def test_a_rejection_is_explained_in_text_too(capsys: Any) -> None:
    node = InMemoryKubelet(Settings(), {GPU: ()})
    pod = parse(pod_manifest("a", {GPU: 1}))
    KubeletLog(as_json=False).admission(pod, node.admit(pod))
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "    policy none, scope container",
        "    container main",
        f"      {GPU}: 1 requested",
        f"      => no healthy devices present; cannot allocate unhealthy devices {GPU}",
        "    legend: . free, # in use, x unhealthy, * chosen",
    ]
    unknown = parse(pod_manifest("b", {"vendor.com/none": 1}))
    strict = InMemoryKubelet(Settings(strict=True), {})
    KubeletLog(as_json=False).admission(unknown, strict.admit(unknown))
    assert capsys.readouterr().out == ""


def test_trouble_of_the_command_looks_like_a_warning_event(capsys: Any) -> None:
    KubeletLog(as_json=False).warn("manifest", "a.yaml: empty")
    assert capsys.readouterr().out.split(" ", 1)[1] == "warning: manifest: a.yaml: empty\n"


def test_a_bad_manifest_is_a_line_and_costs_nobody_else(directory: Path) -> None:
    manifests = directory / "manifests"
    (manifests / "a.yaml").write_text(manifest("a", -1))
    (manifests / "b.yaml").write_text(manifest("b", 1))
    with kubelet(directory, "--simulate", f"{GPU}=3") as process:
        told = wait(process, "manifest", warning=True)
        assert told["message"] == (
            f"{manifests / 'a.yaml'}: spec.containers[0].resources.limits[{GPU}]: "
            'Invalid value: "-1": must be greater than or equal to 0'
        )
        wait(process, "admission", name="default/b", admitted=True)


def test_pods_keep_their_devices_over_a_kill(directory: Path) -> None:
    for name in "ba":
        (directory / "manifests" / f"{name}.yaml").write_text(manifest(name, 1))
    with kubelet(directory, "--simulate", f"{GPU}=3") as process:
        wait(process, "ready")
        before = held(directory)
        process.kill()
    with kubelet(directory) as process:
        wait(process, "ready")
        assert held(directory) == before
        # The plugin died with its kubelet: who holds a device may stay, but none is left.
        (directory / "manifests" / "c.yaml").write_text(manifest("c", 1))
        third = wait(process, "admission", name="default/c")
        assert not third["admitted"]


def test_a_plugin_that_hangs_holds_up_neither_other_pods_nor_the_end(directory: Path) -> None:
    variables = {
        "DEVICE_PLUGIN_DIRECTORY": str(directory / "device-plugins"),
        "RESOURCE_NAME": GPU,
        "ALLOCATE_FAULT": "hang",
    }
    command = [sys.executable, "-m", "devicemanager.cli", "simulate"]
    with (
        kubelet(directory) as process,
        Process("the plugin", command, directory / "plugin.log", variables),
    ):
        wait(process, "devices-updated", resource=GPU)
        (directory / "manifests" / "a.yaml").write_text(manifest("a", 1))
        (directory / "manifests" / "b.yaml").write_text(manifest("b", 0))
        wait(process, "admission", name="default/b", admitted=True)
        (directory / "manifests" / "b.yaml").unlink()
        wait(process, "terminated")
        # Nothing tells when the plugin has the call; either way the kubelet has to end.
        assert process.stop() == 0


def test_a_directory_of_its_own_and_text(tmp_path: Path) -> None:
    process = subprocess.Popen(RUN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.split(" ", 1)[1].rstrip())
        if lines[-1].startswith("ready"):
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, errors) == (0, "")
    assert rest.endswith("stopped: kubelet stopped\n")
    (socket,) = (line.split(": ")[1] for line in lines if line.startswith("plugin socket"))
    assert socket.startswith("/tmp/dm-")
    assert not Path(socket).parents[1].exists()


def exits(process: subprocess.Popen[Any]) -> tuple[int, str]:
    """The exit status, and what was printed on stderr, read to its end."""
    with process:
        try:
            assert process.stderr is not None
            errors = process.stderr.read()
            return process.wait(DEADLINE), errors.decode()
        finally:
            process.kill()  # or it would be waited for, whatever went wrong


@pytest.mark.parametrize("delay", [0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_at_any_moment_leaves_nothing(
    directory: Path, number: signal.Signals, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is set up the signal alone ends it; from then on everything that was set
    up is taken down."""
    # Loaded before everything else, coverage would take the first signals.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    command = [*COMMAND, "run", "--simulate", f"{GPU}=2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    # Nothing to wait for: only so that the signals fall on different moments.
    time.sleep(delay)
    process.send_signal(number)
    status, errors = exits(process)
    # Only the start of the interpreter itself, before anything of ours, may show a traceback.
    assert status in (0, -number) or "Fatal Python error: init_" in errors
    assert "Traceback" not in errors or "devicemanager/cli" not in errors, errors
    assert not list(directory.glob("dm-*"))


def test_a_terminal_that_goes_away_ends_it(directory: Path) -> None:
    """The kernel's SIGHUP, the shell's, and an output that fails: it stops once, and in order."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*RUN, "--root", str(directory)], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert any("ready" in line for line in lines)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
    assert exits(process) == (0, "")
    assert not (directory / "device-plugins" / "kubelet.sock").exists()


def test_under_nohup_a_hangup_is_nothing(directory: Path) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *RUN, "--root", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("ready" in line for line in process.stdout)
    process.send_signal(signal.SIGHUP)
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        assert client.list() == ()
    process.terminate()
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0


def test_a_reader_that_does_not_read_stops_nobody(directory: Path) -> None:
    """A pipe holds 64 KiB; with it full, plugins register, pods come, and SIGTERM is heard."""
    manifests = directory / "manifests"
    command = [*RUN, "-o", "json", "--root", str(directory), "--manifests", str(manifests)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    socket = directory / "device-plugins" / "kubelet.sock"
    wait_until(socket.exists)
    gpus = SimulationSettings(resource_name=GPU, number_devices=300, env_prefix="GPU")
    with SimulatedPlugin(gpus, directory / "device-plugins") as plugin:
        assert plugin.wait_registered(DEADLINE)
        for number in range(30):
            (manifests / f"{number}.yaml").write_text(manifest(f"p{number}", 10))
        wait_until(lambda: sum(bool(ids) for ids in held(directory).values()) == 30)
        process.terminate()
        assert exits(process) == (0, "")


def wait_until(condition: Callable[[], bool]) -> None:
    """For what another process does without telling."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reader_that_goes_away_ends_it(directory: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*RUN, "--root", str(directory)],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=DEADLINE,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    assert not (directory / "device-plugins" / "kubelet.sock").exists()


def error_of(capsys: Any, *argv: str) -> str:
    assert main(["run", *argv]) == 2
    line: str = capsys.readouterr().err
    assert len(line.splitlines()) == 1
    return line.removeprefix("devicemanager: error: ").rstrip("\n")


def test_what_cannot_start_is_one_line(directory: Path, capsys: Any) -> None:
    file = directory / "file"
    file.touch()
    assert "the kernel allows 107" in error_of(capsys, "--root", f"/tmp/{'x' * 100}")
    assert "file" in error_of(capsys, "--root", str(file))
    root = ["--root", str(directory)]
    missing = directory / "none"
    assert error_of(capsys, *root, "--manifests", str(missing)) == (
        f"manifest directory {missing} does not exist"
    )
    mixed = ["--simulate", f"{GPU}=1@0,1@none"]
    assert "or none" in error_of(capsys, *root, *mixed)
    rejected = f"--calls: cannot write {directory}: Is a directory"
    assert rejected in error_of(capsys, *root, "--calls", str(directory))
    # Nothing was served before.
    assert [each.name for each in directory.iterdir() if each != file] == ["manifests"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--root", ""], "argument --root: expected a directory, not an empty text"),
        (["--manifests", ""], "argument --manifests: expected a directory"),
        (
            ["--simulate", "kubernetes.io/gpu=1"],
            "argument --simulate: invalid resource 'kubernetes.io/gpu': expected a name with a domain, such as vendor.com/gpu",
        ),
        (["--simulate", "gpu=1"], "argument --simulate: invalid resource 'gpu'"),
        (
            ["--simulate", f"{GPU}=1", "--simulate", f"{GPU}=2"],
            f"argument --simulate: {GPU} is given twice",
        ),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_usage_shows_the_usage_of_run(argv: list[str], text: str, capsys: Any) -> None:
    assert main(["run", *argv]) == 2
    out, err = capsys.readouterr()
    usage, line = err.splitlines()
    assert (out, usage) == ("", "usage: devicemanager run [options]")
    assert line.startswith(f"devicemanager run: error: {text}")


def test_another_kubelet_is_left_alone(directory: Path, capsys: Any) -> None:
    with kubelet(directory) as process:
        wait(process, "ready")
        assert "another kubelet serves" in error_of(capsys, "--root", str(directory))
        assert held(directory) == {}


@pytest.mark.parametrize("text", [GPU, "=3", f"{GPU}=", f"{GPU}=-1", f"{GPU}=1.5", f"{GPU}=many"])
def test_a_simulation_that_makes_no_sense_is_wrong_usage(text: str, capsys: Any) -> None:
    assert main(["run", "--simulate", text]) == 2
    assert f"invalid devices {text!r}: expected RESOURCE=COUNT" in capsys.readouterr().err


def test_a_relative_root_is_taken_from_here(directory: Path) -> None:
    command = [*RUN, "-o", "json", "--root", "."]
    before = Path.cwd()
    os.chdir(directory)
    try:
        process = Process("the kubelet", command, directory / "log", {"PYTHONPATH": str(before)})
    finally:
        os.chdir(before)
    with process:
        told = wait(process, "plugin-socket")
        assert told["path"] == str(directory / "device-plugins" / "kubelet.sock")


def claims_held(directory: Path) -> dict[str, list[str]]:
    with PodResourcesClient(directory / "pod-resources" / "kubelet.sock") as client:
        return {
            pod.name: [
                f"{device.pool_name}/{device.device_name}"
                for claim in pod.containers[0].dynamic_resources
                for device in claim.claim_resources
            ]
            for pod in client.list()
        }


def test_structured_claims_come_from_a_directory_that_is_followed(directory: Path) -> None:
    examples = ROOT / "examples" / "claims"
    claims, manifests = directory / "claims", directory / "manifests"
    claims.mkdir()
    flags = ["--claims", str(claims), "--simulate-pools", "gpu=1,nic=1"]
    with kubelet(directory, *flags) as process:
        told = wait(process, "claims-state-path")
        wait(process, "ready")
        shutil.copyfile(examples / "pods" / "3-streamer.yaml", manifests / "early.yaml")
        early = wait(process, "admission", name="default/streamer")
        assert not early["admitted"]
        assert 'DeviceClaim "default/stream" does not exist' in early["message"]
        (manifests / "early.yaml").unlink()

        shutil.copyfile(examples / "stream.yaml", claims / "stream.yaml")
        (claims / "bad.yaml").write_text("kind: [")
        line = wait(process, "claims")
        assert line["warning"]
        assert "bad.yaml: not YAML" in line["message"]
        pod = json.loads(manifest("late", 0))
        pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimName": "stream"}]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "net"}]}
        (manifests / "late.yaml").write_text(json.dumps(pod))
        late = wait(process, "admission", name="default/late")
        assert late["admitted"]
        assert claims_held(directory)["late"] == ["mock-nic-0/uplink"]
        cdi = late["containers"]["main"]["settings"]["cdi_devices"]
        assert cdi[0] == "k8s.nic.example.com/device=common"
        assert Path(told["path"]).exists()

        (manifests / "late.yaml").unlink()
        wait(process, "claim-released")
        assert process.stop() == 0


def test_a_directory_of_claims_that_is_not_there_is_said_before_anything_starts(
    directory: Path, capsys: Any
) -> None:
    assert main(["run", "--root", str(directory / "r"), "--claims", "/nosuch"]) == 2
    error = capsys.readouterr().err
    assert error == "devicemanager: error: claims directory /nosuch does not exist\n"
    assert not (directory / "r").exists()


def test_a_plugin_that_ends_in_the_middle_of_its_calls_is_no_noise(directory: Path) -> None:
    with kubelet(directory) as process:
        wait(process, "ready")
        plugins = directory / "device-plugins"
        for turn in range(12):  # gRPC's line comes at some of them only
            with hostile.RawPlugin(plugins / f"p{turn}.sock") as plugin:
                assert hostile.register(plugins / "kubelet.sock", plugin.path.name) is None
                wait_until(lambda plugin=plugin: plugin.streams == 1)
        process.stop()
    assert (directory / "log").read_text() == ""
