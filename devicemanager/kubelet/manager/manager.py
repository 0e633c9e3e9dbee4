"""The device manager: admit pods and keep track of their devices.

Theory of operation. ``DeviceManager`` is the shell around the core, as the kubelet's
``ManagerImpl`` (pkg/kubelet/cm/devicemanager/manager.go) is around its maps. It only connects
parts; each has one job:

* ``State`` has all data and the one lock. See its module for the rules of the lock.
* ``ClientHandler`` (``plugins``) applies what plugins report: registrations, device lists, ended
  streams.
* ``Admissions`` runs one admission to its end or undoes it; ``Driver`` makes the RPCs of it.
* ``GracePeriod`` removes a resource some time after its last plugin has disconnected.

In:  ``restore`` with a checkpoint, before anything else; pods through ``admit``; plugins through
     ``plugins``.
Out: the checkpoint, through the ``Store``; events; and values for PodResources, pod statuses and
     views, all read with short locks.

A pod's devices are freed at one of three times. ``release`` frees them at once and writes the
checkpoint: the pod is deleted. ``deactivate`` leaves them visible until the next admission or
List: the pod failed, but the kubelet has not updated its allocations yet. ``sources_ready`` frees
those of pods that exist only in the checkpoint. Until then a restarted kubelet frees nothing,
because a pod can still be on its way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import checkpoint
from checkpoint.shared_writer import MemoryStore, Store
from devicemanager.core import bitset, messages
from devicemanager.core.allocation.container import (
    AdmissionContext,
    Affinities,
    AllocationSteps,
    PodAllocation,
    all_or_nothing,
    allocate_container,
)
from devicemanager.core.allocation.pod import DeviceHintProvider, DeviceHints, admit_pod
from devicemanager.core.allocation.selection import Pick
from devicemanager.core.errors import AllocationError, EndpointError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import HintProvider
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import TopologyPolicy
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.manager.admissions import Admissions
from devicemanager.kubelet.manager.checkpointing import Document
from devicemanager.kubelet.manager.driver import Driver, HostDeviceAssignment
from devicemanager.kubelet.manager.grace_period import GracePeriod
from devicemanager.kubelet.manager.plugin_handler import ClientHandler, HealthUpdates
from devicemanager.kubelet.manager.state import State, allocation_rules
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.errors import WireError

if TYPE_CHECKING:
    from devicemanager.core.explanation.model import AdmissionExplanation
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.manager.state_snapshot import ManagerSnapshot


class Capacity(NamedTuple):
    """Device resources of the node (``GetCapacity``, v1.32)."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


