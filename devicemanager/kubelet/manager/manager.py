"""The device manager: admits pods, and keeps who holds what.

The core decides under the one lock of ``State``; the RPCs it wants, the checkpoint and
the events happen outside it.
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
from devicemanager.core.errors import (
    AllocationError,
    EndpointError,
)
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer
from devicemanager.core.node import Node
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import HintProvider, HintProviders
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import TopologyPolicy
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.manager.active_pods import PodStates
from devicemanager.kubelet.manager.admissions import Admissions
from devicemanager.kubelet.manager.checkpointing import Document
from devicemanager.kubelet.manager.driver import Driver
from devicemanager.kubelet.manager.grace_period import GracePeriod
from devicemanager.kubelet.manager.healthupdates import HealthUpdates
from devicemanager.kubelet.manager.hostdevices import HostDeviceAssignment
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.manager.rules import allocation_rules, new_endpoints, new_ledger
from devicemanager.kubelet.manager.state import State
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.errors import WireError

if TYPE_CHECKING:
    from devicemanager.core.explanation.model import AdmissionExplanation
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.manager.state_snapshot import ManagerSnapshot


class Capacity(NamedTuple):
    """What the node has of device resources (``GetCapacity``, v1.32)."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


class DeviceManager:
    """Complete once constructed; ``restore`` takes over an earlier checkpoint and must be
    called before anything else happens. ``plugins`` takes what plugins tell."""

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
        """``providers`` are those of the manager before, with what pods hold of them;
        None takes the settings' own, fresh. ``document`` makes what the store is given;
        None is the file's text.

        Raises TopologyConfigError for topology settings the kubelet would reject.
        """
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = events or EventStream(self.clock)
        # Guarded by the state's lock, too, once there is one.
        self._hints = DeviceHintProvider(
            self.settings.topology_manager,
            grows=self.settings.topology_grows,
            over_device_nodes=self.settings.behaviour.hints_over_device_nodes,
            empty_topology_aligns=self.settings.behaviour.empty_topology_aligns,
        )
        fresh = self.settings.providers if providers is None else providers
        node = Node(
            self.settings.node_amounts,
            unknown_init_requests=self.settings.behaviour.unknown_init_requests,
        )
        self.state = State(
            store or MemoryStore(),
            HintProviders(fresh),
            node,
            self._wrote,
            new_endpoints(self.settings),
            new_ledger(self.settings),
            document,
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
        # Guarded by the state's lock, too.
        self._pods = PodStates()
        self._sources_ready = True
        self._host_devices = HostDeviceAssignment(self._pods, self.state.lock, self.settings.sysfs)
        driver = Driver(
            self.state, self._host_devices, self.events, self.settings.max_allocate_bytes
        )
        self._admissions = Admissions(
            self.state, self._pods, driver, self.events, self._forget_inactive, self.write
        )
        self._pick = _pick(self.settings.shuffle_seed)

    @property
    def policy(self) -> TopologyPolicy:
        """The topology manager's policy, for the NUMA nodes that are known by now."""
        return self._hints.policy

    # -- restart ---------------------------------------------------------------------

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Take over a checkpoint. Until ``sources_ready`` nothing in it is freed."""
        now = self.clock.monotonic()
        with self.state.lock:
            self.state.load(saved, now)
            self._sources_ready = not self.state.ledger.pods()
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
        """A pod has held these devices since before this manager began: container → resource
        → ids. As if a checkpoint had named them.

        Raises Rejected, and changes nothing, if another pod or another of its containers holds
        one of them.
        """
        with self.state.lock:
            try:
                self.state.adopt(pod, devices, self._rules.no_topology_node)
            except Rejected:
                raise
            except BaseException:
                # An interrupt: the entries are there or not, the indexes perhaps not yet.
                self._recount()
                if pod in self.state.ledger:
                    self.state.note_pod(pod)
                raise
        self.write()

    def sources_ready(self, known: frozenset[PodUid]) -> None:
        """All pods are known now: what belongs to no other is freed, and that is written."""
        if self.forget_all_but(known):
            self.write()

    def forget_all_but(self, known: frozenset[PodUid]) -> bool:
        """As ``sources_ready``, in memory only. Returns whether there is something to write."""
        with self.state.lock:
            self._sources_ready = True
            gone = [pod for pod in self.state.ledger.pods() if pod not in known]
            # Every one of them, not only up to the first that was written.
            return sum(map(self._forget, gone)) > 0

    @property
    def is_sources_ready(self) -> bool:
        """False while a restarted kubelet still learns which pods there are."""
        return self._sources_ready

    # -- pods ------------------------------------------------------------------------

    def admit(self, pod: Pod, context: AdmissionContext | None = None) -> PodAllocation:
        """Allocate everything the pod asks for, or raise ``Rejected`` and change nothing.

        Returns once what the pod holds is on disk.
        """
        allocation = self._allocation(pod, context)
        return self._admissions.carry_out(allocation, lambda: admit_pod(allocation, self._hints))

    def allocate_now(self, pod: Pod, container: Container, is_init: bool) -> PodAllocation:
        """Allocate for one container of an active pod of which nothing is recorded
        (``GetDeviceRunContainerOptions``, v1.32)."""

        allocation = self._allocation(pod, None)

        def steps() -> AllocationSteps:
            allocation.affinities = dict(self._pods.get(pod.uid).affinities)
            return all_or_nothing(allocation, allocate_container(allocation, container, is_init))

        return self._admissions.carry_out(allocation, steps)

    def _allocation(self, pod: Pod, context: AdmissionContext | None) -> PodAllocation:
        return PodAllocation(
            pod,
            self.state.endpoints,
            self.state.ledger,
            context or AdmissionContext(self._sources_ready),
            self._pick,
            self.state.hint_providers,
            self.state.node,
            rules=self._rules,
        )

    def _forget_inactive(self) -> None:
        """With the lock held."""
        if self._sources_ready:
            for inactive in self._pods.inactive():
                self._forget(inactive)

    def release(self, *pods: PodUid) -> None:
        """Free what pods hold, and write that down once (Q10)."""
        with self.state.lock:
            try:
                released = [pod for pod in pods if self._forget(pod)]
            except BaseException:
                # An interrupt: it cannot be known how far that got, so all is done anew.
                self._recount()
                self.state.node.recount()
                for pod in pods:
                    self._forget(pod)
                raise
            for pod in pods:
                self._pods.delete(pod)
        if released:
            self.write()

    def deactivate(self, pod: PodUid) -> None:
        """A pod has failed, but is not deleted: what it holds is freed before the next
        allocation or List, and shown until then (``UpdateAllocatedDevices``, v1.32)."""
        with self.state.lock:
            self._pods.deactivate(pod)
            self.state.node.remove(pod)

    def free_inactive(self) -> None:
        """Free what inactive pods hold, as a List does (``UpdateAllocatedDevices``, v1.32).
        The checkpoint has that with the next write."""
        if self._pods.has_inactive:
            with self.state.lock:
                self._forget_inactive()

    def _recount(self) -> None:
        """With the lock held."""
        self.state.ledger.recount(each.draft for each in self._pods.admissions())

    def _forget(self, pod: PodUid) -> bool:
        self._pods.forget(pod)
        return self.state.forget(pod, keep_entries="Q10" in self.settings.quirks)

    # -- containers ------------------------------------------------------------------

    def pre_start(
        self, pod: PodUid, container: ContainerName, requested: Iterable[ResourceName] = ()
    ) -> None:
        """Call PreStartContainer of every plugin that asks for it, in order of resource.

        ``requested`` are the resources that the container asks for, whether or not
        anything is recorded for them. Raises AllocationError with the kubelet's text; the
        container must not start (``callPreStartContainerIfNeeded``, v1.32).
        """
        held = self.holdings(pod).get(container, {})
        for resource in sorted({*held, *requested}):
            with self.state.lock:
                endpoint = self.state.endpoints.serving(resource)
                client = None if endpoint is None else self.state.clients.get(endpoint.id)
            if endpoint is None:
                if not self.is_known(resource):
                    continue
                raise AllocationError(messages.PRE_START_NO_ENDPOINT.format(resource=resource))
            if not endpoint.options.pre_start_required:
                continue
            if resource not in held:
                text = messages.PRE_START_NO_DEVICES
                raise AllocationError(text.format(pod=pod, container=container, resource=resource))
            try:
                if client is None:
                    raise EndpointError(messages.STOPPED_ENDPOINT.format(endpoint=endpoint.name))
                client.pre_start_container(tuple(sorted(held[resource].ids)))
            except EndpointError as error:
                raise AllocationError(messages.PRE_START_FAILED.format(error=error)) from error

    # -- reading ---------------------------------------------------------------------

    def holdings(self, pod: PodUid) -> AllocatedByContainer:
        """What a pod holds, by container and resource."""
        with self.state.lock:
            return self.state.ledger.pod(pod)

    def affinities(self, pod: PodUid) -> Affinities:
        """The NUMA alignment of the pod's containers (``GetAffinity``, v1.32)."""
        with self.state.lock:
            return dict(self._pods.get(pod).affinities)

    def pods(self) -> frozenset[PodUid]:
        """The pods that hold something."""
        with self.state.lock:
            return frozenset(self.state.ledger.pods())

    def devices(self) -> dict[ResourceName, DeviceList]:
        """Every known resource's list, sorted by name."""
        with self.state.lock:
            return dict(self.state.endpoints.resources())

    def is_known(self, resource: ResourceName) -> bool:
        """Whether a plugin registered the resource, or somebody holds a device of it."""
        with self.state.lock:
            return resource in self.state.endpoints or self.state.ledger.is_in_use(resource)

    def capacity(self) -> Capacity:
        """Count the devices as they are now. Changes nothing: ``expire`` is a step of its own."""
        with self.state.lock:
            lists = list(self.state.endpoints.resources())
        return Capacity(
            {name: devices.capacity for name, devices in lists},
            {name: devices.allocatable for name, devices in lists},
        )

    def expire(self) -> tuple[ResourceName, ...]:
        """Remove resources whose grace period is over, and return their names, sorted. It
        happens by itself, too; call this before reading what must be true to the moment."""
        return self._grace_period.expire()

    def removed(self) -> frozenset[ResourceName]:
        """Every resource whose grace period has ended since this manager began."""
        return self._grace_period.removed()

    def allocated_resources_status(
        self, pod: PodUid
    ) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
        """``allocatedResourcesStatus`` of each of the pod's containers that holds devices."""
        from devicemanager.core.status import allocated_resources_status

        with self.state.lock:
            return allocated_resources_status(
                self.state.ledger.pod(pod), self.state.endpoints.devices, self.settings.quirks
            )

    def look(self) -> ManagerSnapshot:
        """Plugins, lists and holdings as they are now, for a picture of the node."""
        from devicemanager.kubelet.manager.state_snapshot import look

        with self.state.lock:
            return look(self.state, self._pods.admissions())

    def providers(self) -> tuple[HintProvider, ...]:
        """The hint providers as they are now, to hand on to a manager that takes over."""
        with self.state.lock:
            return self.state.hint_providers.providers()

    def explain(self, allocation: PodAllocation) -> AdmissionExplanation:
        """Why an admitted pod got what it got."""
        from devicemanager.core.allocation.explain import explain

        with self.state.lock:
            return explain(allocation)

    def hints(self, pod: Pod) -> tuple[DeviceHints, DeviceHints]:
        """Device hints as of now: for the pod's first container, and for the whole pod.
        What inactive pods hold is freed first (``GetTopologyHints``, v1.32)."""
        self.free_inactive()
        with self.state.lock:
            allocation = PodAllocation(pod, self.state.endpoints, self.state.ledger)
            first, _ = next(pod.all_containers())
            return (
                self._hints.container_hints(allocation, first),
                self._hints.pod_hints(allocation),
            )

    def self_check(self) -> None:
        """Recount every index. Raises InternalError if one is wrong."""
        with self.state.lock:
            self.state.ledger.self_check(each.draft for each in self._pods.admissions())

    def close(self) -> None:
        """End, as a kubelet that stops does: connections are closed, admissions under way
        fail, and nothing is written any more."""
        self._grace_period.close()
        self.plugins.close()
        self.state.writer.close()

    def _wrote(self) -> None:
        self.events.publish(EventKind.CHECKPOINT_WRITTEN, "checkpoint written")

    def write(self) -> None:
        """Write the checkpoint; if that fails, say so and leave it to the next write."""
        try:
            self.state.writer.flush()
        except checkpoint.CheckpointWriteError as error:
            self.events.publish(EventKind.CHECKPOINT_FAILED, str(error))


def _pick(seed: int | None) -> Pick:
    """How free devices are chosen: the lowest, or at random from a seed (Q22)."""
    if seed is None:
        return bitset.lowest
    source = random.Random(seed)

    def pick(bits: int, count: int) -> int:
        return bitset.of(source.sample(sorted(bitset.numbers(bits)), count))

    return pick
