"""The core's state and the one lock that guards it.

Whoever takes ``State.lock`` only lets the core decide: no RPC, file write or callback
while it is held. Methods here say whether they take the lock or want it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import checkpoint
from checkpoint.shared_writer import Store, Writer
from devicemanager.core.allocation.container import PodAllocation, by_numa_node
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, DeviceId, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import EMPTY
from devicemanager.core.ledger import AllocatedDevices, Draft, Ledger
from devicemanager.core.messages import ALREADY_IN_USE
from devicemanager.core.node import Node
from devicemanager.core.providers.provider import HintProviders
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.kubelet.manager.checkpointing import Document, TextDocument, restore
from devicemanager.kubelet.manager.endpoint import PluginClient


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
