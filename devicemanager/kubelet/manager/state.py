"""The state of the device manager, and the one lock that guards it.

``State`` has everything that an admission reads or changes: the registrations (``endpoints``) and
their connections, the ledger (all allocations), and the node's other resources. It also has the
manager's record of each pod (``PodStates``), and the contents of the checkpoint.

Rules for the lock:

* A thread that holds ``State.lock`` only calls ``devicemanager.core``. It makes no RPC, writes no
  file, publishes no event and calls no callback, so a slow plugin never blocks other threads.
* A change is made completely in one critical section. What must be done without the lock (close
  a connection, write the checkpoint) is done afterwards.
* Code that needs another lock as well takes the other lock first.

``version`` and ``pod_versions`` grow with each change, so that PodResources responses can be
cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

import attrs

import checkpoint
from checkpoint.shared_writer import Store, Writer
from devicemanager.core.allocation.container import (
    Affinities,
    PodAllocation,
    Reusable,
    by_numa_node,
)
from devicemanager.core.allocation.rules import Rules
from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, DeviceId, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import EMPTY
from devicemanager.core.ledger import AllocatedDevices, Ledger
from devicemanager.core.messages import ALREADY_IN_USE
from devicemanager.core.node import Node
from devicemanager.core.providers.provider import HintProvider, HintProviders
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.kubelet.manager.checkpointing import Document, TextDocument, restore
from devicemanager.kubelet.settings import Settings


class Endpoint(Protocol):
    """Connection to one plugin, with the calls that the manager makes.

    Corresponds to the kubelet's ``endpoint``. A call raises ``RpcError``, with the status as Go
    prints it, if the RPC fails.
    """

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Call Allocate for one container, and return the container responses as bytes."""

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """Call GetPreferredAllocation for one container, and return the preferred device IDs."""

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """Call PreStartContainer with the devices of one container."""

    def close(self) -> None:
        """Close the connection; calls in flight fail. Never blocks."""

    def join(self) -> None:
        """Wait until the threads of a closed connection have ended."""


@attrs.define(eq=False, repr=False)
class PodState:
    """The manager's record of one pod. Records with default values are not stored."""

    admission: PodAllocation | None = None
    """What is in progress for the pod: its admission, or the allocation for one of its containers.
    None if nothing is in progress."""
    is_deleted: bool = False
    """True if the pod was deleted during its admission."""
    affinities: Affinities = attrs.field(factory=dict)
    """NUMA affinity of each container, by container name."""
    host_devices: frozenset[str] = frozenset()
    """PCI addresses and network interfaces of the host that the pod uses."""


_EMPTY_STATE = PodState()


