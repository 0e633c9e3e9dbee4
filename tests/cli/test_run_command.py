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
from podresources.pods_api import PodsClient
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


def test_start_imports_nothing_for_plugins_pods_or_rejections(
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


def test_pods_follow_their_manifests(directory: Path) -> None:
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
        # A rejected pod is retried when its manifest is written again.
        (manifests / "b.yaml").write_text(manifest("b", 3))
        wait(process, "admission", name="default/b", admitted=True)
        assert held(directory) == {"b": ("gpu-mock-0", "gpu-mock-1", "gpu-mock-2")}
        assert process.stop() == 0
    assert calls.stat().st_mode & 0o777 == 0o600  # responses of plugins can have secrets
    recorded = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [each["number"] for each in recorded] == [*range(1, len(recorded) + 1)]
    requests = [each["request"] for each in recorded if each["rpc"] == "Allocate"]
    assert [each["container_requests"][0]["devices_ids"] for each in requests] == [
        ["gpu-mock-0"],
        ["gpu-mock-0", "gpu-mock-1", "gpu-mock-2"],
    ]
    assert recorded[-1]["rpc"] == "ListAndWatch" and recorded[-1]["response"] is None


@pytest.mark.parametrize(("version", "served"), [("1.36", False), ("1.37", True)])
def test_pods_api_is_printed_and_ready_if_it_is_served(
    directory: Path, version: str, served: bool
) -> None:
    (directory / "manifests" / "train.yaml").write_text(manifest("train", 0))
    with kubelet(directory, "--kubelet-version", version) as process:
        # All paths are printed before the first pod is admitted.
        wait(process, "admitted")
        path = directory / "pods-api" / "pods-api.sock"
        printed = [each for each in process._records if each["kind"] == "pods-api-socket"]
        assert [each["path"] for each in printed] == [str(path)] * served
        if served:
            with PodsClient(path) as client:
                assert [pod["metadata"]["name"] for pod in client.list_pods()] == ["train"]


def test_rejection_by_the_topology_manager_is_explained(directory: Path) -> None:
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


def test_rejection_is_explained_in_text(capsys: Any) -> None:
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


def test_warning_of_the_command_looks_like_an_event(capsys: Any) -> None:
    KubeletLog(as_json=False).warn("manifest", "a.yaml: empty")
    assert capsys.readouterr().out.split(" ", 1)[1] == "warning: manifest: a.yaml: empty\n"


def test_bad_manifest_warns_and_others_are_admitted(directory: Path) -> None:
    manifests = directory / "manifests"
    (manifests / "a.yaml").write_text(manifest("a", -1))
    (manifests / "b.yaml").write_text(manifest("b", 1))
    with kubelet(directory, "--simulate", f"{GPU}=3") as process:
        warning_line = wait(process, "manifest", warning=True)
        assert warning_line["message"] == (
            f"{manifests / 'a.yaml'}: spec.containers[0].resources.limits[{GPU}]: "
            'Invalid value: "-1": must be greater than or equal to 0'
        )
        wait(process, "admission", name="default/b", admitted=True)


def test_pods_keep_their_devices_after_sigkill(directory: Path) -> None:
    for name in "ba":
        (directory / "manifests" / f"{name}.yaml").write_text(manifest(name, 1))
    with kubelet(directory, "--simulate", f"{GPU}=3") as process:
        wait(process, "ready")
        before = held(directory)
        process.kill()
    with kubelet(directory) as process:
        wait(process, "ready")
        assert held(directory) == before
        # The plugin died with its kubelet: running pods keep their devices, but none is free.
        (directory / "manifests" / "c.yaml").write_text(manifest("c", 1))
        third = wait(process, "admission", name="default/c")
        assert not third["admitted"]


def test_hanging_plugin_delays_neither_other_pods_nor_the_exit(directory: Path) -> None:
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
        # The call may or may not have reached the plugin; the kubelet must exit in both cases.
        assert process.stop() == 0


def test_temporary_root_is_removed_and_output_is_text(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        (
            "1.20",
            "devicemanager: warning: the mock of kubelet 1.20 was not compared with a real "
            "kubelet\n",
        ),
        ("1.36", ""),
    ],
)
def test_version_that_was_not_compared_has_a_warning(version: str, warning: str) -> None:
    command = [*RUN, "--kubelet-version", version]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(" ready; " in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=DEADLINE)[1] == warning


def exits(process: subprocess.Popen[Any]) -> tuple[int, str]:
    """Return the exit status and all of standard error."""
    with process:
        try:
            assert process.stderr is not None
            errors = process.stderr.read()
            return process.wait(DEADLINE), errors.decode()
        finally:
            process.kill()  # after a failure, the exit of the with block would wait for it


