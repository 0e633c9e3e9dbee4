"""``InMemoryKubelet``: a kubelet without sockets and files, with simulated plugins.

Methods for pods and devices have the names, arguments and results of ``MockKubelet``, which
documents them; both kubelets delegate them to ``NodePods``. Other methods simulate changes of
devices and plugins, which a ``MockKubelet`` receives from real plugins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from checkpoint import Checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.devices import Device
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.core.podstatus.containers import STOPPED
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated, simulated_devices
from devicemanager.kubelet.inmemory.drivers import ALWAYS, InMemoryDriver, NodeDrivers
from devicemanager.kubelet.inmemory.plugin import InMemoryPlugin
from devicemanager.kubelet.inmemory.process import InMemoryLifecycle, InMemoryProcess, SharedStore
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.node_pods import NodePods
from devicemanager.kubelet.pods.dra import LazyDra
from devicemanager.kubelet.pods.records import PodRecord, PodStore, pod_uid
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.dra.model import ClaimInfo
    from devicemanager.core.node import NodeStatus
    from devicemanager.core.pods import Pod
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.containers import ContainerStatus
    from devicemanager.core.podstatus.phase import Phase
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.inmemory.dra import ClaimFetcher, InMemoryDra
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.manager.manager import DeviceManager
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodInfo
    from devicemanager.kubelet.telemetry import NodeTelemetry
    from devicemanager.objects.manifests import Source
    from devicemanager.objects.manifests.resource_claims import ClaimSources

__all__ = ["InMemoryKubelet"]

_EVENTS_KEPT = 8
"""Number of stored events per node. It is small because a process can have thousands of nodes."""


class InMemoryKubelet:
    """A kubelet with simulated plugins in memory, without sockets, files or threads.

    It makes the same decisions as ``MockKubelet`` and has the same methods for pods and devices.
    Thousands of in-memory kubelets fit into one process. The constructor starts the kubelet;
    ``stop`` and ``start`` simulate a kubelet that is down for a time. All methods are thread-safe.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        simulate: Simulated | None = None,
        *,
        clock: Clock | None = None,
        saved: Checkpoint | None = None,
        names: Mapping[str, str] | None = None,
        drivers: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Start the kubelet and register its plugins.

        ``simulate`` maps each resource name to its devices: a number, a text, or ``Device``
        objects. The text ``8@0,1`` is eight devices, alternating on NUMA nodes 0 and 1. ``saved``
        is the checkpoint of an earlier kubelet; all pods in the checkpoint are assumed to exist.
        ``names`` maps the UIDs of these pods to their names.

        ``drivers`` maps the name of each simulated DRA driver to the names of its devices. The
        kubelet prepares claims with these drivers after ``use_claims`` has set a source of claims.

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
        # Guards _plugins and their device lists; held during starts and stops. Reentrant, because
        # event callbacks run on the thread that holds it. They must not wait for another thread.
        self._turn = threading.RLock()
        self._checkpoint = SharedStore()
        self._latest: InMemoryProcess | None = None
        self._life = InMemoryLifecycle()
        self._pods = NodePods(self._life.serving, self._store, self._claims, self.settings)
        devices = simulated_devices(simulate or {})
        self._plugins = {name: InMemoryPlugin(name, each) for name, each in devices.items()}
        self._removed: set[ResourceName] = set()
        self.drivers = NodeDrivers(drivers)
        """Internal: the simulated DRA drivers of the node."""
        self._claim_source: ClaimFetcher | None = None
        self._claims_before: tuple[ClaimInfo, ...] = ()
        self._serve(saved)
        # All pods of the checkpoint are assumed to exist, so the kubelet may free devices now.
        if saved is not None:
            self.manager.sources_ready(self.manager.pods())
        self._register_all()

    # -- life ------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """True if the kubelet is running."""
        return self._life.process is not None

    def start(self) -> Self:
        """Start the kubelet again after ``stop``; known pods are admitted again.

        Raises RequestError if the kubelet is already running.
        """
        with self._turn:
            if self.is_serving:
                raise RequestError("the in-memory kubelet is already running: stop it first")
            self._resume()
        return self

    def stop(self) -> None:
        """Stop the kubelet. Pods and their containers do not change. Idempotent."""
        with self._turn:
            process, self._life.process = self._life.process, None
            if process is None:
                return
            # An in-memory kubelet has no state file, so the next process gets the claims from here.
            if process.dra.if_used is not None:
                self._claims_before = process.dra.if_used.claims
            process.stop()
            # A real plugin would see its stream end; these plugins have no stream.
            for plugin in self._plugins.values():
                plugin.was_dropped()
        self.events.publish(EventKind.STOPPED, "kubelet stopped")

    def close(self) -> None:
        """Stop the kubelet, as ``stop`` does."""
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

        Containers keep running. The plugins re-register after all pods have been admitted again.
        """
        self.start_again()

    def reboot(self) -> None:
        """Reboot the node: all containers stop, and every pod is admitted again.

        The plugins re-register after these admissions, so pods that request devices are rejected.
        With ``Settings.wait_for_plugin``, plugins re-register first.
        """
        self.start_again(reboot=True)

    def start_again(
        self, settings: Settings | None = None, order: Sequence[str] = (), *, reboot: bool = False
    ) -> None:
        """Restart the kubelet, with ``settings`` if given. With ``reboot``, first stop all
        containers, as a reboot of the node does.

        ``order`` has names of resources and UIDs of pods. In this order, the plugins of the
        resources re-register and the pods are admitted again. Other pods follow, then other
        plugins. With ``Settings.wait_for_plugin``, all plugins re-register before any pod.
        """
        with self._turn:  # no plugin may change between the stop and the start
            self.stop()
            if reboot:
                self._store.containers_stop()
            self.settings = settings or self.settings
            self._resume(order)

    def lose_checkpoint(self) -> None:
        """Remove the stored checkpoint, so that the next start finds no allocations."""
        self._checkpoint.clear()

    def stored_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that the next start loads; None if no checkpoint is stored."""
        return self._checkpoint.load()

    def sources_ready(self) -> None:
        """Free the devices of unknown pods, as ``MockKubelet.sources_ready`` does."""
        self._pods.workers.sources_ready()

    def self_check(self) -> None:
        """Check that the kubelet's indexes of devices in use agree with its allocations. Raises
        DeviceManagerError if an index differs."""
        self.manager.self_check()

    def _resume(self, order: Sequence[str] = ()) -> None:
        process = self._serve(self._checkpoint.load())
        # As on a node, pods are admitted before plugins have re-registered, except if the kubelet
        # waits for plugins.
        if self.settings.wait_for_plugin:
            self._register_all()
        process.workers.readmit(self._returning(order))
        # Not earlier: this frees the devices of pods that have not been admitted again.
        process.workers.sources_ready()
        self._register_all()

    def _returning(self, order: Sequence[str]) -> Iterator[PodRecord]:
        """Yield the records of all pods in the given order, and register plugins in between."""
        waiting = {str(record.pod.uid): record for record in self._store.records()}
        for name in order:
            if (record := waiting.pop(name, None)) is not None:
                yield record
            elif (plugin := self._plugins.get(ResourceName(name))) is not None:
                self._register(plugin)
        yield from waiting.values()

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
            self._lazy_dra,
            providers,
        )
        if saved is not None:
            process.manager.restore(saved)
        if self._claims_before and self.settings.behaviour.dra_enabled:
            # Pods from before the restart hold claims, so the DRA manager cannot wait for a new
            # pod.
            process.dra.manager()
        self._latest = self._life.process = process
        self.events.publish(EventKind.STARTED, "in-memory kubelet is running")
        return process

    # -- DRA -------------------------------------------------------------------------

    def use_claims(self, source: ClaimFetcher) -> None:
        """Internal: set the source from which the kubelet gets the ResourceClaims of pods.

        Without a source, the kubelet prepares no claims, and pods run without the devices of their
        claims.
        """
        self._claim_source = source

    def _lazy_dra(self, manager: DeviceManager) -> LazyDra[InMemoryDra]:
        def create() -> InMemoryDra:
            # Imported here: most nodes have no pods with claims.
            from devicemanager.kubelet.inmemory.dra import InMemoryDra

            assert self._claim_source is not None, "the node has no claims: call use_claims first"
            return InMemoryDra(
                self.settings,
                self.drivers,
                self._claim_source,
                self.clock,
                self.events,
                manager.health_updates,
                self._claims_before,
            )

        is_enabled = self.settings.behaviour.dra_enabled
        return LazyDra(create if is_enabled else None, lambda: self._claim_source is not None)

    def _driver_changed(self, driver: str) -> None:
        process = self._life.process
        if process is not None and process.dra.if_used is not None:
            process.dra.if_used.driver_changed(driver)

    def held_claims(self, uid: str) -> tuple[ClaimInfo, ...]:
        """Internal: return the ResourceClaims that the node holds for a pod, with their devices."""
        dra = self._life.serving().dra.if_used
        return () if dra is None else dra.held(uid)

    def _register_all(self) -> None:
        for plugin in self._plugins.values():
            self._register(plugin)

    def _register(self, plugin: InMemoryPlugin) -> None:
        if not plugin.is_connected and plugin.resource not in self._removed:
            plugin.register(self.manager.plugins)

    # -- pods ------------------------------------------------------------------------

    def admit(
        self,
        manifest: Source,
        *,
        start: bool = True,
        claims: ClaimSources | None = None,
        reserve: bool = True,
    ) -> Admission:
        """Admit a pod, as ``MockKubelet.admit`` does. ``claims`` is not supported: if it is given,
        raises RequestError."""
        if claims is not None:
            raise RequestError(
                "an in-memory kubelet does not support admit(claims=…): use MockKubelet"
            )
        return self._pods.admit(manifest, start=start)

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """Add a pod that an earlier kubelet ran, as ``MockKubelet.restore`` does."""
        admission = self._pods.restore(manifest, devices, statuses, start_time)
        record = self._store.get(pod_uid(admission.uid))
        # Without a sandbox, the claims are prepared when the sandbox is created.
        if record is not None and record.uses_dra and record.has_sandbox:
            self._life.serving().dra.manager().adopt(record.pod)
        return admission

    def adopt(self, pod: Pod) -> None:
        """Add a running pod that an earlier kubelet admitted; do not admit it again.

        The pod's ResourceClaims are prepared again. Errors of this are ignored.
        """
        process = self._life.serving()
        uses_dra = process.workers.uses_dra(pod)
        # One step, so that no other thread sees a pod that is known but not admitted.
        with self._store.lock:
            record = self._store.add(pod, self.clock.time())
            record.admitted = True
            record.uses_dra = uses_dra
            record.all_started()
        # Without the store's lock, because preparing claims can wait for the API server.
        if uses_dra:
            process.dra.manager().adopt(pod)

    def start_pod(self, uid: str) -> None:
        """Start the containers of an admitted pod, as ``MockKubelet.start_pod`` does."""
        self._pods.workers.start(uid)

    def update_pod(self, manifest: Source, generation: int = 0) -> None:
        """Apply a changed manifest of a pod, as ``MockKubelet.update_pod`` does."""
        self._pods.update_pod(manifest, generation)

    def complete_resize(self, uid: str) -> None:
        """Internal: complete the in-place resize of a pod."""
        self._pods.workers.complete_resize(uid)

    def stop_pod(
        self,
        uid: str,
        exit_code: int = STOPPED,
        *,
        reason: str = "",
        message: str = "",
        disruption: str = "",
    ) -> Phase:
        """End a pod, for example in an eviction, as ``MockKubelet.stop_pod`` does."""
        return self._pods.stop_pod(uid, exit_code, reason, message, disruption)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Simulate the exit of all app containers of a pod, as ``MockKubelet.finish`` does."""
        return self._pods.finish(uid, exit_codes)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """Delete a pod gracefully, as ``MockKubelet.delete`` does."""
        self._pods.delete(uid, grace_period)

    def terminate(self, *uids: str) -> None:
        """End and remove pods without a grace period, as ``MockKubelet.terminate`` does."""
        self._pods.workers.terminate(uids)

    def pod(self, uid: str) -> PodInfo:
        """Describe a pod, as ``MockKubelet.pod`` does."""
        return self._pods.pod(uid)

    def has_pod(self, uid: str) -> bool:
        """True if a pod with this UID is known and not deleted."""
        return self._store.get(pod_uid(uid)) is not None

    def pods(self) -> dict[str, PodInfo]:
        """Return all pods that are not deleted, in the order of their admission.

        The result maps the UID of each pod to its ``PodInfo``.
        """
        return self._pods.pods()

    @property
    def pod_store(self) -> PodStore:
        """Internal: the store of all pods of the node."""
        return self._store

    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus:
        """Return a pod's status as in the Pod object, as ``MockKubelet.pod_status`` does."""
        return self._pods.pod_status(uid, gates)

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod, as ``MockKubelet.start_container`` does."""
        return self._pods.workers.start_container(uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """Start a container again, as ``MockKubelet.restart_container`` does."""
        return self.start_container(uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """Simulate the exit of a running container, as ``MockKubelet.exit_container`` does."""
        return self._pods.exit_container(uid, container, exit_code, reason)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return a mapping from a pod's container names to statuses, init containers first."""
        return self._pods.container_statuses(uid)

    # -- devices ---------------------------------------------------------------------

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return a pod's allocated devices: container → resource → sorted device IDs."""
        return self._pods.devices(uid)

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return a mapping from a pod's app containers to their ``allocatedResourcesStatus``.

        The entries of a container are sorted by resource, except with the kubelet bug (quirk) Q7.
        """
        return self._pods.allocated_resources_status(uid)

    def capacity(self) -> dict[str, int]:
        """Return the number of devices of each resource, healthy or not."""
        return dict(self._pods.capacity().capacity)

    def allocatable(self) -> dict[str, int]:
        """Return the number of healthy devices of each resource, in use or not."""
        return dict(self._pods.capacity().allocatable)

    def node_status(self) -> NodeStatus:
        """Return capacity and allocatable, as ``MockKubelet.node_status`` does."""
        return self._pods.node_status()

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return the plugin of each known resource, sorted by resource."""
        return self._pods.plugins()

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every device that is advertised or allocated, sorted by resource and ID."""
        return self._pods.inventory()

    @property
    def health_updates(self) -> HealthUpdates:
        """Queue of the UIDs of pods whose devices changed health, the earliest change first."""
        return self.manager.health_updates

    @property
    def manager(self) -> DeviceManager:
        """Internal: the device manager. Raises RequestError if the kubelet is stopped."""
        return self._pods.manager

    @property
    def telemetry(self) -> NodeTelemetry:
        """Internal: the data for the node's metrics, such as device counts and GPU usage."""
        # Not at the top, because only nodes that report metrics need the module.
        from devicemanager.kubelet.telemetry import NodeTelemetry

        # The manager is passed as a function, because a restart replaces it.
        return NodeTelemetry(lambda: self.manager, self.allocated_resources_status, self._store)

    # -- simulated plugins and devices ---------------------------------------------------
    #
    # All raise RequestError for a resource that the node does not have, except ``set_devices``.
    # ``resource`` can also be the name of a DRA driver, except in ``set_devices``,
    # ``remove_plugin`` and ``fail_allocate``.

    def fail_device(self, resource: str, device: str) -> None:
        """Make a device unhealthy. Raises RequestError for an unknown device."""
        with self._devices(resource) as (plugin, handler):
            plugin.set_health(device, False, handler)

    def recover_device(self, resource: str, device: str) -> None:
        """Make a device healthy. Raises RequestError for an unknown device."""
        with self._devices(resource) as (plugin, handler):
            plugin.set_health(device, True, handler)

    def lose_device(self, resource: str, device: str) -> None:
        """Stop advertising a device. Raises RequestError for an unknown device."""
        with self._devices(resource) as (plugin, handler):
            plugin.lose(device, handler)

    def return_device(self, resource: str, device: str) -> None:
        """Advertise a lost device again; do nothing if the device is not lost."""
        with self._devices(resource) as (plugin, handler):
            plugin.find(device, handler)

    def lose_all(self, resource: str) -> None:
        """Stop advertising all devices of a resource, so that its capacity is 0."""
        with self._devices(resource) as (plugin, handler):
            plugin.lose_all(handler)

    def return_all(self, resource: str) -> None:
        """Advertise all lost devices of a resource again."""
        with self._devices(resource) as (plugin, handler):
            plugin.find(None, handler)

    def set_devices(self, resource: str, devices: int | str | Iterable[Device]) -> None:
        """Replace the devices of a resource; register a plugin if the resource is new.

        ``devices`` is a number, a text, or ``Device`` objects. The text ``8@0,1`` is eight devices,
        alternating on NUMA nodes 0 and 1. Raises ValueError for an invalid text.
        """
        ((name, listed),) = simulated_devices({resource: devices}).items()
        with self._turn:
            handler = self.manager.plugins
            plugin = self._plugins.get(name)
            if plugin is None:
                plugin = self._plugins[name] = InMemoryPlugin(name, listed)
                plugin.register(handler)
            else:
                plugin.replace(listed, handler)

    def stop_plugin(self, resource: str) -> None:
        """Disconnect the plugin of a resource, or stop the DRA driver of this name.

        The devices of a plugin become unhealthy. The kubelet removes the resource after
        ``Settings.grace_period``. A plugin re-registers when the kubelet starts again. A DRA driver
        stays stopped until ``start_plugin`` is called.
        """
        with self._devices(resource) as (plugin, handler):
            plugin.leave(handler)

    def remove_plugin(self, resource: str) -> None:
        """Disconnect the plugin of a resource.

        The plugin does not re-register after restarts until ``start_plugin`` is called.
        """
        with self._plugin(resource) as (plugin, handler):
            plugin.leave(handler)
            self._removed.add(plugin.resource)

    def start_plugin(self, resource: str) -> None:
        """Re-register the plugin of a resource, or start the DRA driver of this name.

        Do nothing if the plugin or driver is registered.
        """
        with self._devices(resource) as (plugin, handler):
            self._removed.discard(ResourceName(plugin.resource))
            if not plugin.is_connected:
                plugin.register(handler)

    def fail_allocate(self, resource: str, error: RpcError | None) -> None:
        """Make every Allocate call of a resource fail with ``error``. If ``error`` is None, calls
        succeed again."""
        with self._plugin(resource) as (plugin, _):
            plugin.fails = None if error is None else _always(error)

    def fail_prepare(self, driver: str, times: int = ALWAYS) -> None:
        """Make the next ``times`` NodePrepareResources calls of a driver fail.

        By default, all calls fail. If ``times`` is 0, calls succeed again.
        """
        self._set_driver(driver, prepare_failures=times)

    def fail_unprepare(self, driver: str, fails: bool = True) -> None:
        """Make every NodeUnprepareResources call of a driver fail. If ``fails`` is False, calls
        succeed again."""
        self._set_driver(driver, fails_unprepare=fails)

    def delay_prepare(self, driver: str, seconds: float) -> None:
        """Make a driver respond to NodePrepareResources after ``seconds``."""
        self._set_driver(driver, delay=seconds)

    def _set_driver(self, driver: str, **values: Any) -> None:
        self.drivers.change(driver, lambda state: attrs.evolve(state, **values))

    def simulated(self) -> Mapping[str, tuple[Device, ...]]:
        """Return a mapping from each resource name to the devices that its plugin advertises.

        For a stopped plugin, these are the devices that it will advertise when it re-registers.
        """
        with self._turn:
            return {str(name): plugin.devices for name, plugin in self._plugins.items()}

    @contextmanager
    def _devices(
        self, resource: str
    ) -> Iterator[tuple[InMemoryPlugin | InMemoryDriver, ClientHandler]]:
        if resource in self.drivers.devices:
            driver = InMemoryDriver(self.drivers, resource, self._driver_changed)
            with self._turn:
                yield driver, self.manager.plugins
        else:
            with self._plugin(resource) as found:
                yield found

    @contextmanager
    def _plugin(self, resource: str) -> Iterator[tuple[InMemoryPlugin, ClientHandler]]:
        with self._turn:
            plugin = self._plugins.get(ResourceName(resource))
            if plugin is None:
                resources = ", ".join(self._plugins) or "none"
                raise RequestError(f"unknown resource {resource}: the node has {resources}")
            yield plugin, self.manager.plugins


def _always(error: RpcError) -> Callable[[], RpcError]:
    return lambda: error