class PodStates:
    """The manager's records of all pods, by UID.

    All methods must be called with the state's lock held, except ``has_inactive``.
    """

    def __init__(self) -> None:
        self._states: dict[PodUid, PodState] = {}
        # Not a field of the records, because every admission checks if inactive pods exist. A dict,
        # because an empty set needs three times the memory.
        self._inactive: dict[PodUid, None] = {}

    def get(self, pod: PodUid) -> PodState:
        """Return the pod's record, or a record with default values. Do not change the result."""
        return self._states.get(pod, _EMPTY_STATE)

    def begin(self, allocation: PodAllocation) -> None:
        """Record that an admission of a pod begins, and mark the pod as active."""
        self._inactive.pop(allocation.pod.uid, None)
        self._record(allocation.pod.uid).admission = allocation

    def end(self, pod: PodUid) -> None:
        """Record that the pod's admission has ended, successful or not."""
        state = self._record(pod)
        state.admission, state.is_deleted = None, False
        self._drop_if_empty(pod)

    def set_affinities(self, pod: PodUid, affinities: Affinities) -> None:
        """Replace the NUMA affinities of the pod's containers."""
        self._record(pod).affinities = affinities
        self._drop_if_empty(pod)

    def set_host_devices(self, pod: PodUid, names: frozenset[str]) -> None:
        """Replace the names of the PCI devices and network interfaces that the pod uses."""
        self._record(pod).host_devices = names
        self._drop_if_empty(pod)

    def host_devices_in_use(self) -> frozenset[str]:
        """Return the names of the PCI devices and network interfaces that pods use."""
        return frozenset[str]().union(*(state.host_devices for state in self._states.values()))

    def holder_of(self, name: str) -> PodUid | None:
        """Return the pod that uses the host device with this name; None if it is free."""
        for pod, state in self._states.items():
            if name in state.host_devices:
                return pod
        return None

    def deactivate(self, pod: PodUid) -> None:
        """Mark a pod as inactive. The next admission or PodResources List frees the devices of
        inactive pods."""
        self._inactive[pod] = None

    @property
    def has_inactive(self) -> bool:
        """True if there are inactive pods, whose devices must be freed. Needs no lock."""
        return bool(self._inactive)

    def inactive(self) -> list[PodUid]:
        """Return the UIDs of the inactive pods, sorted. ``State.forget`` frees their devices."""
        return sorted(self._inactive)

    def forget(self, pod: PodUid) -> None:
        """Clear the record of a pod, but keep an admission in progress."""
        self._inactive.pop(pod, None)
        state = self._states.get(pod)
        if state is not None:
            state.affinities, state.host_devices = {}, frozenset()
            self._drop_if_empty(pod)

    def delete(self, pod: PodUid) -> None:
        """Record that the pod is deleted, so that an admission in progress fails."""
        state = self._states.get(pod)
        if state is not None and state.admission is not None:
            state.is_deleted = True

    def admissions(self) -> Iterator[PodAllocation]:
        """Yield all admissions in progress."""
        for state in self._states.values():
            if state.admission is not None:
                yield state.admission

    def _record(self, pod: PodUid) -> PodState:
        state = self._states.get(pod)
        if state is None:
            state = self._states[pod] = PodState()
        return state

    def _drop_if_empty(self, pod: PodUid) -> None:
        state = self._states[pod]
        if state.admission is None and not state.affinities and not state.host_devices:
            del self._states[pod]