@pytest.mark.parametrize("delay", [0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_signal_at_any_moment_leaves_nothing_behind(
    directory: Path, number: signal.Signals, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the set-up the signal itself ends the process; later, everything is undone."""
    # Without coverage, which is loaded first and would receive the first signals.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    command = [*COMMAND, "run", "--simulate", f"{GPU}=2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    # Not a wait: the pauses make the signals arrive at different moments.
    time.sleep(delay)
    process.send_signal(number)
    status, errors = exits(process)
    # Only the start of the interpreter, before devicemanager is imported, may show an error. An
    # interrupt while it imports its first module has no traceback: it contains only frames of the
    # import system, and Python removes those.
    at_start = "Fatal Python error: init_" in errors or errors == "KeyboardInterrupt\n"
    assert status in (0, -number) or at_start
    assert "Traceback" not in errors or "devicemanager/cli" not in errors, errors
    assert not list(directory.glob("dm-*"))


def test_closed_terminal_stops_the_command(directory: Path) -> None:
    """SIGHUP from the kernel and the shell and a failing output stop the command once, in order."""
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


def test_sighup_is_ignored_under_nohup(directory: Path) -> None:
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


def test_blocked_reader_blocks_neither_plugins_nor_pods(directory: Path) -> None:
    """With the 64 KiB of a pipe full, plugins register, pods are admitted and SIGTERM works."""
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
    """Poll for what another process does."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_broken_pipe_stops_the_command(directory: Path) -> None:
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


def test_failed_start_is_a_one_line_error(directory: Path, capsys: Any) -> None:
    file = directory / "file"
    file.touch()
    assert "the kernel allows 107" in error_of(capsys, "--root", f"/tmp/{'x' * 100}")
    assert "file" in error_of(capsys, "--root", str(file))
    root = ["--root", str(directory)]
    missing = directory / "none"
    assert error_of(capsys, *root, "--manifests", str(missing)) == (
        f"manifest directory {missing}: No such file or directory"
    )
    mixed = ["--simulate", f"{GPU}=1@0,1@none"]
    assert "or none" in error_of(capsys, *root, *mixed)
    rejected = f"--calls: cannot write {directory}: Is a directory"
    assert rejected in error_of(capsys, *root, "--calls", str(directory))
    # The errors came before anything was served.
    assert [each.name for each in directory.iterdir() if each != file] == ["manifests"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--root", ""], "argument --root: invalid value '': expected a directory"),
        (["--manifests", ""], "argument --manifests: invalid value '': expected a directory"),
        (
            ["--simulate", "kubernetes.io/gpu=1"],
            "argument --simulate: invalid resource 'kubernetes.io/gpu': expected a name with",
        ),
        (["--simulate", "gpu=1"], "argument --simulate: invalid resource 'gpu'"),
        (
            ["--simulate", f"{GPU}=1", "--simulate", f"{GPU}=2"],
            f"argument --simulate: duplicate resource {GPU}",
        ),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_usage_prints_the_usage_of_run(argv: list[str], text: str, capsys: Any) -> None:
    assert main(["run", *argv]) == 2
    out, err = capsys.readouterr()
    usage, line = err.splitlines()
    assert (out, usage) == ("", "usage: devicemanager run [options]")
    assert line.startswith(f"devicemanager run: error: {text}")


def test_directory_of_another_kubelet_is_rejected(directory: Path, capsys: Any) -> None:
    with kubelet(directory) as process:
        wait(process, "ready")
        assert "another kubelet serves" in error_of(capsys, "--root", str(directory))
        assert held(directory) == {}


@pytest.mark.parametrize("text", [GPU, "=3", f"{GPU}=", f"{GPU}=-1", f"{GPU}=1.5", f"{GPU}=many"])
def test_invalid_simulation_is_wrong_usage(text: str, capsys: Any) -> None:
    assert main(["run", "--simulate", text]) == 2
    assert f"invalid devices {text!r}: expected RESOURCE=COUNT" in capsys.readouterr().err


def test_relative_root_is_resolved_at_the_start(directory: Path) -> None:
    command = [*RUN, "-o", "json", "--root", "."]
    before = Path.cwd()
    os.chdir(directory)
    try:
        process = Process("the kubelet", command, directory / "log", {"PYTHONPATH": str(before)})
    finally:
        os.chdir(before)
    with process:
        warning_line = wait(process, "plugin-socket")
        assert warning_line["path"] == str(directory / "device-plugins" / "kubelet.sock")


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


def test_structured_claims_follow_their_directory(directory: Path) -> None:
    examples = ROOT / "examples" / "claims"
    claims, manifests = directory / "claims", directory / "manifests"
    claims.mkdir()
    flags = ["--claims", str(claims), "--simulate-pools", "gpu=1,nic=1"]
    with kubelet(directory, *flags) as process:
        warning_line = wait(process, "claims-state-path")
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
        assert Path(warning_line["path"]).exists()

        (manifests / "late.yaml").unlink()
        wait(process, "claim-released")
        assert process.stop() == 0


def test_missing_claims_directory_is_reported_before_the_start(
    directory: Path, capsys: Any
) -> None:
    assert main(["run", "--root", str(directory / "r"), "--claims", "/nosuch"]) == 2
    error = capsys.readouterr().err
    assert error == "devicemanager: error: claims directory /nosuch: No such file or directory\n"
    assert not (directory / "r").exists()


def test_plugin_that_exits_during_calls_logs_no_grpc_lines(directory: Path) -> None:
    with kubelet(directory) as process:
        wait(process, "ready")
        plugins = directory / "device-plugins"
        for turn in range(12):  # gRPC logs its line only in some of the rounds
            with hostile.RawPlugin(plugins / f"p{turn}.sock") as plugin:
                assert hostile.register(plugins / "kubelet.sock", plugin.path.name) is None
                wait_until(lambda plugin=plugin: plugin.streams == 1)
        process.stop()
    assert (directory / "log").read_text() == ""


def test_simulated_driver(directory: Path) -> None:
    process = kubelet(directory, "--simulate-driver", "gpu.example.com=2")
    wait(process, "driver-connected")
    wait(process, "ready")
    assert (directory / "plugins/gpu.example.com/dra.sock").exists()
    process.stop()
    assert not (directory / "plugins/gpu.example.com/dra.sock").exists()


@pytest.mark.parametrize("text", ["gpu", "gpu.example.com=0", "GPU=1", "gpu=x"])
def test_invalid_simulated_driver(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--simulate-driver", text]) == 2
    assert f"invalid driver '{text}': expected a name and a number" in capsys.readouterr().err
