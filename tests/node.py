"""A node without sockets: manager, pod workers and fake plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import checkpoint
from checkpoint.shared_writer import MemoryStore
from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.devices import Device
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.providers.provider import CpusAndMemory
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.pods.podresources import PodSource
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.fakes import ALLOCATE, FakePlugin
from tests.helpers import device

GPU, NIC = ResourceName("vendor.com/gpu"), ResourceName("vendor.com/nic")
TWO = NumaTopology.of([0, 1])
GIB = 1 << 30


class FaultyStore(MemoryStore):
    """A store whose writes can fail, or call a hook before they take effect."""

    broken = False
    hook: Callable[[], None] | None = None
    """Called once, at the beginning of the next write."""

    def write(self, data: checkpoint.Contents) -> None:
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        if self.broken:
            raise checkpoint.CheckpointWriteError("checkpoint", "no space left on device")
        super().write(data)


class Node:
    """A kubelet without servers, on a machine with two NUMA nodes."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        events: EventStream | None = None,
        store: MemoryStore | None = None,
        clock: ManualClock | None = None,
        **fields: Any,
    ) -> None:
        """``fields`` are fields of Settings, used if ``settings`` is None."""
        self.settings = settings or Settings(**{"numa": TWO, **fields})
        self.clock = clock or ManualClock(1000.0)
        self.events = events or EventStream(self.clock)
        self.store = FaultyStore() if store is None else store
        self.pods = PodStore()
        self._serve(None)

    def _serve(self, providers: Any) -> None:
        self.manager = DeviceManager(
            self.settings,
            store=self.store,
            clock=self.clock,
            events=self.events,
            providers=providers,
        )
        self.workers = PodWorkers(self.pods, self.manager, self.settings, self.events)

    def forget_pods(self) -> None:
        """Forget all pods: the next kubelet knows them only from the checkpoint."""
        self.pods = PodStore()
        self.workers = PodWorkers(self.pods, self.manager, self.settings, self.events)

    def plugin(
        self,
        rows: Iterable[Device] = (),
        resource: str = GPU,
        name: str = "plugin.sock",
        **fields: Any,
    ) -> FakePlugin:
        """Register a plugin that advertises these devices."""
        plugin = FakePlugin(ResourceName(resource), **fields)
        plugin.register(self.manager.plugins, name)
        plugin.send_list(rows)
        return plugin

    def admit(self, pod: Pod, *, start: bool = False) -> Admission:
        return self.workers.admit(pod, start=start)

    def terminate(self, *uids: str) -> None:
        self.workers.terminate(uids)

    def start(self, uid: str, container: str = "app") -> Any:
        return self.workers.start_container(uid, container)

    def new_process(self, *, reboot: bool = False) -> None:
        """Restart the kubelet's process, without plugins and before pods are readmitted."""
        # CPUs and memory stay allocated: on a node, they are in state files of their managers.
        providers = self.manager.providers()
        self.manager.close()
        if reboot:
            self.pods.containers_stop()
        self._serve(providers)
        if self.store.data is not None:
            self.manager.restore(checkpoint.loads(self.store.data))

    def readmit(self) -> None:
        """Readmit every pod, and report all pod sources as ready."""
        self.workers.readmit()
        self.workers.sources_ready()

    def restart(self, *, reboot: bool = False) -> None:
        self.new_process(reboot=reboot)
        self.readmit()

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        held = self.manager.holdings(PodUid(uid))
        return {
            name: {resource: sorted(one.ids) for resource, one in by_resource.items()}
            for name, by_resource in held.items()
        }

    def share(self, uid: str, container: str = "app") -> CpusAndMemory:
        """Return the exclusive CPUs and the memory of a container."""
        return self.manager.state.hint_providers.allocated(PodUid(uid), ContainerName(container))

    def source(self) -> PodSource:
        """Return a PodResources source of the node."""
        return PodSource(
            self.manager.state,
            self.pods.snapshot,
            quirks=self.settings.quirks,
            pod_level=True,
            shared_cpus=self.settings.behaviour.shared_cpu_ids,
        )

    def entries(self) -> set[tuple[str, str, str]]:
        """Return pod, container and resource of every entry on disk."""
        saved = checkpoint.loads(self.store.data or b"")
        return {(e.pod_uid, e.container_name, e.resource_name) for e in saved.entries or ()}

    def kinds(self, *only: EventKind) -> list[EventKind]:
        return [event.kind for event in self.events.recent(*only)]

    def messages(self, kind: EventKind) -> list[str]:
        return [event.message for event in self.events.recent(kind)]


def rows(layout: str, prefix: str = "d", **health: str) -> list[Device]:
    """Return a device per character: a digit is its NUMA node, ``b`` means both, ``-`` none.

    IDs are ``d0``, ``d1`` …; ``d1="Unhealthy"`` sets a device's health.
    """
    nodes: dict[str, tuple[int, ...]] = {"0": (0,), "1": (1,), "b": (0, 1), "-": ()}
    ids = [f"{prefix}{number}" for number in range(len(layout))]
    return [
        device(id_, *nodes[kind], health=health.get(id_, HEALTHY))
        for id_, kind in zip(ids, layout, strict=True)
    ]


def guaranteed(
    name: str = "app", cpus: int = 1, gib: int = 1, *, restartable: bool = False, **devices: int
) -> Container:
    """Return a container with exclusive CPUs, memory, and devices of ``vendor.com``."""
    amounts = {"cpu": cpus * 1000, "memory": gib * GIB}
    amounts |= {f"vendor.com/{key}": count for key, count in devices.items()}
    limits = {ResourceName(key): amount for key, amount in amounts.items()}
    return Container(ContainerName(name), limits, limits, restartable)


def cpus_and_memory(cpus: int = 4, gib: int = 4) -> tuple[CpuProvider, MemoryProvider]:
    """Return providers with these CPUs and this memory on each of two nodes."""
    return (
        CpuProvider.of(TWO, {0: range(cpus), 1: range(cpus, 2 * cpus)}),
        MemoryProvider.of(TWO, {"memory": {0: gib * GIB, 1: gib * GIB}}),
    )


def allocations(plugin: FakePlugin) -> list[tuple[str, ...]]:
    """Return the device IDs of each Allocate call so far."""
    return [call.device_ids for call in plugin.calls if call.method == ALLOCATE]
