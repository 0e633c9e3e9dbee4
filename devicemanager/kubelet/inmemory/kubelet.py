"""``InMemoryKubelet``: the kubelet's decisions about one node, without sockets and files.

Members for pods and devices have the names, arguments and results of ``MockKubelet``, which
documents them; both kubelets delegate to the same part, ``NodePods``. The other members
simulate what happens to devices and plugins, which a ``MockKubelet`` learns from real plugins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from checkpoint import Checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.devices import Device
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.core.podstatus.containers import STOPPED
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.plugin import InMemoryPlugin
from devicemanager.kubelet.inmemory.process import InMemoryLifecycle, InMemoryProcess, SharedStore
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.node_pods import NodePods
from devicemanager.kubelet.pods.records import PodStore, pod_uid
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.node import NodeStatus
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.containers import ContainerStatus
    from devicemanager.core.podstatus.phase import Phase
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.manager.manager import DeviceManager
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodInfo
    from devicemanager.kubelet.telemetry import NodeTelemetry
    from devicemanager.objects.manifests import Source

__all__ = ["InMemoryKubelet"]

_EVENTS_KEPT = 8
"""Stored events per node: a process can have thousands of nodes."""


class InMemoryKubelet:
    """Device manager, pods and plugins of one node in memory: no socket, file or thread.

    It decides as ``MockKubelet`` does and has its methods for pods and devices. Thousands of
    them fit into one process. It runs from the beginning; ``stop`` and ``start`` simulate a
    node that goes down. All methods are thread-safe.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        simulate: Simulated | None = None,
        *,
        clock: Clock | None = None,
        saved: Checkpoint | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """``simulate`` has the devices by resource: a number, a text such as ``8@0,1``, or the
        devices themselves. ``saved`` is the checkpoint of an earlier kubelet; all its pods are
        assumed to exist. ``names`` are the names of these pods, by UID.

        Raises ValueError for an invalid text and TopologyConfigError for topology settings that
        the kubelet would reject.
        """
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock, keep=_EVENTS_KEPT)
        self._store = PodStore(names)
        self._claims = LazyClaims(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
        )
        # Guards _plugins, the device lists of the plugins, and starts and stops. Reentrant:
        # event callbacks run under it, on the thread that holds it. They must not wait for
        # another thread.
        self._turn = threading.RLock()
        self._checkpoint = SharedStore()
        self._latest: InMemoryProcess | None = None
        self._life = InMemoryLifecycle()
        self._pods = NodePods(self._life.serving, self._store, self._claims, self.settings)
        devices = simulated_devices(simulate or {})
        self._plugins = {name: InMemoryPlugin(name, each) for name, each in devices.items()}
        self._serve(saved)
        # All pods of the checkpoint are assumed to exist, so devices of others are free at once.
        if saved is not None:
            self.manager.sources_ready(self.manager.pods())
        self._register_all()

    # -- life ------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """True if the kubelet is running."""
        return self._life.process is not None

    def start(self) -> Self:
        """Start again after ``stop``; known pods are admitted again.

        Raises RequestError if the kubelet is already running.
        """
        with self._turn:
            if self.is_serving:
                raise RequestError("the in-memory kubelet is already running: stop it first")
            self._resume()
        return self

    def stop(self) -> None:
        """Stop. Pods and their containers do not change. Idempotent."""
        with self._turn:
            process, self._life.process = self._life.process, None
            if process is None:
                return
            process.stop()
            # Without a stream to end, the plugins have to be notified.
            for plugin in self._plugins.values():
                plugin.was_dropped()
        self.events.publish(EventKind.STOPPED, "kubelet stopped")

    def close(self) -> None:
        """Stop, as ``stop`` does."""
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def restart(self) -> None:
        """Restart the kubelet's process.

        Containers keep running. The plugins re-register when the kubelet knows its pods.
        """
        with self._turn:  # no plugin may change between the stop and the start
            self.stop()
            self._resume()

    def reboot(self) -> None:
        """Reboot the node: no container runs, and every pod is admitted again.

        The plugins re-register only afterwards. Pods that request devices are therefore
        rejected, unless ``Settings.wait_for_plugin`` makes the kubelet wait for plugins (Q6).
        """
        with self._turn:
            self.stop()
            self._store.containers_stop()
            self._resume()

    def sources_ready(self) -> None:
        """See ``MockKubelet.sources_ready``."""
        self._pods.workers.sources_ready()

    def self_check(self) -> None:
        """Recount all allocations; raise an error if the indexes differ."""
        self.manager.self_check()

    def _resume(self) -> None:
        process = self._serve(self._checkpoint.load())
        # As on a node: pods are admitted before plugins have re-registered. Only a kubelet that
        # waits for plugins (Q6) has them in time.
        if self.settings.wait_for_plugin:
            self._register_all()
        process.workers.readmit()
        process.workers.sources_ready()
        self._register_all()

    def _serve(self, saved: Checkpoint | None) -> InMemoryProcess:
        # CPUs and memory of pods survive a restart, as in the kubelet's state files.
        providers = None if self._latest is None else self._latest.manager.providers()
        process = InMemoryProcess(
            self.settings,
            self._checkpoint,
            self.clock,
            self.events,
            self._store,
            self._claims,
            providers,
        )
        if saved is not None:
            process.manager.restore(saved)
        self._latest = self._life.process = process
        self.events.publish(EventKind.STARTED, "in-memory kubelet is running")
        return process

    def _register_all(self) -> None:
        for plugin in self._plugins.values():
            if not plugin.is_connected:
                plugin.register(self.manager.plugins)

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> Admission:
        """See ``MockKubelet.admit``."""
        return self._pods.admit(manifest, start=start)

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """See ``MockKubelet.restore``."""
        return self._pods.restore(manifest, devices, statuses, start_time)

    def start_pod(self, uid: str) -> None:
        """See ``MockKubelet.start_pod``."""
        self._pods.workers.start(uid)

    def stop_pod(
        self,
        uid: str,
        exit_code: int = STOPPED,
        *,
        reason: str = "",
        message: str = "",
        disruption: str = "",
    ) -> Phase:
        """See ``MockKubelet.stop_pod``."""
        return self._pods.stop_pod(uid, exit_code, reason, message, disruption)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """See ``MockKubelet.finish``."""
        return self._pods.finish(uid, exit_codes)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """See ``MockKubelet.delete``."""
        self._pods.delete(uid, grace_period)

    def terminate(self, *uids: str) -> None:
        """See ``MockKubelet.terminate``."""
        self._pods.workers.terminate(uids)

    def pod(self, uid: str) -> PodInfo:
        """See ``MockKubelet.pod``."""
        return self._pods.pod(uid)

    def has_pod(self, uid: str) -> bool:
        """See ``MockKubelet.has_pod``."""
        return self._store.get(pod_uid(uid)) is not None

    def pods(self) -> dict[str, PodInfo]:
        """See ``MockKubelet.pods``."""
        return self._pods.pods()

    @property
    def pod_store(self) -> PodStore:
        """Internal: see ``MockKubelet.pod_store``."""
        return self._store

    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus:
        """See ``MockKubelet.pod_status``."""
        return self._pods.pod_status(uid, gates)

    def start_container(self, uid: str, container: str) -> RunOptions:
        """See ``MockKubelet.start_container``."""
        return self._pods.workers.start_container(uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """See ``MockKubelet.restart_container``."""
        return self.start_container(uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """See ``MockKubelet.exit_container``."""
        return self._pods.exit_container(uid, container, exit_code, reason)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """See ``MockKubelet.container_statuses``."""
        return self._pods.container_statuses(uid)

    # -- devices ---------------------------------------------------------------------

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """See ``MockKubelet.devices``."""
        return self._pods.devices(uid)

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """See ``MockKubelet.allocated_resources_status``."""
        return self._pods.allocated_resources_status(uid)

    def capacity(self) -> dict[str, int]:
        """See ``MockKubelet.capacity``."""
        return dict(self._pods.capacity().capacity)

    def allocatable(self) -> dict[str, int]:
        """See ``MockKubelet.allocatable``."""
        return dict(self._pods.capacity().allocatable)

    def node_status(self) -> NodeStatus:
        """See ``MockKubelet.node_status``."""
        return self._pods.node_status()

    def plugins(self) -> tuple[PluginStatus, ...]:
        """See ``MockKubelet.plugins``."""
        return self._pods.plugins()

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """See ``MockKubelet.inventory``."""
        return self._pods.inventory()

    @property
    def health_updates(self) -> HealthUpdates:
        """See ``MockKubelet.health_updates``."""
        return self.manager.health_updates

    @property
    def manager(self) -> DeviceManager:
        """Internal: see ``MockKubelet.manager``."""
        return self._pods.manager

    @property
    def telemetry(self) -> NodeTelemetry:
        """Internal: pods with their statuses and device counts, for ``join --http``."""
        from devicemanager.kubelet.telemetry import NodeTelemetry

        return NodeTelemetry(lambda: self.manager, self.allocated_resources_status, self._store)

    # -- simulated plugins and devices ---------------------------------------------------
    #
    # All raise RequestError for a resource or a device that the node does not have.

    def fail_device(self, resource: str, device: str) -> None:
        """Make a device unhealthy."""
        with self._plugin(resource) as (plugin, handler):
            plugin.set_health(device, False, handler)

    def recover_device(self, resource: str, device: str) -> None:
        """Make a device healthy. Raises RequestError for an unknown device."""
        with self._plugin(resource) as (plugin, handler):
            plugin.set_health(device, True, handler)

    def lose_device(self, resource: str, device: str) -> None:
        """Stop advertising a device."""
        with self._plugin(resource) as (plugin, handler):
            plugin.lose(device, handler)

    def return_device(self, resource: str, device: str) -> None:
        """Advertise a lost device again; do nothing if it is advertised."""
        with self._plugin(resource) as (plugin, handler):
            plugin.find(device, handler)

    def lose_all(self, resource: str) -> None:
        """Advertise no device: the node's capacity of the resource is 0."""
        with self._plugin(resource) as (plugin, handler):
            plugin.lose_all(handler)

    def return_all(self, resource: str) -> None:
        """Advertise all lost devices again."""
        with self._plugin(resource) as (plugin, handler):
            plugin.find(None, handler)

    def set_devices(self, resource: str, devices: int | str | Iterable[Device]) -> None:
        """Advertise these devices instead, none for 0; a new resource gets a plugin.

        Raises ValueError for an invalid text.
        """
        ((name, listed),) = simulated_devices({resource: devices}).items()
        with self._turn:
            plugin = self._plugins.get(name)
            if plugin is None:
                plugin = self._plugins[name] = InMemoryPlugin(name, listed)
                plugin.register(self.manager.plugins)
            else:
                plugin.replace(listed, self.manager.plugins)

    def stop_plugin(self, resource: str) -> None:
        """Disconnect the plugin: its devices are unhealthy, and removed after the grace period."""
        with self._plugin(resource) as (plugin, handler):
            plugin.leave(handler)

    def start_plugin(self, resource: str) -> None:
        """Re-register a stopped plugin."""
        with self._plugin(resource) as (plugin, handler):
            if not plugin.is_connected:
                plugin.register(handler)

    def fail_allocate(self, resource: str, error: RpcError | None) -> None:
        """Fail every Allocate of the resource with this error; None lets it succeed again."""
        with self._plugin(resource) as (plugin, _):
            plugin.fails = None if error is None else _always(error)

    def simulated(self) -> Mapping[str, tuple[Device, ...]]:
        """Return the devices that the plugins advertise, or will when they re-register."""
        with self._turn:
            return {str(name): plugin.devices for name, plugin in self._plugins.items()}

    @contextmanager
    def _plugin(self, resource: str) -> Iterator[tuple[InMemoryPlugin, ClientHandler]]:
        with self._turn:
            plugin = self._plugins.get(ResourceName(resource))
            if plugin is None:
                resources = ", ".join(self._plugins) or "none"
                raise RequestError(f"the node has no plugin of {resource}: it has {resources}")
            yield plugin, self.manager.plugins


def _always(error: RpcError) -> Callable[[], RpcError]:
    return lambda: error
