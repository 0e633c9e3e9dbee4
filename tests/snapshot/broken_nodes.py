"""Nodes with the problems of docs/broken-node.md.

Each is a story in steps. The part before the first ``yield`` causes the problem. Each further part
stands for what the reader does in words or with other commands, such as kubectl.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

import checkpoint
from checkpoint import CHECKPOINT_NAME, Checkpoint, PodDevicesEntry, dra
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.wire.settings import settings_to_bytes
from podresources import (
    Allocatable,
    Container,
    ContainerDevices,
    MemorySource,
    Pod,
    PodResourcesServer,
)

GPU = "vendor.com/gpu"
DRIVER = "gpu.example.com"
GPUS = {"gpu-0": 0, "gpu-1": 0, "gpu-2": 1, "gpu-3": 1}
"""NUMA node of each device."""
CONFIG = "kind: KubeletConfiguration\ntopologyManagerPolicy: {}\n"
TRAIN, INFER = "6d1f6a0e-train", "0b9c2f4d-infer"
NAMES = {TRAIN: "train", INFER: "infer"}


@attrs.define
class BrokenNode:
    """A machine's file system with a kubelet directory, and sockets with listeners."""

    host: Path
    _stack: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack)
    _source: MemorySource = attrs.field(factory=MemorySource)
    _sockets: dict[str, socket.socket] = attrs.field(factory=dict)

    @property
    def root(self) -> Path:
        return self.host / "var/lib/kubelet"

    @property
    def checkpoint(self) -> Path:
        return self.root / "device-plugins" / CHECKPOINT_NAME

    def __attrs_post_init__(self) -> None:
        node = self.host / "sys/devices/system/node"
        for number, cpus in enumerate(("0-3", "4-7")):
            (node / f"node{number}").mkdir(parents=True)
            (node / f"node{number}/distance").write_text("10 21" if not number else "21 10")
            (node / f"node{number}/cpulist").write_text(cpus)
            (node / f"node{number}/meminfo").write_text("MemTotal: 8388608 kB")
        (node / "online").write_text("0-1")
        (self.host / "etc").mkdir()
        (self.host / "etc/hostname").write_text("worker-1")
        (self.root / "device-plugins").mkdir(parents=True)
        (self.root / "config.yaml").write_text(CONFIG.format("none"))
        self.start_kubelet()
        self.start_plugin()

    def start_kubelet(self) -> None:
        self._stack.enter_context(
            PodResourcesServer(self._source, self.root / "pod-resources/kubelet.sock")
        )
        self._listen("kubelet.sock")

    def stop_kubelet(self) -> None:
        self._stack.close()
        self._close("kubelet.sock")

    def start_plugin(self) -> None:
        self._listen("gpu.sock")

    def kill_plugin(self) -> None:
        self._sockets.pop("gpu.sock").close()

    def close(self) -> None:
        self._stack.close()
        for each in self._sockets.values():
            each.close()

    def _listen(self, name: str) -> None:
        self._close(name)
        server = self._sockets[name] = socket.socket(socket.AF_UNIX)
        server.bind(str(self.root / "device-plugins" / name))
        server.listen()

    def _close(self, name: str) -> None:
        if name in self._sockets:
            self._sockets.pop(name).close()
        (self.root / "device-plugins" / name).unlink(missing_ok=True)

    def set_pods(
        self,
        allocated: dict[str, tuple[str, ...]],
        allocatable: Iterable[str] = GPUS,
        ended: Iterable[str] = (),
    ) -> None:
        """Set the content of PodResources, by pod UID. Pods that have ended are on the node, but
        not in PodResources."""
        self._source.replace(
            pods=[
                Pod(NAMES[uid], "ml", (Container("main", tuple(map(_placed, ids))),))
                for uid, ids in allocated.items()
            ],
            allocatable=Allocatable(tuple(map(_placed, allocatable))),
        )
        shutil.rmtree(self.root / "pods", ignore_errors=True)
        for uid in (*allocated, *ended):
            (self.root / "pods" / uid).mkdir(parents=True)
            logs = self.host / f"var/log/pods/ml_{NAMES[uid]}_{uid}"
            logs.mkdir(parents=True, exist_ok=True)

    def write(
        self, allocated: dict[str, tuple[str, ...]], registered: Iterable[str] = GPUS
    ) -> None:
        """Write the checkpoint."""
        entries = tuple(_entry(uid, ids) for uid, ids in allocated.items())
        content = checkpoint.dumps(Checkpoint(entries, {GPU: tuple(registered)}))
        self.checkpoint.write_bytes(content)


