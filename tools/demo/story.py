"""Acts of the demo with the first kubelet: plugins, pods, a crash and a restart."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkpoint
import podresources
from devicemanager.cli import pods, resources
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import print_table
from devicemanager.objects.manifests import parse
from podresources import PodResourcesClient, ids_by_resource
from tools.demo import acts, drivers
from tools.demo.processes import Process, Record, admit, run_kubelet

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
GPUS, NICS = 6, 4
_ROOT = Path(__file__).parents[2]
EXAMPLES = _ROOT / "examples"
_GO_SOURCES = _ROOT / "tests" / "interop" / "go"
_TIMEOUT = 30.0
_BUILD_TIMEOUT = 240.0

Allocated = dict[tuple[str, str, str], frozenset[str]]
"""Allocated device IDs by pod (``namespace/name``), container and resource."""


class Demo:
    """The demo with all its acts. All files are in one directory."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self.checked = 0
        self._directory = directory
        self._stack = stack
        self._manifests = directory / "manifests"
        self._plugins: list[Process] = []
        self._admissions: dict[str, Record] = {}

    def play(self, go: bool) -> None:
        """Run all acts. With ``go``, one plugin is written in Go. Raises CommandError at the first
        failed check."""
        self.kubelet_starts()
        self.plugins_register(go)
        self.pods_are_admitted()
        self.pod_resources_lists()
        self.kubelet_crashes()
        self.pod_ends()
        self.devices_are_aligned()
        self.claims_share_hardware()
        self.driver_prepares_claims()
        self.everything_stops()

    # --- acts

    def kubelet_starts(self) -> None:
        """Play act 1: start a kubelet."""
        _heading("A mock kubelet in a separate process")
        self._start_kubelet()
        for name in ("plugin-socket", "pod-resources-socket", "checkpoint-path"):
            path = self._kubelet.wait_for(name, _is(name), _TIMEOUT)
            print(f"  {path['message']}")
        self._check("PodResources lists no pods yet", self._list() == ())

    def plugins_register(self, go: bool) -> None:
        """Play act 2: start plugins, which register and advertise devices."""
        _heading("Plugins register and advertise their devices")
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
                f"{resource}: {count} devices allocatable", self._allocatable(resource) == count
            )
        with self._client() as client:
            print_table(resources.COLUMNS, resources.rows(client.get_allocatable(), client.list()))

    def pods_are_admitted(self) -> None:
        """Play act 3: admit pods, and reject one."""
        _heading("Pods from examples/ are admitted, or rejected")
        for example in sorted(EXAMPLES.glob("*.yaml")):
            self._admit(example)
        self._check(
            "warm-up ends before main starts, which reuses its GPU",
            self._devices("default/stages", "warm-up") == self._devices("default/stages", "main"),
        )
        merged = "\n".join(self._settings("ml/stream", "main"))
        ids = [id_ for each in self._devices("ml/stream", "main").values() for id_ in each]
        self._check(
            "stream's settings are merged and name the devices of both plugins",
            len(ids) == 2 and all(id_ in merged for id_ in ids),
        )
        rejected = self._admissions["default/greedy"]
        self._check("greedy was rejected for too few GPUs", GPU in rejected["message"])

    def pod_resources_lists(self) -> None:
        """Play act 4: read the allocations from PodResources."""
        _heading("Node agents use PodResources over gRPC")
        listed = self._list()
        print_table(pods.COLUMNS, pods.rows(listed))
        self._before = _allocated(listed)
        self._check("it lists the devices that were allocated", self._before == self._allocated())
        ids = [(key[2], id_) for key, ids in self._before.items() for id_ in ids]
        self._check("no device is allocated twice", len(ids) == len(set(ids)))

    def kubelet_crashes(self) -> None:
        """Play act 5: kill the kubelet and restart it."""
        _heading("The kubelet is killed with SIGKILL and restarted")
        killed = self._kubelet.pid
        # Use SIGKILL, so that only data that was already written survives.
        self._kubelet.kill()
        saved = checkpoint.load(self._checkpoint)
        self._check(f"the checkpoint of process {killed} verifies", bool(saved.entries))
        self._start_kubelet()
        for resource, count in ((GPU, GPUS), (NIC, NICS)):
            self._wait_listed(resource)
            claim = f"the plugin of {resource} re-registered"
            self._check(claim, self._allocatable(resource) == count)
        self._check("the pods kept their devices", _allocated(self._list()) == self._before)
        now = checkpoint.load(self._checkpoint)
        # Compare without order: a restarted kubelet may write the entries in a different order.
        same = sorted(now.entries or (), key=repr) == sorted(saved.entries or (), key=repr)
        self._check("the checkpoint verifies and has the same entries", same)

    def pod_ends(self) -> None:
        """Play act 6: remove a manifest, which terminates its pod."""
        _heading("A manifest is removed: its pod ends and frees its devices")
        (self._manifests / "1-train.yaml").unlink()
        uid = self._admissions["ml/train"]["pod"]
        self._kubelet.wait_for("the end of train", _is("terminated", pod=uid), _TIMEOUT)
        rest = {key: ids for key, ids in self._before.items() if key[0] != "ml/train"}
        self._check("the other pods keep their devices", _allocated(self._list()) == rest)
        saved = {entry.pod_uid for entry in checkpoint.load(self._checkpoint).entries or ()}
        self._check("the checkpoint no longer has the pod", uid not in saved)

    def devices_are_aligned(self) -> None:
        """Play act 7: align devices to NUMA nodes on another kubelet."""
        _heading("Another kubelet aligns devices to NUMA nodes, or explains why it cannot")
        directory = self._directory / "numa"
        acts.align_devices(directory, EXAMPLES / "numa", self._check, _TIMEOUT)

    def claims_share_hardware(self) -> None:
        """Play act 8: share hardware with structured claims."""
        _heading("Structured claims: partitions of a GPU, a rejection, a NIC that pods share")
        directory = self._directory / "claims"
        acts.share_hardware(directory, EXAMPLES / "claims", self._check, _TIMEOUT)

    def driver_prepares_claims(self) -> None:
        """Play act 9: prepare the ResourceClaims of pods with a DRA driver."""
        _heading("A DRA driver prepares the claims of pods; one pod waits for its driver")
        directory = self._directory / "dra"
        examples = EXAMPLES / "dra" / "pods"
        drivers.prepare_claims(directory, examples, self._check, _TIMEOUT)

    def everything_stops(self) -> None:
        """Play act 10: stop the kubelet and the plugins."""
        _heading("Everything stops at SIGTERM")
        self._check("the kubelet exits with status 0", self._kubelet.stop() == 0)
        for plugin in self._plugins:
            self._check(f"{plugin.name} exits with status 0", plugin.stop() == 0)

    # --- processes

    @property
    def _plugin_directory(self) -> Path:
        return self._directory / "device-plugins"

    @property
    def _checkpoint(self) -> Path:
        return self._plugin_directory / "kubelet_internal_checkpoint"

    def _start_kubelet(self) -> None:
        log = self._directory / "kubelet.log"
        kubelet = run_kubelet("the kubelet", self._directory, log)
        self._kubelet = self._stack.enter_context(kubelet)
        self._kubelet.wait_ready(_TIMEOUT)
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
        """Build the Go plugin and return its path. If that fails, print the reason and return
        None."""
        go = shutil.which("go")
        if go is None:
            print("  (Go is not installed: using a simulated plugin instead of the Go plugin)")
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
                # Do not download another toolchain for a demo.
                env={**os.environ, "GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            print(f"  (the build took more than {_BUILD_TIMEOUT:g} s: continuing without it)")
            return None
        if built.returncode != 0:
            reason = (built.stderr.strip().splitlines() or ["no output"])[-1]
            print(f"  (the build failed: {reason})")
            return None
        return program

    # --- state

    def _client(self) -> podresources.PodResourcesClient:
        socket = self._directory / "pod-resources" / "kubelet.sock"
        return PodResourcesClient(socket, rate_limit_attempts=8)

    def _list(self) -> tuple[podresources.Pod, ...]:
        with self._client() as client:
            return client.list()

    def _allocatable(self, resource: str) -> int:
        with self._client() as client:
            return len(ids_by_resource(client.get_allocatable().devices).get(resource, ()))

    def _wait_listed(self, resource: str) -> None:
        self._kubelet.wait_for(
            f"devices of {resource}", _is("devices-updated", resource=resource), _TIMEOUT
        )

    def _admit(self, example: Path) -> None:
        pod = parse(example)
        name = f"{pod.namespace}/{pod.name}"
        admission = admit(self._kubelet, self._directory, example, _TIMEOUT)
        self._admissions[name] = admission
        if not admission["admitted"]:
            print(f"    {admission['message']}")
            return
        given, wanted = {}, {}
        for container, is_init in pod.all_containers():
            self._show(container.name, is_init, admission["containers"][container.name])
            devices = self._devices(name, container.name)
            given[container.name] = {resource: len(ids) for resource, ids in devices.items()}
            limits = container.limits.items()
            wanted[container.name] = {key: count for key, count in limits if "/" in key}
        self._check("each container has as many devices as it requests", given == wanted)

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

    def _allocated(self) -> Allocated:
        """Return the devices of admitted containers, without the init container that has
        finished."""
        return {
            (name, container, resource): frozenset(ids)
            for name, admission in self._admissions.items()
            if admission["admitted"]
            for container, given in admission["containers"].items()
            if container != "warm-up"
            for resource, ids in given["devices"].items()
        }

    def _check(self, claim: str, holds: bool) -> None:
        """Print ``claim`` if it is true. Otherwise end the demo with a CommandError."""
        if not holds:
            raise CommandError(f"check failed: {claim}")
        self.checked += 1
        print(f"  checked: {claim}")


def _heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _is(kind: str, **facts: Any) -> Any:
    """Return a function that is true for records with this kind and these fields."""
    wanted = {"kind": kind, **facts}
    return lambda record: wanted.items() <= record.items()


def _devices_text(devices: dict[str, list[str]]) -> str:
    parts = [f"{resource} {','.join(ids)}" for resource, ids in devices.items()]
    return "; ".join(parts) or "no devices"


def _settings_lines(settings: Record) -> list[str]:
    """Return one line per environment variable, mount, device node and CDI device of a
    container."""
    lines = [f"env {name}={value}" for name, value in settings["envs"].items()]
    for key in ("mounts", "devices"):
        lines += [
            f"{key.removesuffix('s')} {each['host_path']} at {each['container_path']}"
            for each in settings[key]
        ]
    return lines + [f"CDI device {name}" for name in settings["cdi_devices"]]


def _allocated(listed: tuple[podresources.Pod, ...]) -> Allocated:
    return {
        (f"{pod.namespace}/{pod.name}", container.name, resource): frozenset(ids)
        for pod in listed
        for container in pod.containers
        for resource, ids in ids_by_resource(container.devices).items()
    }
