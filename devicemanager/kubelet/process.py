"""One instance of the kubelet's process: device manager and servers, from start to stop.

A start takes its steps in an order that plugins can rely on. It prepares the directories and
restores the checkpoint before it starts any server. It serves PodResources before it publishes
``kubelet.sock``, so a plugin that sees ``kubelet.sock`` finds a complete kubelet. A stop takes the
steps in the opposite order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import attrs

import checkpoint
from checkpoint import Checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.api.codes import go_name
from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN
from devicemanager.core.errors import StartError, StopError
from devicemanager.core.printable import counted
from devicemanager.core.providers.provider import HintProvider
from devicemanager.core.topology import ScopeName
from devicemanager.core.versions.behaviour import StartRemoves
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Clock
from devicemanager.kubelet.checkpoint_faults import FaultyFiles, damage_files
from devicemanager.kubelet.directories import Directories
from devicemanager.kubelet.limits import reason
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pod_resources import FaultyResponses, api_profile
from devicemanager.kubelet.pods.dra import LazyDra
from devicemanager.kubelet.pods.podresources import PodSource
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.pods.runtime import ContainerRuntime
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.pods_api import NodePodsSource, PodsFaults
from devicemanager.kubelet.registration.handlers import DevicePluginHandler, TypeHandler
from devicemanager.kubelet.registration.registrar import Registrar, RegistrationRejected
from devicemanager.kubelet.registration.server import RegistrationServer
from devicemanager.kubelet.registration.watcher import PluginWatcher
from devicemanager.kubelet.resource_claims import LazyResourceClaims
from devicemanager.kubelet.settings import Settings
from podresources.errors import PodResourcesError
from podresources.pods_api.server import PodsServer
from podresources.server import PodResourcesServer

if TYPE_CHECKING:
    from devicemanager.kubelet.dra.manager import DraManager

DRA_PLUGIN = "DRAPlugin"
"""Plugin type that DRA drivers report to the plugin watcher (``DRAPlugin``,
pkg/kubelet/pluginmanager)."""
_WAITS = (0.05, 0.2)
"""Pauses in seconds before a checkpoint that could not be read is read again."""

OnError = Callable[[BaseException], None]


@attrs.frozen(eq=False, repr=False)
class FaultEquipment:
    """Fault injection objects and settings for a new kubelet process."""

    faults: FaultRegistry
    responses: FaultyResponses
    pods: PodsFaults
    keeps_sockets: bool
    """True if the new process leaves the sockets of plugins in place when it starts."""


class KubeletProcess:
    """Device manager, pod workers and servers of one kubelet process.

    ``start`` can be called once, ``stop`` any number of times, also after a failed start.
    """

    def __init__(
        self,
        directories: Directories,
        settings: Settings,
        clock: Clock,
        events: EventStream,
        pods: PodStore,
        on_error: OnError,
        providers: Iterable[HintProvider] | None,
        claims: LazyClaims,
        resource_claims: LazyResourceClaims,
        calls: CallLog,
        equipment: FaultEquipment,
        runtime: ContainerRuntime | None,
    ) -> None:
        self._faults = faults = equipment.faults
        self._keeps_sockets = equipment.keeps_sockets
        self._on_error = on_error
        self._directories = directories
        self._settings = settings
        self._events = events
        self._clock = clock
        self._calls = calls
        self._pods = pods
        self._resource_claims = resource_claims
        self._freeing = checkpoint.Freeing()
        # Freeing the blocks of a replaced file takes long only on a real disk. Without flushes,
        # writes do not wait for the disk, so a separate thread for freeing would gain nothing.
        flushes = settings.durability is not checkpoint.Durability.PROCESS
        self._store = checkpoint.FileStore(
            directories.plugin_dir,
            durability=settings.durability,
            files=FaultyFiles(faults),
            freeing=self._freeing if flushes else None,
        )
        self._quirks = settings.quirks
        self.manager = DeviceManager(
            settings, store=self._store, clock=clock, events=events, providers=providers
        )
        # Events show pod names, and only the pod store has them.
        self.manager.plugins.title_of = pods.title_of
        state = directories.claims_state_path
        self._claims = claims
        self._claims_file = checkpoint.FileStore(
            state.parent, state.name, durability=settings.durability
        )
        self.dra = LazyDra(
            self._create_dra if settings.behaviour.dra_enabled else None, self._has_dra
        )
        self.workers = PodWorkers(pods, self.manager, settings, events, claims, self.dra, runtime)
        policy = self.manager.policy
        self.registrar = Registrar(self.manager.plugins, settings, events, on_error, calls, faults)
        self._registration = RegistrationServer(self.registrar, directories.plugin_socket, on_error)
        handlers: dict[str, Callable[[], TypeHandler]] = {
            DEVICE_PLUGIN: lambda: DevicePluginHandler(self.registrar)
        }
        if settings.behaviour.dra_enabled:
            handlers[DRA_PLUGIN] = self._dra_handler
        self._watcher = PluginWatcher(
            directories.plugins_registry_dir,
            self.registrar,
            handlers,
            events,
            on_error,
            settings.dial_timeout,
            clock,
        )
        self.pod_source = PodSource(
            self.manager.state,
            pods.snapshot,
            pod_level=(
                settings.behaviour.reports_pod_level
                and policy.asks_for_hints
                and policy.scope is ScopeName.POD
            ),
            allocatable_unhealthy=settings.behaviour.allocatable_unhealthy,
            shared_cpus=settings.behaviour.shared_cpu_ids,
            quirks=settings.quirks,
            claims=(claims, self.dra),
            free_inactive=self.manager.free_inactive,
        )
        self.pod_resources = PodResourcesServer(
            self.pod_source,
            directories.pod_resources_socket,
            qps=settings.pod_resources_qps,
            burst=settings.pod_resources_burst,
            clock=clock.monotonic,
            on_error=on_error,
            profile=api_profile(settings),
            answer=equipment.responses,
        )
        self._node_pods = NodePodsSource(pods, self.workers, events, settings)
        self._pods_api: PodsServer | None = None
        if settings.behaviour.serves_pods:
            self._pods_api = PodsServer(
                self._node_pods,
                directories.pods_api_socket,
                qps=settings.pod_resources_qps,
                burst=settings.pod_resources_burst,
                clock=clock.monotonic,
                on_error=on_error,
                intercept=equipment.pods,
            )
        self.is_fresh = False
        """True if the process found no checkpoint at its start, or renamed a corrupt one."""
        self.registration_error: StartError | None = None
        """Error of the Registration service; None if plugins can register."""
        self.socket: Path = directories.plugin_socket
        """Socket of the Registration service."""
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        """Prepare the directories, restore the checkpoint, and start all servers.

        If that fails, stops everything that was started and raises StartError.
        """
        behaviour = self._settings.behaviour
        self._directories.prepare(
            removes_files=behaviour.start_removes is StartRemoves.ALL_BUT_DIRECTORIES,
            deprecation_file=behaviour.deprecation_file,
            keeps_sockets=self._keeps_sockets,
            serves_pods=self._pods_api is not None,
        )
        # Delays are allowed before the first server starts, because calls could be delayed then.
        self._faults.starting()
        try:
            self._serve()
        except BaseException:
            self._stop_all()
            raise

    def _serve(self) -> None:
        # A stop calls these from last to first. The manager and the registrar close connections
        # before ``life.close`` waits for timers, because a timer may be calling a plugin.
        self._stops += [
            self._freeing.close,
            self._claims.close,
            self.workers.close,
            self.registrar.stop,
            self.dra.close,
            self.manager.close,
        ]
        self._load()
        self._claims.load(self._claims_file)
        self.dra.start()
        self._stops += [
            self.pod_resources.stop,
            *([] if self._pods_api is None else [self._pods_api.stop]),
            self._watcher.stop,
            lambda: self._registration.stop(),  # looked up late: a fault can replace the server
        ]
        # A queue, because put and get are atomic: an interrupt comes before or after them.
        others_started: SimpleQueue[bool] = SimpleQueue()

        def wait_for_others() -> None:
            if not others_started.get():
                raise StartError("the start was cancelled: another server could not start")

        # gRPC sleeps for a millisecond when a server starts: start all servers in parallel.
        with ThreadPoolExecutor(2, thread_name_prefix="start") as parallel:
            try:
                registration = parallel.submit(self._registration.start, wait_for_others)
                pods_api = parallel.submit(self._start_server, self._pods_api)
                self._start_server(self.pod_resources)
                self._watcher.start()
                pods_api.result()
                others_started.put(True)
            finally:
                # After a failure, False is the first value, and kubelet.sock is not published.
                others_started.put(False)
            registration.result()

    @staticmethod
    def _start_server(server: PodResourcesServer | PodsServer | None) -> None:
        try:
            if server is not None:
                server.start()
        except PodResourcesError as error:
            raise StartError(str(error)) from error

    def pods_api_counters(self) -> Mapping[tuple[str, str], int]:
        """Return the numbers of Pods API calls and of dropped watch events, as a mapping.

        A key is a pair of metric name and status code. The status code is empty for dropped events.
        Metrics that this kubelet version does not have are left out.
        """
        metrics = self._settings.behaviour.pods_api_metrics
        counts: dict[tuple[str, str], int] = {}
        if "watch_events_dropped" in metrics:
            counts["kubelet_pod_watch_events_dropped_total", ""] = self._node_pods.dropped
        if "requests" in metrics and self._pods_api is not None:
            counts |= {
                (name, go_name(code)): count
                for (name, code), count in self._pods_api.counters().items()
            }
        return counts

    def end_pod_watches(self) -> None:
        """End all watches of the Pods API."""
        if self._pods_api is not None:
            self._pods_api.end_watches()

    def recreate_socket(self) -> None:
        """Recreate ``kubelet.sock`` with a new Registration server; change nothing else.

        Raises StartError if the server cannot start.
        """
        self._registration.stop()
        self._registration = RegistrationServer(self.registrar, self.socket, self._on_error)
        try:
            self._registration.start()
        except StartError as error:
            self.registration_error = error
            raise
        self.registration_error = None

    def stop(self) -> None:
        """Stop all servers and wait for all threads.

        Raises StopError, after everything has stopped, if something could not be cleaned up.
        """
        # A plugin that sees kubelet.sock disappear may end its stream before the stop does. Ignore
        # such an end: a killed kubelet would not write it to the checkpoint either.
        self.manager.plugins.ignore()
        # A delayed call would block the stop: end all delays, then cancel registrations.
        self._faults.stopping()
        # Before the registrar ends its tasks: a kubelet that stops deregisters no driver.
        self.dra.close()
        self.registrar.interrupt()
        failures = self._stop_all()
        if failures:
            reasons = "; ".join(map(reason, failures))
            raise StopError(
                f"the kubelet has stopped, but could not clean up: {reasons}"
            ) from failures[0]

    def _stop_all(self) -> list[Exception]:
        """Call all functions in ``_stops`` in reverse order, and return their errors.

        An interrupt, such as Ctrl-C, is raised after all of them have been called.
        """
        failures: list[Exception] = []
        interrupt: BaseException | None = None
        while self._stops:
            try:
                self._stops.pop()()
            except Exception as error:
                failures.append(error)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return failures

    def _load(self) -> None:
        self._store.remove_leftovers()  # temporary files of a kubelet that was killed
        damage_files(self._faults, self._store.path, self._directories.dra_state_path)
        try:
            saved = self._read_checkpoint()
        except checkpoint.CheckpointNotFound:
            self.is_fresh = True
            return
        except checkpoint.CheckpointUnreadable as error:
            self._reject_to_start(error)
            return
        except checkpoint.CheckpointCorrupt as error:
            self._set_aside(error)
            return
        self.manager.restore(saved)
        pods = counted(len(self.manager.pods()), "pod")
        resources = counted(len(saved.registered_devices or ()), "resource")
        self._events.publish(
            EventKind.CHECKPOINT_LOADED, f"{self._store.path}: devices of {pods}, {resources}"
        )

    # -- DRA -------------------------------------------------------------------------

    def _has_dra(self) -> bool:
        """True if there can be ResourceClaims, or if an earlier process had some."""
        return self._resource_claims.is_used or self._directories.dra_state_path.exists()

    def _create_dra(self) -> DraManager:
        # Imported here: most kubelets have no DRA driver.
        from devicemanager.kubelet.dra.manager import DraManager

        manager = DraManager(
            self._directories.root,
            self._settings,
            self._clock,
            self._events,
            self._calls,
            self._faults,
            self._resource_claims.source(),
            self._active_pods,
            self.manager.health_updates,
            self._on_error,
        )
        manager.start()
        return manager

    def _dra_handler(self) -> TypeHandler:
        from devicemanager.kubelet.dra.registration import DraPluginHandler

        try:
            manager = self.dra.manager()
        except StartError as error:
            raise RegistrationRejected(str(error)) from error
        return DraPluginHandler(self.registrar, manager.instances, self._directories.root)

    def _active_pods(self) -> frozenset[str] | None:
        """Return the UIDs of all active pods; None while not all pods are known."""
        if not self.workers.is_sources_ready:
            return None
        return frozenset(record.pod.uid for record in self._pods.records() if record.is_active)

    def _read_checkpoint(self) -> Checkpoint:
        """Read the checkpoint, with two retries in case a disk error or a lack of descriptors was
        temporary."""
        for wait in _WAITS:
            try:
                return self._store.load(v1=self._settings.behaviour.reads_v1)
            except checkpoint.CheckpointUnreadable:
                time.sleep(wait)
        return self._store.load(v1=self._settings.behaviour.reads_v1)

    def _reject_to_start(self, error: checkpoint.CheckpointUnreadable) -> None:
        """Raise StartError because the checkpoint cannot be read; with quirk Q21, continue.

        The file may be valid. A start without it would allocate devices that containers are
        using, and the next write would replace the file.
        """
        if "Q21" in self._quirks:
            self._events.publish(EventKind.CHECKPOINT_FAILED, f"{error}; the file stays in place")
            return
        raise StartError(str(error)) from error

    def _set_aside(self, error: checkpoint.CheckpointCorrupt) -> None:
        """Rename an invalid checkpoint file, so that it is not overwritten.

        With quirk Q21 the file stays in place, as in the kubelet.
        """
        if "Q21" in self._quirks:
            self._events.publish(EventKind.CHECKPOINT_FAILED, f"{error}; the file stays in place")
            return
        try:
            aside = self._store.set_aside()
        except checkpoint.CheckpointError as failed:
            raise StartError(f"{error}; the file could not be renamed: {failed}") from failed
        self.is_fresh = True
        self._events.publish(
            EventKind.CHECKPOINT_SET_ASIDE,
            # Without the advice in str(error), which has just been followed.
            f"{error.source}: {error.problem}; renamed to {aside}, starting without it",
        )
