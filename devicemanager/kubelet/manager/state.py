"""The state of the device manager, and the one lock that guards it.

``State`` owns everything that an admission reads or changes: the registrations (``endpoints``)
and their connections, the ledger, the node's other resources, the manager's record of each pod
(``PodStates``) and the checkpoint document that mirrors them.

Rules for the lock:

* A thread that holds ``State.lock`` only lets the core decide. It makes no RPC, writes no file,
  publishes no event and calls no callback. So a slow plugin never
  makes other threads wait for the lock.
* Everything is committed in one critical section or not at all; what must be done outside (close
  a connection, write the checkpoint) is returned and done afterwards.
* The lock comes last: code that needs another lock as well takes that one first.

``version`` and ``pod_versions`` grow with each change. PodResources answers are cached by them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """The connection to one plugin, as the manager uses it (the kubelet's ``endpoint``).

    Every call raises ``RpcError`` if the RPC fails, with the status as Go prints it.
    """

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Call Allocate for one container."""

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """Call GetPreferredAllocation for one container; return the first response."""

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """Call PreStartContainer."""

    def close(self) -> None:
        """Close the connection; calls in flight fail. Never blocks."""

    def join(self) -> None:
        """Wait until a closed connection reports nothing more."""


@attrs.define(eq=False, repr=False)
class PodState:
    """Record of one pod. Records with default values are not stored."""

    admission: PodAllocation | None = None
    """The admission in progress, or the allocation for one container."""
    is_deleted: bool = False
    """True if the pod was deleted during its admission."""
    affinities: Affinities = attrs.field(factory=dict)
    """NUMA affinity of each container."""
    host_devices: frozenset[str] = frozenset()
    """PCI addresses and network interfaces of the host that the pod uses."""


_EMPTY_STATE = PodState()


class PodStates:
    """Records by UID. Every method but ``has_inactive`` must be called with the lock held."""

    def __init__(self) -> None:
        self._states: dict[PodUid, PodState] = {}
        # Not a field of the records: every admission checks if there are any. A dict, because an
        # empty set needs three times the memory.
        self._inactive: dict[PodUid, None] = {}

    def get(self, pod: PodUid) -> PodState:
        """Return the pod's record, or one with default values; must not be changed."""
        return self._states.get(pod, _EMPTY_STATE)

    def begin(self, allocation: PodAllocation) -> None:
        """Record that an admission begins; the pod is active from now on."""
        self._inactive.pop(allocation.pod.uid, None)
        self._record(allocation.pod.uid).admission = allocation

    def end(self, pod: PodUid) -> None:
        """Record that the pod's admission has ended, with either result."""
        state = self._record(pod)
        state.admission, state.is_deleted = None, False
        self._drop_if_empty(pod)

    def set_affinities(self, pod: PodUid, affinities: Affinities) -> None:
        """Replace the NUMA affinities of the pod's containers."""
        self._record(pod).affinities = affinities
        self._drop_if_empty(pod)

    def set_host_devices(self, pod: PodUid, names: frozenset[str]) -> None:
        """Replace the host devices that the pod uses."""
        self._record(pod).host_devices = names
        self._drop_if_empty(pod)

    def host_devices_in_use(self) -> frozenset[str]:
        """Return the PCI devices and network interfaces that pods use."""
        return frozenset[str]().union(*(state.host_devices for state in self._states.values()))

    def holder_of(self, name: str) -> PodUid | None:
        """Return the pod that uses this host device."""
        for pod, state in self._states.items():
            if name in state.host_devices:
                return pod
        return None

    def deactivate(self, pod: PodUid) -> None:
        """Mark a pod whose devices the next admission of another pod frees."""
        self._inactive[pod] = None

    @property
    def has_inactive(self) -> bool:
        """True if devices of a pod are to be freed. Can be read without the lock."""
        return bool(self._inactive)

    def inactive(self) -> list[PodUid]:
        """Return the pods whose devices are to be freed, each with ``State.forget``."""
        return sorted(self._inactive)

    def forget(self, pod: PodUid) -> None:
        """Clear the pod's record, except for an admission in progress."""
        self._inactive.pop(pod, None)
        state = self._states.get(pod)
        if state is not None:
            state.affinities, state.host_devices = {}, frozenset()
            self._drop_if_empty(pod)

    def delete(self, pod: PodUid) -> None:
        """Record that the pod is deleted; its admission in progress, if any, must fail."""
        state = self._states.get(pod)
        if state is not None and state.admission is not None:
            state.is_deleted = True

    def admissions(self) -> Iterator[PodAllocation]:
        """Yield the admissions in progress."""
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
    """Registrations, ledger, pods and node, with the checkpoint that mirrors them."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        written: Callable[[], None],
        providers: Iterable[HintProvider] | None = None,
        document: Document | None = None,
    ) -> None:
        """``written`` is called after every checkpoint write, without the lock.

        ``providers`` are those of the previous manager, with their allocations; None takes new
        ones from the settings. ``document`` builds the contents of the checkpoint.
        """
        behaviour = settings.behaviour
        self.lock = threading.Lock()
        """Guards every other field, except for single reads of ``connections`` and ``version``."""
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
            settings.node_amounts, unknown_init_requests=behaviour.unknown_init_requests
        )
        self.pods = PodStates()
        self.is_sources_ready = True
        """False while a restarted kubelet does not know all pods yet."""
        self.connections: dict[EndpointId, Endpoint] = {}
        self.version = 0
        """Grows with every change of lists, allocations or known resources."""
        self.pod_versions: dict[PodUid, int] = {}
        """The version at which the pod's allocations last changed."""
        self._document: Document = TextDocument() if document is None else document
        self.is_stale = False
        """True if the file names devices that no plugin has listed since it was read."""
        self.frees_late = "Q10" in settings.quirks
        """True if devices of ended pods are allocated until the next allocation or List."""
        self._keeps_admitted = self.frees_late and behaviour.keeps_admitted_pod
        self.admitted_last: PodUid | None = None
        """With Q10, the pod whose devices are not freed (``pendingAdmissionPod``)."""
        self.keeps_rejected = "Q31" in settings.quirks
        """True if a rejected pod keeps the devices of its earlier containers until then."""
        # The pod that was allocated last, and what its containers may reuse (``devicesToReuse``).
        self._reusable: tuple[PodUid | None, Reusable] = None, {}
        self.writer = Writer(store, self._render, written)

    # -- must be called with the lock held -------------------------------------------

    def changed(self) -> None:
        """Record a change of something that PodResources or capacity shows."""
        self.version += 1

    def note_list(self, resource: ResourceName, healthy: tuple[DeviceId, ...] | None) -> None:
        """Put a resource's healthy devices into the checkpoint; None removes the resource."""
        # A copy: snapshots that are being written share the current mapping.
        registered = dict(self._document.registered)
        if healthy is None:
            registered.pop(resource, None)
        else:
            registered[resource] = healthy
        self._document.set_registered(registered)
        self.changed()

    def is_noted(self, resource: ResourceName) -> bool:
        """True if the checkpoint names the resource."""
        return resource in self._document.registered

    def note_pod(self, pod: PodUid) -> None:
        """Put the pod's current allocations into the checkpoint."""
        self._document.put(pod, self.ledger.pod(pod))
        self.changed()
        # After ``changed``: the pod must have a version that no reader has seen yet.
        self.pod_versions[pod] = self.version

    def forget(self, pod: PodUid) -> bool:
        """Free everything that is allocated to a pod. True if the checkpoint must be written."""
        self.pods.forget(pod)
        self.node.remove(pod)
        self.hint_providers.release(pod)
        if self.pod_versions.pop(pod, None) is not None:
            self.changed()
        if pod not in self.ledger:
            return False
        self._document.remove(pod)
        # Last: while the ledger has the pod, this can be repeated after an interrupt.
        self.ledger.release(pod)
        return True

    def reusable(self, pod: PodUid) -> Reusable:
        """Return the devices of init containers that a pod's containers may reuse.

        They stay until another pod is allocated, so a pod that has the UID of the one before
        reuses its devices (``m.devicesToReuse``, v1.36).
        """
        last, reusable = self._reusable
        if last != pod:
            return {}
        # Another admission that was in progress can have taken a device meanwhile.
        return {
            resource: frozenset(
                id_ for id_ in ids if self.ledger.pods_using(resource, {id_}).keys() <= {pod}
            )
            for resource, ids in reusable.items()
        }

    def begin_reuse(self, pod: PodUid) -> Reusable:
        """Return what ``reusable`` does, and forget what other pods could reuse."""
        reusable = self.reusable(pod)
        self._reusable = pod, reusable
        return reusable

    def note_admission(self, pod: PodUid) -> None:
        """Record that a pod is being admitted."""
        if self._keeps_admitted:
            self.admitted_last = pod

    def free_inactive(self) -> None:
        """Free the devices of inactive pods, once all pods are known."""
        if self.is_sources_ready:
            for pod in self.pods.inactive():
                if pod != self.admitted_last:
                    self.forget(pod)

    def recount(self) -> None:
        """Rebuild the ledger's indexes from its entries and the admissions in progress."""
        self.ledger.recount(each.draft for each in self.pods.admissions())

    def withdraw(self, allocation: PodAllocation) -> bool:
        """Undo an admission that may be partly done. True if the checkpoint must be written."""
        uid = allocation.pod.uid
        # A pod that is readmitted keeps its CPUs, memory and node share if the interrupt came
        # before this admission changed them.
        is_new = uid not in self.pod_versions
        others = [each.draft for each in self.pods.admissions() if each is not allocation]
        entered = self.ledger.withdraw(allocation.draft, others)
        # The interrupt can have hit the node's sums between two assignments.
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
        """Enter devices that are already allocated to a pod.

        Raises Rejected, and changes nothing, if one of them is allocated to another container.
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
            # The given devices themselves can name one device for two containers.
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
        """Restore a checkpoint.

        Its resources have 0 devices and a stopped endpoint until their plugins send a list
        (``readCheckpoint``, v1.32).
        """
        restore(self.ledger, saved.entries or ())
        for pod in self.ledger.pods():
            self.note_pod(pod)
        for name, ids in sorted((saved.registered_devices or {}).items()):
            resource = ResourceName(name)
            # Its grace period starts now: the plugins of a restarted kubelet get the whole period.
            self.endpoints.restore(resource, now)
            self.note_list(resource, ())
            # Healthy devices in the file that no plugin has confirmed: the next list must be
            # written even if it changes nothing else.
            self.is_stale |= bool(ids)
        self.is_sources_ready = not self.ledger.pods()

    # -- takes the lock --------------------------------------------------------------

    def _render(self) -> checkpoint.Contents:
        # The snapshot is a copy of pointers; its text is built without the lock.
        with self.lock:
            self.is_stale = False
            contents = self._document.snapshot()
        return contents()


def allocation_rules(settings: Settings) -> Rules:
    """Return the core's allocation rules for a kubelet version and its quirks."""
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
