"""The demo's acts: kubelet and plugins in processes of their own, pods, a crash.

Every line that says something is so has been checked; the demo fails on the first that
is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkpoint
import podresources
from devicemanager.cli import pods, resources
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import print_table
from devicemanager.objects.manifests import parse
from podresources import PodResourcesClient, ids_by_resource
from tools.demo import claims, topology
from tools.demo.processes import Process, Record

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
GPUS, NICS = 6, 4
_ROOT = Path(__file__).parents[2]
EXAMPLES = _ROOT / "examples"
_GO_SOURCES = _ROOT / "tests" / "interop" / "go"
_TIMEOUT = 30.0
_BUILD_TIMEOUT = 240.0

Held = dict[tuple[str, str, str], frozenset[str]]
"""Device ids by pod (``namespace/name``), container and resource."""


class Demo:
    """The story, act by act, in one directory."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self.checked = 0
        self._directory = directory
        self._stack = stack
        self._manifests = directory / "manifests"
        self._manifests.mkdir()
        self._plugins: list[Process] = []
        self._admissions: dict[str, Record] = {}

    def play(self, go: bool) -> None:
        """All acts; CommandError at the first claim that does not hold."""
        self.kubelet_starts()
        self.plugins_register(go)
        self.pods_are_admitted()
        self.pod_resources_tells()
        self.kubelet_crashes()
        self.pod_ends()
        self.devices_are_aligned()
        self.claims_share_hardware()
        self.everything_stops()

    # --- acts

    def kubelet_starts(self) -> None:
        """Act 1."""
        _heading("A mock kubelet in a process of its own")
        self._start_kubelet()
        for name in ("plugin-socket", "pod-resources-socket", "checkpoint-path"):
            path = self._kubelet.wait_for(name, _is(name), _TIMEOUT)
            print(f"  {path['message']}")
        self._check("PodResources answers: no pods yet", self._list() == ())

    def plugins_register(self, go: bool) -> None:
        """Act 2."""
        _heading("Plugins register and list their devices")
        self._simulated_plugin(GPU, GPUS)
        program = self._go_plugin() if go else None
        if program is None:
            self._simulated_plugin(NIC, NICS)
        else:
            flags = ["-dir", str(self._plugin_directory), "-resource", NIC, "-count", str(NICS)]
            self._plugin("plugin written in Go", NIC, [str(program), *flags], {})
        for resource, count in ((GPU, GPUS), (NIC, NICS)):
            self._wait_listed(resource)
            self._check(
                f"{resource}: {count} devices allocatable", self._offered(resource) == count
            )
        with self._client() as client:
            print_table(resources.COLUMNS, resources.rows(client.get_allocatable(), client.list()))

    def pods_are_admitted(self) -> None:
        """Act 3."""
        _heading("Pods from examples/ are admitted, or rejected")
        for example in sorted(EXAMPLES.glob("*.yaml")):
            self._admit(example)
        self._check(
            "warm-up has ended when main starts, and handed its GPU on",
            self._devices("default/stages", "warm-up") == self._devices("default/stages", "main"),
        )
        merged = "\n".join(self._settings("ml/stream", "main"))
        ids = [id_ for each in self._devices("ml/stream", "main").values() for id_ in each]
        self._check(
            "stream's settings are merged: they name the devices of both plugins",
            len(ids) == 2 and all(id_ in merged for id_ in ids),
        )
        rejected = self._admissions["default/greedy"]
        self._check("greedy was rejected, for want of GPUs", GPU in rejected["message"])

    def pod_resources_tells(self) -> None:
        """Act 4."""
        _heading("What a node agent sees: PodResources, through gRPC")
        listed = self._list()
        print_table(pods.COLUMNS, pods.rows(listed))
        self._before = _held(listed)
        self._check("it lists the devices that were allocated", self._before == self._allocated())
        ids = [(key[2], id_) for key, ids in self._before.items() for id_ in ids]
        self._check("no device has two owners", len(ids) == len(set(ids)))

    def kubelet_crashes(self) -> None:
        """Act 5."""
        _heading("The kubelet is killed with SIGKILL and started again")
        killed = self._kubelet.pid
        self._kubelet.kill()
        saved = checkpoint.load(self._checkpoint)
        self._check(f"the checkpoint of process {killed} verifies", bool(saved.entries))
        self._start_kubelet()
        for resource, count in ((GPU, GPUS), (NIC, NICS)):
            self._wait_listed(resource)
            claim = f"the plugin of {resource} came back by itself"
            self._check(claim, self._offered(resource) == count)
        self._check("the pods kept their devices", _held(self._list()) == self._before)
        now = checkpoint.load(self._checkpoint)
        same = sorted(now.entries or (), key=repr) == sorted(saved.entries or (), key=repr)
        self._check("the checkpoint verifies and has the same entries", same)

    def pod_ends(self) -> None:
        """Act 6."""
        _heading("A manifest vanishes: its pod ends and gives its devices back")
        (self._manifests / "1-train.yaml").unlink()
        uid = self._admissions["ml/train"]["pod"]
        self._kubelet.wait_for("the end of train", _is("terminated", pod=uid), _TIMEOUT)
        rest = {key: ids for key, ids in self._before.items() if key[0] != "ml/train"}
        self._check("the other pods keep theirs", _held(self._list()) == rest)
        held_by = {entry.pod_uid for entry in checkpoint.load(self._checkpoint).entries or ()}
        self._check("the checkpoint names the pod no more", uid not in held_by)

    def devices_are_aligned(self) -> None:
        """Act 7."""
        _heading("Another kubelet aligns devices to NUMA nodes, or says why it cannot")
        directory = self._directory / "numa"
        topology.play(directory, EXAMPLES / "numa", self._check, _TIMEOUT)

    def claims_share_hardware(self) -> None:
        """Act 8."""
        _heading("Structured claims: partitions of a GPU, a rejection, a NIC that pods share")
        claims.play(self._directory / "claims", EXAMPLES / "claims", self._check, _TIMEOUT)

    def everything_stops(self) -> None:
        """The end."""
        _heading("Everything stops at SIGTERM")
        self._check("the kubelet ends with status 0", self._kubelet.stop() == 0)
        for plugin in self._plugins:
            self._check(f"{plugin.name} ends with status 0", plugin.stop() == 0)

    # --- processes

    @property
    def _plugin_directory(self) -> Path:
        return self._directory / "device-plugins"

    @property
    def _checkpoint(self) -> Path:
        return self._plugin_directory / "kubelet_internal_checkpoint"

    def _start_kubelet(self) -> None:
        flags = ["--root", str(self._directory), "--manifests", str(self._manifests)]
        program = [sys.executable, "-m", "devicemanager.cli", "run", "-o", "json", *flags]
        log = self._directory / "kubelet.log"
        self._kubelet = self._stack.enter_context(Process("the kubelet", program, log))
        self._kubelet.wait_for("that it is ready", _is("ready"), _TIMEOUT)
        print(f"  devicemanager run, process {self._kubelet.pid}, in {self._directory}")

    def _simulated_plugin(self, resource: str, count: int) -> None:
        name = resource.rpartition("/")[2]
        variables = {
            "DEVICE_PLUGIN_DIRECTORY": str(self._plugin_directory),
            "RESOURCE_NAME": resource,
            "NUMBER_DEVICES": str(count),
            "PLUGIN_NAME": name,
            "DEVICE_ID_PREFIX": name,
            "NODE_NAME": "demo",
            "ENV_PREFIX": name.upper(),
            "DEVICE_FILE_PREFIX": name,
            "CDI_KIND": resource,
            "NUMA": "0,1",
        }
        program = [sys.executable, "-m", "devicemanager.cli", "simulate"]
        self._plugin("simulated plugin", resource, program, variables)

    def _plugin(
        self, name: str, resource: str, program: list[str], variables: dict[str, str]
    ) -> None:
        log = self._directory / f"{resource.replace('/', '-')}.log"
        plugin = self._stack.enter_context(Process(f"the {name}", program, log, variables))
        self._plugins.append(plugin)
        print(f"  {name} of {resource}, process {plugin.pid}")

    def _go_plugin(self) -> Path | None:
        """The plugin on the published Go module, built here; None, with the reason, if not."""
        go = shutil.which("go")
        if go is None:
            print("  (go is not installed: a simulated plugin takes the place of the one in Go)")
            return None
        return self._build(go)

    def _build(self, go: str) -> Path | None:
        print("  building the plugin written in Go (a minute or so the first time)", flush=True)
        program = self._directory / "go-plugin"
        flags = ["-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "./cmd/plugin"]
        try:
            built = subprocess.run(
                [go, "build", *flags],
                cwd=_GO_SOURCES,
                # No download of another toolchain for a demo.
                env={**os.environ, "GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            print(f"  (it took more than {_BUILD_TIMEOUT:g} s: going on without it)")
            return None
        if built.returncode != 0:
            reason = (built.stderr.strip().splitlines() or ["go said nothing"])[-1]
            print(f"  (it cannot be built here: {reason})")
            return None
        return program

    # --- questions

    def _client(self) -> podresources.PodResourcesClient:
        socket = self._directory / "pod-resources" / "kubelet.sock"
        return PodResourcesClient(socket, rate_limit_attempts=8)

    def _list(self) -> tuple[podresources.Pod, ...]:
        with self._client() as client:
            return client.list()

    def _offered(self, resource: str) -> int:
        with self._client() as client:
            return len(ids_by_resource(client.get_allocatable().devices).get(resource, ()))

    def _wait_listed(self, resource: str) -> None:
        self._kubelet.wait_for(
            f"devices of {resource}", _is("devices-updated", resource=resource), _TIMEOUT
        )

    def _admit(self, example: Path) -> None:
        pod = parse(example)
        name = f"{pod.namespace}/{pod.name}"
        shutil.copyfile(example, self._manifests / example.name)
        told = self._kubelet.wait_for(
            f"what becomes of {name}", _is("admission", name=name), _TIMEOUT
        )
        self._admissions[name] = told
        if not told["admitted"]:
            print(f"\n  {example.name}: pod {name} is rejected, {told['reason']}:")
            print(f"    {told['message']}")
            return
        print(f"\n  {example.name}: pod {name} is admitted")
        given, wanted = {}, {}
        for container, is_init in pod.all_containers():
            self._show(container.name, is_init, told["containers"][container.name])
            devices = self._devices(name, container.name)
            given[container.name] = {resource: len(ids) for resource, ids in devices.items()}
            limits = container.limits.items()
            wanted[container.name] = {key: count for key, count in limits if "/" in key}
        self._check("every container has as many devices as it asked for", given == wanted)

    @staticmethod
    def _show(container: str, is_init: bool, given: Record) -> None:
        role = "init container" if is_init else "container"
        print(f"    {role} {container}: {_devices_text(given['devices'])}")
        for line in _settings_lines(given["settings"]):
            print(f"      {line}")

    def _devices(self, pod: str, container: str) -> dict[str, list[str]]:
        devices: dict[str, list[str]] = self._admissions[pod]["containers"][container]["devices"]
        return devices

    def _settings(self, pod: str, container: str) -> list[str]:
        return _settings_lines(self._admissions[pod]["containers"][container]["settings"])

    def _allocated(self) -> Held:
        """What the admissions gave to containers that PodResources shows."""
        return {
            (name, container, resource): frozenset(ids)
            for name, told in self._admissions.items()
            if told["admitted"]
            for container, given in told["containers"].items()
            if container != "warm-up"
            for resource, ids in given["devices"].items()
        }

    def _check(self, claim: str, holds: bool) -> None:
        """Say ``claim`` if it holds; end the demo if it does not."""
        if not holds:
            raise CommandError(f"this should be so, but is not: {claim}")
        self.checked += 1
        print(f"  checked: {claim}")


def _heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _is(kind: str, **facts: Any) -> Any:
    """Matches a record of this kind with these facts."""
    wanted = {"kind": kind, **facts}
    return lambda record: wanted.items() <= record.items()


def _devices_text(devices: dict[str, list[str]]) -> str:
    parts = [f"{resource} {','.join(ids)}" for resource, ids in devices.items()]
    return "; ".join(parts) or "no devices"


def _settings_lines(settings: Record) -> list[str]:
    """What a container gets from its devices, as far as it gets anything."""
    lines = [f"env {name}={value}" for name, value in settings["envs"].items()]
    for key in ("mounts", "devices"):
        lines += [
            f"{key.removesuffix('s')} {each['host_path']} at {each['container_path']}"
            for each in settings[key]
        ]
    return lines + [f"CDI device {name}" for name in settings["cdi_devices"]]


def _held(listed: tuple[podresources.Pod, ...]) -> Held:
    return dict(_holdings(listed))


def _holdings(
    listed: tuple[podresources.Pod, ...],
) -> Iterator[tuple[tuple[str, str, str], frozenset[str]]]:
    for pod in listed:
        for container in pod.containers:
            for resource, ids in ids_by_resource(container.devices).items():
                yield (f"{pod.namespace}/{pod.name}", container.name, resource), frozenset(ids)
