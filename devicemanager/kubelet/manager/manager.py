"""The device manager: allocate devices to pods and track them.

Theory of operation. ``DeviceManager`` corresponds to the kubelet's ``ManagerImpl``
(pkg/kubelet/cm/devicemanager/manager.go). ``devicemanager.core`` makes its decisions. The manager
connects these objects:

* ``State`` has all data and the one lock. See its module for the rules of the lock.
* ``ClientHandler`` (``plugins``) updates the state when plugins register, send device lists or
  disconnect.
* ``Admissions`` runs an admission to its end or undoes it; ``Driver`` makes the RPCs.
* ``GracePeriod`` removes a resource when its last plugin has been disconnected for too long.

In:  ``restore`` with a checkpoint, before anything else; pods through ``admit``; plugins through
     ``plugins``.
Out: the checkpoint, through the ``Store``; events; and values for PodResources, pod statuses and
     displays (``devicemanager.observe``). A read holds the lock only for a short time.

Three methods free a pod's devices:

* ``release``, for pods that have ended or were deleted, frees them immediately and writes the
  checkpoint.
* ``deactivate``, for a pod that has ended, lets the next admission or PodResources List free them.
  The kubelet updates its allocations only then.
* ``sources_ready``, after a restart, frees the devices of pods that exist only in the checkpoint.
  Before this call, only ``release`` frees devices, because a pod may not be known yet.
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
from devicemanager.core.allocation.pod import (
    DeviceHintProvider,
    DeviceHints,
    admit_pod,
    place,
)
from devicemanager.core.allocation.selection import Pick
from devicemanager.core.errors import AllocationError, EndpointError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import CPU, MEMORY, HintProvider, is_guaranteed
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
    """Number of all devices (``capacity``) and of healthy devices (``allocatable``), by resource.

    Corresponds to the result of the kubelet's ``GetCapacity`` (v1.32).
    """

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


class DeviceManager:
    """The device manager of one kubelet process; thread-safe.

    If there is a checkpoint, call ``restore`` before any other method.
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

        ``providers`` are the hint providers of the kubelet before its restart, such as the CPU
        Manager, with the CPUs that they have allocated. With None, the providers in the settings
        are used. ``document`` builds the contents that ``store`` writes; by default it builds the
        text of the kubelet's checkpoint file.
        """
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = events or EventStream(self.clock)
        # Guarded by the lock of the state below.
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
            self.state,
            self._host_devices,
            self.events,
            self.settings.max_allocate_bytes,
            stores_cdi=self.settings.behaviour.stores_cdi,
        )
        self._admissions = Admissions(self.state, driver, self.events, self.write)
        self._pick = _pick(self.settings.shuffle_seed)

    @property
    def policy(self) -> TopologyPolicy:
        """The Topology Manager policy, with the NUMA nodes known so far."""
        return self._hints.policy

    # -- restart ---------------------------------------------------------------------

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Restore a checkpoint. All its devices stay allocated until ``sources_ready`` is called.

        ``sources_ready`` then frees only the devices of unknown pods.
        """
        with self.state.lock:
            self.state.load(saved, self.clock.monotonic())
        # Called without the lock: HostDeviceAssignment takes it itself.
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
        """Allocate devices to a pod that another kubelet ran before, without calling a plugin.

        ``devices`` is container → resource → IDs. Raises Rejected, and changes nothing, if one of
        the devices is allocated to another pod or to another container of this pod.
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
        """Free the devices of all pods except ``known``, and write the checkpoint.

        Call this method when ``known`` has the UIDs of all pods of the node.
        """
        if self.forget_all_but(known):
            self.write()

    def forget_all_but(self, known: frozenset[PodUid]) -> bool:
        """Do the same as ``sources_ready``, but do not write the checkpoint.

        Returns True if the checkpoint must be written. With quirk Q10 (a kubelet bug), the devices
        stay allocated until the next admission or PodResources List.
        """
        with self.state.lock:
            self.state.is_sources_ready = True
            gone = [pod for pod in self.state.ledger.pods() if pod not in known]
            if self.state.frees_late:
                for pod in gone:
                    self._deactivate(pod)
                return False
            # sum, not any: every pod must be forgotten, also after the first True.
            return sum(map(self.state.forget, gone)) > 0

    def await_sources(self) -> None:
        """Declare that not all pods of the node are known yet.

        Until ``sources_ready``, inactive pods keep their resources. ``release`` still frees the
        resources of a pod.
        """
        with self.state.lock:
            self.state.is_sources_ready = False

    @property
    def is_sources_ready(self) -> bool:
        """True if the kubelet knows all pods of the node.

        False after ``restore`` (if the checkpoint has pods) and after ``await_sources``, until
        ``sources_ready`` is called.
        """
        return self.state.is_sources_ready

    # -- pods ------------------------------------------------------------------------

    def admit(self, pod: Pod, context: AdmissionContext | None = None) -> PodAllocation:
        """Allocate all resources that a pod requests, and return when the checkpoint is on disk.

        Raises ``Rejected``, and allocates nothing, if a resource cannot be allocated.
        """
        allocation = self._allocation(pod, context)
        takes_hints = self._hints.policy.asks_for_hints
        return self._admissions.run(
            allocation, admit_pod(allocation, self._hints), takes_hints=takes_hints
        )

    def resize(self, pod: Pod) -> None:
        """Resize an admitted pod: replace its requests on the node by the requests of ``pod``.

        Raises ``Rejected``, and changes nothing, if the new requests do not fit on the node.
        """
        allocation = self._allocation(pod, None)
        # Nothing is written: the checkpoint has only devices, and a resize does not change them.
        with self.state.lock:
            place(allocation)

    def exceeds_node(self, pod: Pod) -> str:
        """Return the kubelet's message if a pod requests more CPU or memory than the node has in
        total; otherwise an empty text."""
        with self.state.lock:
            return self.state.node.exceeds(pod)

    def static_resources(self, before: Pod, after: Pod) -> tuple[str, str] | None:
        """Return the name and policy of the CPU or memory manager that forbids a resize; None if
        the resize is allowed.

        ``before`` and ``after`` are the pod before and after the resize. A static CPU or memory
        manager gives a Guaranteed pod exclusive CPUs or memory, which cannot be resized.
        """
        # Imported here: only a resize needs it, and a start does not load it.
        from devicemanager.core.podstatus.resize import changed_resources

        if not is_guaranteed(after):
            return None
        changed = {
            resource
            for (old, _), (new, _) in zip(
                before.all_containers(), after.all_containers(), strict=True
            )
            for resource in changed_resources(old, new)
        }
        with self.state.lock:
            managed = self.state.hint_providers.allocatable()
        if CPU in changed and managed.cpu_ids:
            return "CPU Manager", "static"
        if MEMORY in changed and managed.memory:
            return "Memory Manager", "Static"
        return None

    def allocate_now(self, pod: Pod, container: Container, is_init: bool) -> PodAllocation:
        """Allocate devices to a container, for all its resources that have no devices allocated.

        The pod of the container must be active.

        Raises ``Rejected`` if a resource cannot be allocated. Follows
        ``GetDeviceRunContainerOptions``, v1.32.
        """
        allocation = self._allocation(pod, None)

        def steps() -> AllocationSteps:
            # The driver runs this under the lock. The container keeps the NUMA affinity that the
            # admission chose for it.
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
        """Free all resources of ended or deleted pods, with one checkpoint write.

        With quirk Q10 (a kubelet bug), the resources stay allocated until the next admission or
        PodResources List.
        """
        with self.state.lock:
            if self.state.frees_late:
                for pod in pods:
                    self._deactivate(pod)
                    self.state.pods.delete(pod)
                return
            try:
                released = [pod for pod in pods if self.state.forget(pod)]
            except BaseException:
                # An interrupt: it is unknown which pods were released, so release all again.
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
        """Mark a pod as inactive: it has ended, but is not deleted.

        The pod's devices stay allocated until the next admission or PodResources List frees them
        (``UpdateAllocatedDevices``, v1.32).
        """
        with self.state.lock:
            self._deactivate(pod)

    def _deactivate(self, pod: PodUid) -> None:
        # CPU and memory are free at once: the kubelet's fit check counts only active pods
        # (``filterOutInactivePods``, v1.32). Devices and exclusive CPUs wait for the next admission
        # or List.
        self.state.pods.deactivate(pod)
        self.state.node.remove(pod)

    def free_inactive(self) -> None:
        """Free the devices of inactive pods, as each PodResources List does.

        The checkpoint is not written now; the next write includes the change. Follows
        ``UpdateAllocatedDevices``, v1.32.
        """
        # Checked without the lock: every List calls this, and inactive pods are rare.
        if self.state.pods.has_inactive:
            with self.state.lock:
                self.state.free_inactive()

    # -- containers ------------------------------------------------------------------

    def pre_start(
        self, pod: PodUid, container: ContainerName, requested: Iterable[ResourceName]
    ) -> None:
        """Call PreStartContainer of every plugin that requires it, in the order of resource names.

        ``requested`` are the resources in the container's limits, allocated or not. Plugins of
        other resources are not called, even if the checkpoint has devices of these resources for
        the container. Raises AllocationError with the kubelet's text if the container must not
        start (``GetDeviceRunContainerOptions``, v1.32).
        """
        held = self.holdings(pod).get(container, {})
        # The kubelet's order is random, because it iterates over a map. The mock sorts, so that
        # the same container fails with the same message each time.
        for resource in sorted(requested):
            with self.state.lock:
                endpoint = self.state.endpoints.serving(resource)
                connection = None if endpoint is None else self.state.connections.get(endpoint.id)
            # As in ``isDevicePluginResource``: CPU, memory and all other resources that no plugin
            # has registered are skipped.
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
        """Return the NUMA affinity of each container of the pod (``GetAffinity``, v1.32)."""
        with self.state.lock:
            return dict(self.state.pods.get(pod).affinities)

    def pods(self) -> frozenset[PodUid]:
        """Return the UIDs of the pods with allocated devices."""
        with self.state.lock:
            return frozenset(self.state.ledger.pods())

    def devices(self) -> dict[ResourceName, DeviceList]:
        """Return the device list of every known resource, sorted by resource."""
        with self.state.lock:
            return dict(self.state.endpoints.resources())

    def is_known(self, resource: ResourceName) -> bool:
        """True if a plugin registered the resource, or a device of it is allocated."""
        with self.state.lock:
            return resource in self.state.endpoints or self.state.ledger.is_in_use(resource)

    def capacity(self) -> Capacity:
        """Count the devices of each known resource.

        Unlike the kubelet's ``GetCapacity``, this method does not remove resources whose grace
        period is over; ``expire`` removes them.
        """
        with self.state.lock:
            # Only the references are copied under the lock. The lists are immutable, so they are
            # counted without it.
            lists = list(self.state.endpoints.resources())
        return Capacity(
            {name: devices.capacity for name, devices in lists},
            {name: devices.allocatable for name, devices in lists},
        )

    def expire(self) -> tuple[ResourceName, ...]:
        """Remove resources whose grace period is over; return their names, sorted.

        A timer also removes them, a moment after the end of the period. Call this method before a
        read that must not find such resources.
        """
        return self._grace_period.expire()

    def removed(self) -> frozenset[ResourceName]:
        """Return the names of all resources that this manager removed after the grace period."""
        return self._grace_period.removed()

    def allocated_resources_status(
        self, pod: PodUid
    ) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
        """Return the ``allocatedResourcesStatus`` of the pod's containers, by container name.

        Containers without devices are omitted.
        """
        # Imported here: most pods have no status to show, and a start does not load it.
        from devicemanager.core.status import allocated_resources_status

        with self.state.lock:
            return allocated_resources_status(
                self.state.ledger.pod(pod), self._status_list, self.settings.quirks
            )

    def _status_list(self, resource: ResourceName) -> DeviceList | None:
        """Return the device list from which pod statuses take the health of a resource's devices.

        Returns None if the resource has no list. With quirk Q9, a removed resource still has its
        last list.
        """
        endpoints = self.state.endpoints
        keeps = "Q9" in self.settings.quirks
        return endpoints.last_list(resource) if keeps else endpoints.devices(resource)

    def snapshot(self) -> ManagerSnapshot:
        """Return a consistent snapshot of plugins, device lists and allocations, for display."""
        from devicemanager.kubelet.manager.state_snapshot import snapshot

        with self.state.lock:
            return snapshot(self.state)

    def providers(self) -> tuple[HintProvider, ...]:
        """Return the hint providers, such as the CPU Manager.

        After a restart, the new device manager gets them, so that pods keep their CPUs and memory.
        """
        with self.state.lock:
            return self.state.hint_providers.providers()

    def explain(self, allocation: PodAllocation) -> AdmissionExplanation:
        """Explain how the devices of an admitted pod were chosen."""
        from devicemanager.core.allocation.explain import explain

        with self.state.lock:
            return explain(allocation)

    def hints(self, pod: Pod) -> tuple[DeviceHints, DeviceHints]:
        """Return the NUMA hints of a pod in two mappings, each by resource.

        The first mapping has the hints of the pod's first container. The second has the hints of
        the whole pod, as in the topology scope ``pod``.

        Devices of inactive pods are freed first (``GetTopologyHints``, v1.32).
        """
        # Noted first: with quirk Q10, ``free_inactive`` then keeps the devices of this pod.
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
        """Check that the indexes of devices in use agree with the ledger (all allocations). Raises
        InternalError if an index differs."""
        with self.state.lock:
            self.state.ledger.self_check(each.draft for each in self.state.pods.admissions())

    def close(self) -> None:
        """Stop the manager, as when the kubelet exits.

        Connections are closed, admissions in progress fail, and the checkpoint is not written any
        more.
        """
        # The timer is cancelled first, because a removal in progress still writes the checkpoint.
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
    """Return the function that chooses free devices: the lowest numbers if ``seed`` is None,
    otherwise at random."""
    if seed is None:
        return bitset.lowest
    source = random.Random(seed)

    def pick(bits: int, count: int) -> int:
        return bitset.of(source.sample(sorted(bitset.numbers(bits)), count))

    return pick
