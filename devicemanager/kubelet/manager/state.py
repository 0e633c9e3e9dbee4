"""The core's state and the one lock that guards it.

Whoever takes ``State.lock`` only lets the core decide: no RPC, file write or callback
while it is held. Methods here say whether they take the lock or want it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import attrs

import checkpoint
from checkpoint.shared_writer import Store, Writer
from devicemanager.core.allocation.container import Affinities, PodAllocation, by_numa_node
from devicemanager.core.allocation.rules import Rules
from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, DeviceId, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import EMPTY
from devicemanager.core.ledger import Draft, Holding, Ledger
from devicemanager.core.messages import HELD_ALREADY
from devicemanager.core.node import Node
from devicemanager.core.providers.registry import HintProviders
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.kubelet.manager.checkpointing import Document, TextDocument, restore
from devicemanager.kubelet.settings import Settings


class PluginClient(Protocol):
    """What the manager asks of a plugin: the real endpoint, or a fake in tests.

    Every call raises ``RpcError`` if the RPC fails, with the status as Go prints it.
    """

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Allocate for one container."""

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """GetPreferredAllocation for one container; the first container's answer."""

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """PreStartContainer."""

    def close(self) -> None:
        """Let the connection go; calls under way fail. Never blocks."""

    def join(self) -> None:
        """Wait until a closed connection tells nothing any more."""


class State:
    """Endpoints, ledger and their clients, with the checkpoint that mirrors them."""

    def __init__(
        self,
        store: Store,
        hint_providers: HintProviders,
        node: Node,
        written: Callable[[], None],
        endpoints: Endpoints | None = None,
        ledger: Ledger | None = None,
        document: Document | None = None,
    ) -> None:
        """``written`` is called after every write of the checkpoint, without the lock;
        ``document`` makes what is written."""
        self.lock = threading.Lock()
        """Guards every other field here. Single reads of ``clients`` and ``version`` do
        without it."""
        self.endpoints = Endpoints() if endpoints is None else endpoints
        self.ledger = Ledger() if ledger is None else ledger
        self.hint_providers = hint_providers
        self.node = node
        self.clients: dict[EndpointId, PluginClient] = {}
        self.version = 0
        """Grows with every change of lists, holdings or known resources."""
        self.pod_versions: dict[PodUid, int] = {}
        """The version at which what a pod holds last changed."""
        self._document: Document = TextDocument() if document is None else document
        self.is_stale = False
        """Whether the file names devices that no plugin has listed since it was read."""
        # Deleted pods whose entries wait for a write (Q10). A dict, as an empty set takes three
        # times as much.
        self._kept: dict[PodUid, None] = {}
        self.writer = Writer(store, self._render, written)

    # -- with the lock held ----------------------------------------------------------

    def changed(self) -> None:
        """Something that PodResources or capacity shows is different now."""
        self.version += 1

    def note_list(self, resource: ResourceName, healthy: tuple[DeviceId, ...] | None) -> None:
        """The list that counts for a resource is another one; None: it is gone."""
        registered = dict(self._document.registered)
        if healthy is None:
            registered.pop(resource, None)
        else:
            registered[resource] = healthy
        self._document.set_registered(registered)
        self.changed()

    def is_noted(self, resource: ResourceName) -> bool:
        """Whether the checkpoint names the resource."""
        return resource in self._document.registered

    def note_pod(self, pod: PodUid) -> None:
        """A pod holds something else now."""
        self._kept.pop(pod, None)
        self._document.put(pod, self.ledger.pod(pod))
        self.changed()
        self.pod_versions[pod] = self.version

    def forget(self, pod: PodUid, *, keep_entries: bool = False) -> bool:
        """Free what a pod holds. Returns whether the checkpoint is another one now.

        ``keep_entries`` leaves its entries in the checkpoint until another change is
        written (Q10).
        """
        self.node.remove(pod)
        self.hint_providers.release(pod)
        if self.pod_versions.pop(pod, None) is not None:
            self.changed()
        if pod not in self.ledger:
            return False
        if keep_entries:
            self._kept[pod] = None
        else:
            self._document.remove(pod)
        # Last: as long as it is there, this can be done again after an interrupt.
        self.ledger.release(pod)
        return not keep_entries

    def withdraw(self, allocation: PodAllocation, others: Iterable[Draft]) -> bool:
        """Undo an admission of which any part may have happened. ``others`` are the drafts of
        those that are under way. Returns whether the checkpoint is another one now."""
        uid = allocation.pod.uid
        is_new = uid not in self.pod_versions
        entered = self.ledger.withdraw(allocation.draft, others)
        self.node.recount()
        if allocation.placed or is_new:
            self.node.remove(uid)
        if allocation.took or is_new:
            self.hint_providers.release(uid)
        if entered or allocation.took:
            self.note_pod(uid)
        return entered

    def adopt(
        self,
        pod: PodUid,
        devices: Mapping[str, Mapping[str, Iterable[str]]],
        no_topology_node: int,
    ) -> None:
        """Enter what a pod holds. Raises Rejected if somebody holds a device already."""
        entries = [
            (ContainerName(container), ResourceName(resource), frozenset(map(DeviceId, ids)))
            for container, by_resource in devices.items()
            for resource, ids in by_resource.items()
        ]
        self._check_free(pod, entries)
        self.ledger.restore(
            (pod, container, resource, self._placed(resource, ids, no_topology_node))
            for container, resource, ids in entries
        )
        self.note_pod(pod)

    def _placed(
        self, resource: ResourceName, ids: frozenset[DeviceId], no_topology_node: int
    ) -> Holding:
        listed = self.endpoints.devices(resource) or EMPTY
        return Holding(by_numa_node(listed, ids, no_topology_node), b"")

    def _check_free(
        self,
        pod: PodUid,
        entries: Iterable[tuple[ContainerName, ResourceName, frozenset[DeviceId]]],
    ) -> None:
        mine: set[tuple[ResourceName, DeviceId]] = set()
        for _, resource, ids in entries:
            holders = self.ledger.holders_of(resource, ids)
            holders.pop(pod, None)
            twice = {id_ for id_ in ids if (resource, id_) in mine}
            if twice:
                holders[pod] = twice
            mine.update((resource, id_) for id_ in ids)
            for holder, held in sorted(holders.items()):
                error = AllocationError(
                    HELD_ALREADY.format(device=min(held), resource=resource, pod=holder)
                )
                raise rejected_by_allocation(error)

    def load(self, saved: checkpoint.Checkpoint, now: float) -> None:
        """Take over a checkpoint: its resources are known, with 0 devices and a stopped
        endpoint each, until their plugin lists again (``readCheckpoint``, v1.32)."""
        restore(self.ledger, saved.entries or ())
        for pod in self.ledger.pods():
            self.note_pod(pod)
        for name, ids in sorted((saved.registered_devices or {}).items()):
            resource = ResourceName(name)
            self.endpoints.restore(resource, now)
            self.note_list(resource, ())
            self.is_stale |= bool(ids)

    # -- taking the lock -------------------------------------------------------------

    def _render(self) -> checkpoint.Contents:
        with self.lock:
            self.is_stale = False
            while self._kept:
                self._document.remove(self._kept.popitem()[0])
            contents = self._document.snapshot()
        return contents()


