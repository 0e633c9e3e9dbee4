"""Who holds which devices: the one truth.

A pod's allocation is written in a draft first. What a draft holds counts as in use for
every other pod, but becomes an entry only when the whole pod is committed, so a
rejected pod leaves nothing behind (Q4).

Indexes (how often a device is held, the set in use by number) are private and can be
checked against a recount with ``self_check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType

import attrs

from devicemanager.core.errors import InternalError
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceIndex

DevicesPerNuma = Mapping[int, tuple[DeviceId, ...]]
"""NUMA node id to sorted device ids; ``WITHOUT_TOPOLOGY`` for those without."""


@attrs.frozen
class AllocatedDevices:
    """What one container holds of one resource, with the plugin's stored answer."""

    devices: DevicesPerNuma
    response: bytes | None
    """The serialized first ContainerAllocateResponse; opaque here."""

    @property
    def ids(self) -> frozenset[DeviceId]:
        """All the devices. Put together each time: a set takes more memory than all else here."""
        return frozenset().union(*self.devices.values())


LEAKED = PodUid("")
"""Who has what leaked (Q4)."""

AllocatedByResource = Mapping[ResourceName, AllocatedDevices]
"""Resource to what a container holds of it."""
AllocatedByContainer = Mapping[ContainerName, AllocatedByResource]
"""Container to its holdings."""
Entry = tuple[PodUid, ContainerName, ResourceName, AllocatedDevices]
"""What a container holds of one resource."""

_NOTHING: Mapping[ResourceName, AllocatedDevices] = MappingProxyType({})


@attrs.define(eq=False, repr=False)
class _Index:
    """Private index of one resource: what is in use, and by whom."""

    holders: dict[DeviceId, tuple[PodUid, ...]] = attrs.field(factory=dict)
    """The pod of each holding that names a device: several only within one pod (reuse),
    or in a checkpoint that another program wrote."""
    device_index: DeviceIndex | None = None
    bits: int = 0

    def add(self, pod: PodUid, ids: Iterable[DeviceId]) -> None:
        taken = []
        for id_ in ids:
            before = self.holders.get(id_, ())
            self.holders[id_] = (*before, pod)
            if not before:
                taken.append(id_)
        self._flip(taken)

    def remove(self, pod: PodUid, ids: Iterable[DeviceId]) -> None:
        freed = []
        for id_ in ids:
            holders = list(self.holders[id_])
            holders.remove(pod)
            if holders:
                self.holders[id_] = tuple(holders)
            else:
                del self.holders[id_]
                freed.append(id_)
        self._flip(freed)

    def _flip(self, ids: Iterable[DeviceId]) -> None:
        if self.device_index is not None:
            self.bits ^= self.device_index.bits(ids)

    def in_use(self, device_index: DeviceIndex) -> int:
        if self.device_index is not device_index:
            self.device_index = device_index
            self.bits = device_index.bits(self.holders)
        return self.bits


class Draft:
    """What a pod is about to hold. Belongs to one ledger until committed or dropped."""

    def __init__(self, pod: PodUid) -> None:
        self.pod = pod
        self.allocated: dict[ContainerName, dict[ResourceName, AllocatedDevices]] = {}
        self.reserved: dict[ResourceName, list[frozenset[DeviceId]]] = {}

    def __bool__(self) -> bool:
        return bool(self.allocated)

    def without_response(self) -> dict[ResourceName, set[DeviceId]]:
        """What is reserved and has no answer to Allocate yet."""
        found = {resource: set[DeviceId]().union(*ids) for resource, ids in self.reserved.items()}
        for holdings in self.allocated.values():
            for resource, holding in holdings.items():
                found.get(resource, set()).difference_update(holding.ids)
        return found