class State:
    """All data of the device manager: registrations, allocations, pods and checkpoint contents."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        written: Callable[[], None],
        providers: Iterable[HintProvider] | None = None,
        document: Document | None = None,
    ) -> None:
        """``written`` is called after every checkpoint write, without the lock.

        ``providers`` are the hint providers of the kubelet before its restart, such as the CPU
        Manager, with the CPUs that they have allocated. With None, the providers in the settings
        are used. ``document`` builds the contents of the checkpoint.
        """
        behaviour = settings.behaviour
        self.lock = threading.Lock()
        """Guards changes of all other fields. A single value can be read without the lock."""
        self.endpoints = Endpoints(
            several=behaviour.several_plugins,
            lists_of_all="Q24" in settings.quirks,
            list_stays="Q30" in settings.quirks,
        )
        self.ledger = Ledger(
            ignores_drafts="Q25" in settings.quirks, keeps_requested="Q4" in settings.quirks
        )
        self.hint_providers = HintProviders(settings.providers if providers is None else providers)
        self.node = Node(
            settings.node_amounts,
            unknown_init_requests=behaviour.unknown_init_requests,
            pod_level_requests=behaviour.counts_pod_level_requests,
        )
        self.pods = PodStates()
        self.is_sources_ready = True
        """True once the kubelet knows all pods of the node; False for a time after its restart."""
        self.connections: dict[EndpointId, Endpoint] = {}
        self.version = 0
        """Number that grows with every change of device lists, allocations or known resources."""
        self.pod_versions: dict[PodUid, int] = {}
        """Mapping from pod UIDs to the value of ``version`` after the last change of the pod's
        allocations."""
        self._document: Document = TextDocument() if document is None else document
        self.is_stale = False
        """True if the checkpoint file has devices that no plugin has listed since the restart."""
        self.frees_late = "Q10" in settings.quirks
        """True with quirk Q10 (a kubelet bug): devices of ended pods stay allocated until the next
        admission or PodResources List."""
        self._keeps_admitted = self.frees_late and behaviour.keeps_admitted_pod
        self.admitted_last: PodUid | None = None
        """UID of the pod that was admitted last (``pendingAdmissionPod``). ``free_inactive`` keeps
        its devices. Set only with quirk Q10 (a kubelet bug)."""
        self.keeps_rejected = "Q31" in settings.quirks
        """True with quirk Q31 (a kubelet bug): a rejected pod keeps the devices that were allocated
        to its containers."""
        # The last admitted pod, and the devices of its init containers that its other containers
        # may reuse (``devicesToReuse``).
        self._reusable: tuple[PodUid | None, Reusable] = None, {}
        self.writer = Writer(store, self._render, written)

    # -- must be called with the lock held -------------------------------------------

    def changed(self) -> None:
        """Increase ``version``, because data of PodResources or the node's capacity has changed."""
        self.version += 1

    def note_list(self, resource: ResourceName, healthy: tuple[DeviceId, ...] | None) -> None:
        """Store the healthy devices of a resource for the next checkpoint write.

        With ``healthy`` None, the next write omits the resource.
        """
        # A copy is changed, because snapshots that are being written share the current mapping.
        registered = dict(self._document.registered)
        if healthy is None:
            registered.pop(resource, None)
        else:
            registered[resource] = healthy
        self._document.set_registered(registered)
        self.changed()

    def is_noted(self, resource: ResourceName) -> bool:
        """True if the next checkpoint write includes the resource."""
        return resource in self._document.registered

    def note_pod(self, pod: PodUid, without: Collection[ContainerName] = ()) -> None:
        """Store the pod's current allocations for the next checkpoint write.

        ``without`` has the names of containers whose allocations are left out.
        """
        held = self.ledger.pod(pod)
        if without:
            held = {name: each for name, each in held.items() if name not in without}
        self._document.put(pod, held)
        self.changed()
        # Set after ``changed``: the pod must have a version that no reader has seen yet.
        self.pod_versions[pod] = self.version

    def forget(self, pod: PodUid) -> bool:
        """Free all resources of a pod. Return True if the checkpoint must be written."""
        self.pods.forget(pod)
        self.node.remove(pod)
        self.hint_providers.release(pod)
        if self.pod_versions.pop(pod, None) is not None:
            self.changed()
        if pod not in self.ledger:
            return False
        self._document.remove(pod)
        # Released last: while the ledger has the pod, ``forget`` can be repeated after an
        # interrupt.
        self.ledger.release(pod)
        return True

    def reusable(self, pod: PodUid) -> Reusable:
        """Return the devices of a pod's init containers that its other containers may reuse.

        These devices are stored until another pod is admitted. A new pod with the same UID
        therefore reuses the devices of the earlier pod (``m.devicesToReuse``, v1.36).
        """
        last, reusable = self._reusable
        if last != pod:
            return {}
        # A concurrent admission of another pod may have allocated some of these devices.
        return {
            resource: frozenset(
                id_ for id_ in ids if self.ledger.pods_using(resource, {id_}).keys() <= {pod}
            )
            for resource, ids in reusable.items()
        }

    def begin_reuse(self, pod: PodUid) -> Reusable:
        """Return the devices of a pod's init containers that its other containers may reuse.

        Unlike ``reusable``, this method forgets the reusable devices of all other pods.
        """
        reusable = self.reusable(pod)
        self._reusable = pod, reusable
        return reusable

    def note_admission(self, pod: PodUid) -> None:
        """Record that this pod is being admitted, so that ``free_inactive`` keeps its devices.

        Does nothing without quirk Q10 (a kubelet bug).
        """
        if self._keeps_admitted:
            self.admitted_last = pod

    def free_inactive(self) -> None:
        """Free the devices of inactive pods. Do nothing while ``is_sources_ready`` is False."""
        if self.is_sources_ready:
            for pod in self.pods.inactive():
                if pod != self.admitted_last:
                    self.forget(pod)

    def recount(self) -> None:
        """Rebuild the ledger's indexes from its entries and the admissions in progress."""
        self.ledger.recount(each.draft for each in self.pods.admissions())

    def withdraw(self, allocation: PodAllocation) -> bool:
        """Undo an interrupted admission. Return True if the checkpoint must be written."""
        uid = allocation.pod.uid
        # A pod that is admitted again keeps its CPUs, memory and share of the node if the
        # interrupt came before this admission changed them.
        is_new = uid not in self.pod_versions
        others = [each.draft for each in self.pods.admissions() if each is not allocation]
        entered = self.ledger.withdraw(allocation.draft, others)
        # The interrupt may have come when the node's sums were only partly updated.
        self.node.recount()
        if allocation.placed or is_new:
            self.node.remove(uid)
        if allocation.used_providers or is_new:
            self.hint_providers.release(uid)
        if entered or allocation.used_providers:
            self.note_pod(uid)
        return entered

    def adopt(
        self,
        pod: PodUid,
        devices: Mapping[str, Mapping[str, Iterable[str]]],
        no_topology_node: int,
    ) -> None:
        """Allocate devices (container → resource → IDs) to a pod that already uses them.

        ``no_topology_node`` is the NUMA node under which devices without topology are recorded.
        Raises Rejected, and changes nothing, if a device is allocated to another container.
        """
        entries = [
            (ContainerName(container), ResourceName(resource), frozenset(map(DeviceId, ids)))
            for container, by_resource in devices.items()
            for resource, ids in by_resource.items()
        ]
        self._check_free(pod, entries)
        self.ledger.restore(
            (pod, container, resource, self._holding(resource, ids, no_topology_node))
            for container, resource, ids in entries
        )
        self.note_pod(pod)

    def _holding(
        self, resource: ResourceName, ids: frozenset[DeviceId], no_topology_node: int
    ) -> AllocatedDevices:
        listed = self.endpoints.devices(resource) or EMPTY
        return AllocatedDevices(by_numa_node(listed, ids, no_topology_node), b"")

    def _check_free(
        self,
        pod: PodUid,
        entries: Iterable[tuple[ContainerName, ResourceName, frozenset[DeviceId]]],
    ) -> None:
        mine: set[tuple[ResourceName, DeviceId]] = set()
        for _, resource, ids in entries:
            holders = self.ledger.pods_using(resource, ids)
            holders.pop(pod, None)
            # ``devices`` itself may have the same device for two containers.
            twice = {id_ for id_ in ids if (resource, id_) in mine}
            if twice:
                holders[pod] = twice
            mine.update((resource, id_) for id_ in ids)
            for holder, held in sorted(holders.items()):
                error = AllocationError(
                    ALREADY_IN_USE.format(device=min(held), resource=resource, pod=holder)
                )
                raise rejected_by_allocation(error)

    def load(self, saved: checkpoint.Checkpoint, now: float) -> None:
        """Restore the allocations and resources of a checkpoint.

        The resources have 0 devices and a stopped endpoint until their plugins send a device
        list (``readCheckpoint``, v1.32).
        """
        restore(self.ledger, saved.entries or ())
        for pod in self.ledger.pods():
            self.note_pod(pod)
        for name, ids in sorted((saved.registered_devices or {}).items()):
            resource = ResourceName(name)
            # The grace period starts now: after a restart, plugins have the whole period to
            # re-register.
            self.endpoints.restore(resource, now)
            self.note_list(resource, ())
            # The file has healthy devices that no plugin has listed yet: the next list must be
            # written even if it changes nothing else.
            self.is_stale |= bool(ids)
        self.is_sources_ready = not self.ledger.pods()

    # -- takes the lock --------------------------------------------------------------

    def _render(self) -> checkpoint.Contents:
        # The snapshot only copies references under the lock; its text is built without the lock.
        with self.lock:
            self.is_stale = False
            contents = self._document.snapshot()
        return contents()


def allocation_rules(settings: Settings) -> Rules:
    """Return the allocation rules for the kubelet version and quirks in the settings."""
    behaviour = settings.behaviour
    return Rules(
        quirks=settings.quirks,
        checks_health=behaviour.admission_checks_health,
        running_need_nothing=behaviour.running_survive_restart,
        sidecars_keep=behaviour.sidecars_keep,
        pod_level_rejection=behaviour.pod_level_rejection,
        empty_reply=behaviour.empty_allocate_reply,
        no_topology_node=behaviour.no_topology_node,
    )