@attrs.define(eq=False, repr=False)
class PodState:
    """One pod's record; one that says nothing is not kept."""

    admission: PodAllocation | None = None
    """The admission that is under way, or the allocation for one container."""
    is_deleted: bool = False
    """Whether the pod was deleted while its admission was under way."""
    affinities: Affinities = attrs.field(factory=dict)
    """The NUMA nodes that its containers were aligned to."""
    host_devices: frozenset[str] = frozenset()
    """What of the host was given to it: PCI addresses and network interfaces."""


_NOTHING = PodState()


class PodStates:
    """The records by UID. Whoever calls holds the state's lock."""

    def __init__(self) -> None:
        self._states: dict[PodUid, PodState] = {}
        # Apart from the records: every admission looks whether there are any. A dict, as an empty
        # set takes three times as much.
        self._inactive: dict[PodUid, None] = {}

    def get(self, pod: PodUid) -> PodState:
        """The pod's record, or one that says nothing; not for changes."""
        return self._states.get(pod, _NOTHING)

    def begin(self, allocation: PodAllocation) -> None:
        """An admission is under way from now on; the pod is active."""
        self._inactive.pop(allocation.pod.uid, None)
        self._of(allocation.pod.uid).admission = allocation

    def end(self, pod: PodUid) -> None:
        """The pod's admission has ended, one way or the other."""
        state = self._of(pod)
        state.admission, state.is_deleted = None, False
        self._tidy(pod)

    def align(self, pod: PodUid, affinities: Affinities) -> None:
        """The pod's containers are aligned so, and not as before."""
        self._of(pod).affinities = affinities
        self._tidy(pod)

    def assign_host_devices(self, pod: PodUid, names: frozenset[str]) -> None:
        """The pod has these devices of the host and no other."""
        self._of(pod).host_devices = names
        self._tidy(pod)

    def host_devices_in_use(self) -> frozenset[str]:
        """The devices of the host that some pod has."""
        return frozenset[str]().union(*(state.host_devices for state in self._states.values()))

    def holder_of(self, name: str) -> PodUid | None:
        """The pod that has this device of the host."""
        for pod, state in self._states.items():
            if name in state.host_devices:
                return pod
        return None

    def deactivate(self, pod: PodUid) -> None:
        """What the pod holds goes with the next admission of another."""
        self._inactive[pod] = None

    @property
    def has_inactive(self) -> bool:
        """Whether devices of some pod are to be freed. May be read without the lock."""
        return bool(self._inactive)

    def inactive(self) -> list[PodUid]:
        """The pods whose devices are to be freed now, each by ``forget``."""
        return sorted(self._inactive)

    def forget(self, pod: PodUid) -> None:
        """The pod holds nothing any more. Its admission learns that, if one is under way."""
        self._inactive.pop(pod, None)
        state = self._states.get(pod)
        if state is not None:
            state.affinities, state.host_devices = {}, frozenset()
            self._tidy(pod)

    def delete(self, pod: PodUid) -> None:
        """The pod is gone; an admission that is under way must come to nothing."""
        state = self._states.get(pod)
        if state is not None and state.admission is not None:
            state.is_deleted = True

    def admissions(self) -> Iterator[PodAllocation]:
        """Those that are under way."""
        for state in self._states.values():
            if state.admission is not None:
                yield state.admission

    def _of(self, pod: PodUid) -> PodState:
        state = self._states.get(pod)
        if state is None:
            state = self._states[pod] = PodState()
        return state

    def _tidy(self, pod: PodUid) -> None:
        state = self._states[pod]
        if state.admission is None and not state.affinities and not state.host_devices:
            del self._states[pod]


def allocation_rules(settings: Settings) -> Rules:
    """How devices are allocated under these settings."""
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


def new_endpoints(settings: Settings) -> Endpoints:
    """Endpoints of which nobody has registered yet."""
    return Endpoints(
        several=settings.behaviour.several_plugins, lists_of_all="Q24" in settings.quirks
    )


def new_ledger(settings: Settings) -> Ledger:
    """A ledger without entries."""
    return Ledger(overlooks_drafts="Q25" in settings.quirks)