class DeviceManager:
    """A kubelet's device manager; thread-safe.

    Ready once constructed. ``restore`` must be called before any other method, if at all.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        events: EventStream | None = None,
        providers: Iterable[HintProvider] | None = None,
        document: Document | None = None,
    ) -> None:
        """Create the manager. Raises TopologyConfigError for settings that the kubelet rejects.

        ``providers`` are those of the previous manager, with their allocations; None takes new
        ones from the settings. ``document`` builds the contents that ``store`` writes; None
        builds the text of the kubelet's file.
        """
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = events or EventStream(self.clock)
        # Guarded by the state's lock, once there is one.
        self._hints = DeviceHintProvider(
            self.settings.topology_manager,
            grows=self.settings.topology_grows,
            over_device_nodes=self.settings.behaviour.hints_over_device_nodes,
            empty_topology_aligns=self.settings.behaviour.empty_topology_aligns,
            panics="Q33" in self.settings.quirks,
        )
        self.state = State(
            self.settings, store or MemoryStore(), self._written, providers, document
        )
        self._rules = allocation_rules(self.settings)
        self.health_updates = HealthUpdates(self.settings.health_queue_size)
        self._grace_period = GracePeriod(
            self.state, self.clock, self.events, self.settings.grace_period, self.write
        )
        self.plugins = ClientHandler(
            self.state,
            self.clock,
            self.events,
            self.health_updates,
            self.write,
            self._grace_period.watch,
            self._hints.ensure_nodes,
            self.settings.quirks,
        )
        self._host_devices = HostDeviceAssignment(self.state, self.settings.sysfs)
        driver = Driver(
            self.state, self._host_devices, self.events, self.settings.max_allocate_bytes
        )
        self._admissions = Admissions(self.state, driver, self.events, self.write)
        self._pick = _pick(self.settings.shuffle_seed)

    @property
    def policy(self) -> TopologyPolicy:
        """The topology manager's policy, for the NUMA nodes known so far."""
        return self._hints.policy

    # -- restart ---------------------------------------------------------------------

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Restore a checkpoint. Until ``sources_ready``, none of its devices is freed."""
        with self.state.lock:
            self.state.load(saved, self.clock.monotonic())
        # Without the lock, which HostDeviceAssignment takes itself.
        for entry in saved.entries or ():
            self._restore_host_devices(entry)
        self._grace_period.watch()

    def _restore_host_devices(self, entry: checkpoint.PodDevicesEntry) -> None:
        try:
            self._host_devices.restore(PodUid(entry.pod_uid), entry.alloc_resp or b"")
        except WireError as error:
            self.events.publish(
                EventKind.CONFLICT,
                f"checkpoint: response of {entry.resource_name} for pod {entry.pod_uid}: {error}",
                pod=entry.pod_uid,
            )

    def adopt(self, pod: PodUid, devices: Mapping[str, Mapping[str, Iterable[str]]]) -> None:
        """Enter devices (container → resource → IDs) that an earlier kubelet allocated.

        Raises Rejected, and changes nothing, if one of them is allocated to another pod or
        to another container of this pod.
        """
        with self.state.lock:
            try:
                self.state.adopt(pod, devices, self._rules.no_topology_node)
            except Rejected:
                raise
            except BaseException:
                # An interrupt: the entries may exist, and the indexes may lack them.
                self.state.recount()
                if pod in self.state.ledger:
                    self.state.note_pod(pod)
                raise
        self.write()

    def sources_ready(self, known: frozenset[PodUid]) -> None:
        """All pods are known: free the devices of all others, and write the checkpoint."""
        if self.forget_all_but(known):
            self.write()

    def forget_all_but(self, known: frozenset[PodUid]) -> bool:
        """As ``sources_ready``, but without the write. True if the checkpoint must be written."""
        with self.state.lock:
            self.state.is_sources_ready = True
            gone = [pod for pod in self.state.ledger.pods() if pod not in known]
            if self.state.frees_late:
                for pod in gone:
                    self._deactivate(pod)
                return False
            # sum, not any: every pod must be forgotten, also after the first True.
            return sum(map(self.state.forget, gone)) > 0

    @property
    def is_sources_ready(self) -> bool:
        """False while a restarted kubelet does not know all pods yet."""
        return self.state.is_sources_ready

    # -- pods ------------------------------------------------------------------------

    def admit(self, pod: Pod, context: AdmissionContext | None = None) -> PodAllocation:
        """Allocate everything that the pod requests, or raise ``Rejected`` and change nothing.

        Returns when the pod's allocations are on disk.
        """
        allocation = self._allocation(pod, context)
        takes_hints = self._hints.policy.asks_for_hints
        return self._admissions.run(
            allocation, admit_pod(allocation, self._hints), takes_hints=takes_hints
        )

    def allocate_now(self, pod: Pod, container: Container, is_init: bool) -> PodAllocation:
        """Allocate for one container of an active pod that has no allocation recorded
        (``GetDeviceRunContainerOptions``, v1.32)."""
        allocation = self._allocation(pod, None)

        def steps() -> AllocationSteps:
            # Runs in the first step, and so under the lock. The container keeps the alignment that
            # the admission chose for it.
            allocation.affinities = dict(self.state.pods.get(pod.uid).affinities)
            yield from all_or_nothing(
                allocation, allocate_container(allocation, container, is_init)
            )

        return self._admissions.run(allocation, steps())

    def _allocation(self, pod: Pod, context: AdmissionContext | None) -> PodAllocation:
        return PodAllocation(
            pod,
            self.state.endpoints,
            self.state.ledger,
            context or AdmissionContext(self.is_sources_ready),
            self._pick,
            self.state.hint_providers,
            self.state.node,
            rules=self._rules,
        )

    def release(self, *pods: PodUid) -> None:
        """Free everything that is allocated to these pods, with one checkpoint write (Q10)."""
        with self.state.lock:
            if self.state.frees_late:
                for pod in pods:
                    self._deactivate(pod)
                    self.state.pods.delete(pod)
                return
            try:
                released = [pod for pod in pods if self.state.forget(pod)]
            except BaseException:
                # An interrupt: it is unknown how far that got, so everything is repeated.
                self.state.recount()
                self.state.node.recount()
                for pod in pods:
                    self.state.forget(pod)
                raise
            for pod in pods:
                self.state.pods.delete(pod)
        if released:
            self.write()

    def deactivate(self, pod: PodUid) -> None:
        """Mark a pod that failed but is not deleted.

        Its devices stay visible until the next allocation or List frees them
        (``UpdateAllocatedDevices``, v1.32).
        """
        with self.state.lock:
            self._deactivate(pod)

    def _deactivate(self, pod: PodUid) -> None:
        self.state.pods.deactivate(pod)
        self.state.node.remove(pod)

    def free_inactive(self) -> None:
        """Free the devices of inactive pods, as a List does (``UpdateAllocatedDevices``, v1.32).

        The checkpoint contains the change from the next write on.
        """
        # Checked without the lock: every List calls this, and nearly always there are none.
        if self.state.pods.has_inactive:
            with self.state.lock:
                self.state.free_inactive()

    # -- containers ------------------------------------------------------------------

    def pre_start(
        self, pod: PodUid, container: ContainerName, requested: Iterable[ResourceName] = ()
    ) -> None:
        """Call PreStartContainer of every plugin that requires it, sorted by resource.

        ``requested`` are the container's resources, with or without a recorded allocation.
        Raises AllocationError with the kubelet's text; the container must not start then
        (``callPreStartContainerIfNeeded``, v1.32).
        """
        held = self.holdings(pod).get(container, {})
        # The kubelet iterates over a map, so its order is random; sorted, the same container fails
        # with the same message each time.
        for resource in sorted({*held, *requested}):
            with self.state.lock:
                endpoint = self.state.endpoints.serving(resource)
                connection = None if endpoint is None else self.state.connections.get(endpoint.id)
            if not self.is_known(resource):
                continue
            if endpoint is None:
                # The resource is known, but its plugin is gone: the kubelet fails the start.
                raise AllocationError(messages.PRE_START_NO_ENDPOINT.format(resource=resource))
            if not endpoint.options.pre_start_required:
                continue
            if resource not in held:
                text = messages.PRE_START_NO_DEVICES
                raise AllocationError(text.format(pod=pod, container=container, resource=resource))
            try:
                if connection is None:
                    raise EndpointError(messages.STOPPED_ENDPOINT.format(endpoint=endpoint.name))
                connection.pre_start_container(tuple(sorted(held[resource].ids)))
            except EndpointError as error:
                raise AllocationError(messages.PRE_START_FAILED.format(error=error)) from error

    # -- reading ---------------------------------------------------------------------

    def holdings(self, pod: PodUid) -> AllocatedByContainer:
        """Return the pod's allocated devices, by container and resource."""
        with self.state.lock:
            return self.state.ledger.pod(pod)

    def affinities(self, pod: PodUid) -> Affinities:
        """Return the NUMA affinity of the pod's containers (``GetAffinity``, v1.32)."""
        with self.state.lock:
            return dict(self.state.pods.get(pod).affinities)

    def pods(self) -> frozenset[PodUid]:
        """Return the pods with allocated devices."""
        with self.state.lock:
            return frozenset(self.state.ledger.pods())

    def devices(self) -> dict[ResourceName, DeviceList]:
        """Return the device list of every known resource, sorted by name."""
        with self.state.lock:
            return dict(self.state.endpoints.resources())

    def is_known(self, resource: ResourceName) -> bool:
        """True if a plugin registered the resource, or a device of it is allocated."""
        with self.state.lock:
            return resource in self.state.endpoints or self.state.ledger.is_in_use(resource)

    def capacity(self) -> Capacity:
        """Count the devices. Unlike the kubelet's, this expires no resource; see ``expire``."""
        with self.state.lock:
            lists = list(self.state.endpoints.resources())
        return Capacity(
            {name: devices.capacity for name, devices in lists},
            {name: devices.allocatable for name, devices in lists},
        )

    def expire(self) -> tuple[ResourceName, ...]:
        """Remove resources whose grace period is over; return their names, sorted.

        A timer does this, too. Call it before a read that must not depend on the timer.
        """
        return self._grace_period.expire()

    def removed(self) -> frozenset[ResourceName]:
        """Return every resource whose grace period has ended since this manager started."""
        return self._grace_period.removed()

    def allocated_resources_status(
        self, pod: PodUid
    ) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` of the pod's containers with devices."""
        # Imported here: most pods have no status to show, and a start does not load it.
        from devicemanager.core.status import allocated_resources_status

        with self.state.lock:
            return allocated_resources_status(
                self.state.ledger.pod(pod), self._status_list, self.settings.quirks
            )

    def _status_list(self, resource: ResourceName) -> DeviceList | None:
        """Return the list that the status of a resource's devices is read from."""
        endpoints = self.state.endpoints
        keeps = "Q9" in self.settings.quirks
        return endpoints.last_list(resource) if keeps else endpoints.devices(resource)

    def snapshot(self) -> ManagerSnapshot:
        """Return plugins, lists and allocations of this moment, for views."""
        from devicemanager.kubelet.manager.state_snapshot import snapshot

        with self.state.lock:
            return snapshot(self.state)

    def providers(self) -> tuple[HintProvider, ...]:
        """Return the hint providers with their allocations, for the next manager."""
        with self.state.lock:
            return self.state.hint_providers.providers()

    def explain(self, allocation: PodAllocation) -> AdmissionExplanation:
        """Explain the allocations of an admitted pod."""
        from devicemanager.core.allocation.explain import explain

        with self.state.lock:
            return explain(allocation)

    def hints(self, pod: Pod) -> tuple[DeviceHints, DeviceHints]:
        """Return device hints for the pod's first container, and for the whole pod.

        Devices of inactive pods are freed first (``GetTopologyHints``, v1.32).
        """
        with self.state.lock:
            self.state.note_admission(pod.uid)
        self.free_inactive()
        with self.state.lock:
            allocation = PodAllocation(
                pod,
                self.state.endpoints,
                self.state.ledger,
                reusable=self.state.reusable(pod.uid),
            )
            first, _ = next(pod.all_containers())
            return (
                self._hints.container_hints(allocation, first),
                self._hints.pod_hints(allocation),
            )

    def self_check(self) -> None:
        """Recount every index. Raises InternalError if one is wrong."""
        with self.state.lock:
            self.state.ledger.self_check(each.draft for each in self.state.pods.admissions())

    def close(self) -> None:
        """Stop, as a kubelet that exits.

        Connections are closed, admissions in progress fail, and nothing more is written.
        """
        # Timer first: a removal in progress still writes, and the writer is closed last.
        self._grace_period.close()
        self.plugins.close()
        self.state.writer.close()

    def _written(self) -> None:
        self.events.publish(EventKind.CHECKPOINT_WRITTEN, "checkpoint written")

    def write(self) -> None:
        """Write the checkpoint. A failure is reported as an event; the next write retries."""
        try:
            self.state.writer.flush()
        except checkpoint.CheckpointWriteError as error:
            self.events.publish(EventKind.CHECKPOINT_FAILED, str(error))


def _pick(seed: int | None) -> Pick:
    """Return how free devices are chosen: the lowest numbers, or at random (Q22)."""
    if seed is None:
        return bitset.lowest
    source = random.Random(seed)

    def pick(bits: int, count: int) -> int:
        return bitset.of(source.sample(sorted(bitset.numbers(bits)), count))

    return pick