def _placed(id_: str) -> ContainerDevices:
    return ContainerDevices(GPU, (id_,), (GPUS[id_],))


def _entry(uid: str, ids: tuple[str, ...]) -> PodDevicesEntry:
    nodes: dict[int, tuple[str, ...]] = {}
    for id_ in ids:
        nodes[GPUS[id_]] = (*nodes.get(GPUS[id_], ()), id_)
    answer = settings_to_bytes(ContainerSettings(envs={"GPUS": ",".join(ids)}))
    return PodDevicesEntry(uid, "main", GPU, nodes, answer)


BOTH = {TRAIN: ("gpu-0", "gpu-1"), INFER: ("gpu-2",)}


def reboot(node: BrokenNode) -> Iterator[None]:
    node.write(BOTH)
    node.set_pods({}, allocatable=(), ended=BOTH)
    node.kill_plugin()
    yield
    node.start_plugin()
    node.set_pods({}, ended=BOTH)
    node.write({})
    yield


def nothing_allocatable(node: BrokenNode) -> Iterator[None]:
    node.write({INFER: ("gpu-2",)})
    node.set_pods({INFER: ("gpu-2",)}, allocatable=())
    yield
    node.set_pods({INFER: ("gpu-2",)})
    yield


def stale(node: BrokenNode) -> Iterator[None]:
    node.set_pods(BOTH)
    node.write(BOTH)
    node.set_pods({INFER: ("gpu-2",)})
    yield
    node.stop_kubelet()
    yield
    node.start_kubelet()
    yield


def corrupt(node: BrokenNode) -> Iterator[None]:
    node.set_pods(BOTH)
    node.write(BOTH)
    data = node.checkpoint.read_bytes()
    node.checkpoint.write_bytes(data[: data.index(b'"RegisteredDevices"') - 40])
    node.stop_kubelet()
    yield
    node.start_kubelet()
    node.write({TRAIN: BOTH[TRAIN]})
    node.set_pods({TRAIN: BOTH[TRAIN]})
    yield


def numa(node: BrokenNode) -> Iterator[None]:
    (node.root / "config.yaml").write_text(CONFIG.format("single-numa-node"))
    allocated = {TRAIN: ("gpu-0",), INFER: ("gpu-2",)}
    node.set_pods(allocated)
    node.write(allocated)
    yield


def twice(node: BrokenNode) -> Iterator[None]:
    allocated = {TRAIN: ("gpu-0", "gpu-1"), INFER: ("gpu-1",)}
    node.set_pods(allocated)
    node.write(allocated)
    yield
    node.set_pods({TRAIN: allocated[TRAIN]})
    node.write({TRAIN: allocated[TRAIN]})
    yield


def _claim(name: str, uid: str, device: str) -> dra.ClaimState:
    prepared = dra.Device("worker-1", device, None, ("gpu",), (f"{DRIVER}/device={device}",))
    drivers = {DRIVER: dra.DriverState((prepared,))}
    return dra.ClaimState("ml", f"{name}-gpu", f"5e0c-{name}", frozenset({uid}), drivers)


def claims(node: BrokenNode) -> Iterator[None]:
    node.set_pods({}, ended=(TRAIN, INFER))
    node.write({})
    state = dra.State((_claim("train", TRAIN, "gpu-0"), _claim("infer", INFER, "gpu-1")))
    (node.root / dra.STATE_NAME).write_bytes(dra.dumps(state)[:-90])
    node.stop_kubelet()
    yield
    node.start_kubelet()
    yield


STORIES: dict[str, Callable[[BrokenNode], Iterator[None]]] = {
    "UnexpectedAdmissionError after a reboot": reboot,
    "Nothing allocatable though the plugin runs": nothing_allocatable,
    "Devices of pods that are gone": stale,
    "A corrupt checkpoint": corrupt,
    "Rejected for NUMA nodes": numa,
    "Two pods on one device": twice,
    "The kubelet does not start because of DRA": claims,
}
"""By heading of the page."""