class Ledger:
    """Committed holdings by pod, and the drafts under way.

    What a pod holds is never changed once it stands here, but replaced: whoever has asked may
    keep the answer.
    """

    def __init__(self, *, ignores_drafts: bool = False) -> None:
        """``ignores_drafts``: devices of an open draft count as free once another pod is
        freed (Q25)."""
        self._pods: dict[PodUid, AllocatedByContainer] = {}
        self._index: dict[ResourceName, _Index] = {}
        self._leaked: list[Draft] = []
        # Q25: the drafts that reserve something, and what of theirs counts as free.
        self._open: list[Draft] | None = [] if ignores_drafts else None
        self._overlooked: dict[ResourceName, set[DeviceId]] = {}

    # -- reading ---------------------------------------------------------------------

    def pods(self) -> Iterable[PodUid]:
        """The pods that hold something, in the order of their first allocation."""
        return self._pods.keys()

    def snapshot(self) -> Mapping[PodUid, AllocatedByContainer]:
        """All that is held now; costs one pointer a pod."""
        return dict(self._pods)

    def __contains__(self, pod: object) -> bool:
        return pod in self._pods

    def pod(self, pod: PodUid) -> AllocatedByContainer:
        return self._pods.get(pod, {})

    def container(self, pod: PodUid, container: ContainerName) -> AllocatedByResource:
        return self._pods.get(pod, {}).get(container, _NOTHING)

    def allocated(
        self, pod: PodUid, container: ContainerName, resource: ResourceName
    ) -> frozenset[DeviceId] | None:
        """The devices a container holds of a resource; None if nothing is recorded
        (``containerDevices``, v1.32)."""
        holding = self.container(pod, container).get(resource)
        return None if holding is None else holding.ids

    def allocated_to_pod(self, pod: PodUid, resource: ResourceName) -> frozenset[DeviceId]:
        """All devices of a resource that a pod holds (``podDevices``, v1.32)."""
        ids: set[DeviceId] = set()
        for holdings in self._pods.get(pod, {}).values():
            if resource in holdings:
                ids |= holdings[resource].ids
        return frozenset(ids)

    def is_in_use(self, resource: ResourceName) -> bool:
        """Whether anybody holds, or is about to hold, a device of the resource."""
        index = self._index.get(resource)
        return index is not None and bool(index.holders)

    def count(self, resource: ResourceName) -> int:
        """How many devices of a resource are held or drafted."""
        index = self._index.get(resource)
        return 0 if index is None else len(index.holders)

    def in_use(self, resource: ResourceName, device_index: DeviceIndex) -> int:
        """The set of devices that are held or drafted, by number."""
        index = self._index.get(resource)
        if index is None:
            return 0
        bits = index.in_use(device_index)
        if self._overlooked:
            bits &= ~device_index.bits(self._overlooked.get(resource, ()))
        return bits

    def pods_using(self, resource: ResourceName, ids: Set[DeviceId]) -> dict[PodUid, set[DeviceId]]:
        """Which pods hold which of the given devices of a resource (Q8)."""
        index = self._index.get(resource)
        found: dict[PodUid, set[DeviceId]] = {}
        if index is None:
            return found
        # Usually either few devices changed or few are held.
        held = index.holders.keys() & ids if len(ids) > len(index.holders) else ids
        for id_ in held:
            for pod in index.holders.get(id_, ()):
                found.setdefault(pod, set()).add(id_)
        found.pop(LEAKED, None)
        return found

    def resources(self) -> Iterator[tuple[ResourceName, int]]:
        """Every held resource and how many of its devices are, sorted by name."""
        for resource in sorted(self._index):
            if count := len(self._index[resource].holders):
                yield resource, count

    def leaked(self) -> Iterator[tuple[ResourceName, frozenset[DeviceId]]]:
        """What is in use for nobody (Q4)."""
        for draft in self._leaked:
            for resource, reservations in draft.reserved.items():
                for ids in reservations:
                    yield resource, ids

    # -- writing ---------------------------------------------------------------------

    def reserve(self, draft: Draft, resource: ResourceName, ids: frozenset[DeviceId]) -> None:
        """Mark devices in use for a draft, before its plugin has answered."""
        draft.reserved.setdefault(resource, []).append(ids)
        self._index.setdefault(resource, _Index()).add(draft.pod, ids)
        if self._open is not None:
            self._open.append(draft)
            self._overlooked.get(resource, set()).difference_update(ids)

    @staticmethod
    def record(
        draft: Draft, container: ContainerName, resource: ResourceName, holding: AllocatedDevices
    ) -> None:
        """Note the answer for devices that were reserved."""
        draft.allocated.setdefault(container, {})[resource] = holding

    def commit(self, draft: Draft) -> None:
        """Make a draft's holdings entries."""
        if draft.allocated:
            pod = dict(self._pods.get(draft.pod, {}))
            for container, holdings in draft.allocated.items():
                pod[container] = {**pod.get(container, {}), **holdings}
            self._pods[draft.pod] = pod
        self._close(draft)

    def drop(self, draft: Draft) -> None:
        """Give back what a draft reserved. Dropping twice, or after commit, does nothing."""
        for resource, reservations in draft.reserved.items():
            for ids in reservations:
                self._index[resource].remove(draft.pod, ids)
        self._close(draft)

    def _close(self, draft: Draft) -> None:
        draft.reserved = {}
        if self._open is not None:
            self._open = [each for each in self._open if each is not draft]

    def leak(self, draft: Draft) -> None:
        """Leave what a draft reserved in use, for nobody (Q4)."""
        leaked = Draft(LEAKED)
        for resource, reservations in draft.reserved.items():
            for ids in reservations:
                self.reserve(leaked, resource, ids)
        self._leaked.append(leaked)
        self.drop(draft)

    def count_committed_only(self) -> None:
        """Only what has an entry is in use from now on, as when the reference counts anew
        (``m.allocatedDevices = m.podDevices.devices()``): what leaked comes back (Q4), and
        what open drafts reserve is overlooked (Q25)."""
        leaked, self._leaked = self._leaked, []
        for draft in leaked:
            self.drop(draft)
        if self._open is not None:
            self._overlooked = {}
            for draft in self._open:
                for resource, ids in draft.without_response().items():
                    self._overlooked.setdefault(resource, set()).update(ids)

    def retract(self, draft: Draft) -> None:
        """Undo a commit whose checkpoint could not be written."""
        pod = {name: dict(held) for name, held in self._pods.get(draft.pod, {}).items()}
        for container, holdings in draft.allocated.items():
            for resource in holdings:
                holding = pod.get(container, {}).pop(resource, None)
                if holding is not None:
                    self._index[resource].remove(draft.pod, holding.ids)
            if not pod.get(container, True):
                del pod[container]
        if pod:
            self._pods[draft.pod] = pod
        else:
            self._pods.pop(draft.pod, None)

    def withdraw(self, draft: Draft, others: Iterable[Draft]) -> bool:
        """Take back all of a draft, of which any part may have been committed or dropped:
        an admission was interrupted. ``others`` are the drafts that are open now. Returns whether
        there was an entry of it.

        The indexes are counted anew, since it cannot be known how far they got.
        """
        pod = self._pods.get(draft.pod, {})
        entered = False
        for container, holdings in draft.allocated.items():
            held = pod.get(container, {})
            left = {name: has for name, has in held.items() if holdings.get(name) is not has}
            if len(left) < len(held):
                entered = True
                pod = {**pod, container: left}
        pod = {container: held for container, held in pod.items() if held}
        if pod:
            self._pods[draft.pod] = pod
        else:
            self._pods.pop(draft.pod, None)
        self._close(draft)
        self.recount(others)
        return entered

    def recount(self, drafts: Iterable[Draft] = ()) -> None:
        """Make every index anew, from the entries and the given open drafts."""
        self._index = {}
        for pod, resource, ids in self._all_held(drafts):
            self._index.setdefault(resource, _Index()).add(pod, ids)

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take entries over, as from a checkpoint; of several with the same pod, container and
        resource the last counts."""
        # Each pod is copied once: a checkpoint may have any number of entries of one.
        pods: dict[PodUid, dict[ContainerName, dict[ResourceName, AllocatedDevices]]] = {}
        for pod, container, resource, holding in entries:
            if pod not in pods:
                pods[pod] = {name: dict(held) for name, held in self.pod(pod).items()}
            holdings = pods[pod].setdefault(container, {})
            index = self._index.setdefault(resource, _Index())
            if resource in holdings:
                index.remove(pod, holdings[resource].ids)
            holdings[resource] = holding
            index.add(pod, holding.ids)
        self._pods.update(pods)

    def release(self, pod: PodUid) -> AllocatedByContainer:
        """Free everything a pod holds, and return it."""
        released = self._pods.pop(pod, {})
        for holdings in released.values():
            for resource, holding in holdings.items():
                self._index[resource].remove(pod, holding.ids)
        if released:
            self.count_committed_only()
        return released

    # -- checking --------------------------------------------------------------------

    def self_check(self, drafts: Iterable[Draft] = ()) -> None:
        """Recount every index from the entries and the given open drafts."""
        counted: dict[ResourceName, dict[DeviceId, list[PodUid]]] = {}
        for pod, resource, ids in self._all_held(drafts):
            holders = counted.setdefault(resource, {})
            for id_ in ids:
                holders.setdefault(id_, []).append(pod)
        for resource, index in self._index.items():
            recounted = counted.pop(resource, {})
            indexed = {id_: sorted(pods) for id_, pods in index.holders.items()}
            if indexed != {id_: sorted(pods) for id_, pods in recounted.items()}:
                raise InternalError(f"ledger: holders of {resource} do not match the entries")
            device_index = index.device_index
            if device_index is not None and index.bits != device_index.bits(index.holders):
                raise InternalError(f"ledger: set in use of {resource} does not match")
        if counted:
            raise InternalError(f"ledger: no index for {sorted(counted)}")

    def _all_held(
        self, drafts: Iterable[Draft]
    ) -> Iterator[tuple[PodUid, ResourceName, frozenset[DeviceId]]]:
        for uid, pod in self._pods.items():
            for holdings in pod.values():
                for resource, holding in holdings.items():
                    yield uid, resource, holding.ids
        for draft in (*drafts, *self._leaked):
            for resource, reservations in draft.reserved.items():
                for ids in reservations:
                    yield draft.pod, resource, ids
