"""Source of truth for device allocations."""

# Theory of operation. A device is in one of three states:
#
# * free,
# * *reserved* by the ``Draft`` of a pod whose admission is in progress,
# * *allocated*: named in an entry, which is what a committed pod's containers have.
#
# Reserved and allocated devices are *in use*. A draft is reserved piece by piece while the
# allocator runs, so that no concurrent admission chooses the same device, and ends in one of
# these ways:
#
# * ``commit``: the drafted devices become entries. Nothing else can fail after that except
#   the checkpoint write, for which ``retract`` undoes the commit.
# * ``drop``: the reservations are given back. A rejected pod leaves nothing behind.
# * ``leak``: with quirk Q4, the reservations stay in use and belong to no pod.
# * ``withdraw``: an interrupt hit the admission at an unknown point. The draft's part of the
#   entries is removed, and the indexes are rebuilt instead of updated.
#
# The kubelet has no drafts. It keeps a set of devices in use (``m.allocatedDevices``), adds to
# it while it allocates, and at some events replaces it by the devices of all entries
# (``m.podDevices.devices()``). Devices that are only reserved then become free by mistake: that
# ends leaks (Q4) and is itself a defect (Q25). ``count_committed_only`` marks those events; it
# has no effect unless one of these quirks is enabled.
#
# Two indexes per resource make queries fast: device to the pods that use it, and the set in use
# as an integer over one numbering. Both are private and derived. ``self_check`` recounts them.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType

import attrs

from devicemanager.core.errors import InternalError
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceIndex

DevicesPerNuma = Mapping[int, tuple[DeviceId, ...]]
"""NUMA node ID to sorted device IDs; devices without topology are under
``WITHOUT_TOPOLOGY``."""


@attrs.frozen
class AllocatedDevices:
    """The devices of one resource that are allocated to one container, with the plugin's
    response (the kubelet's ``deviceAllocateInfo``)."""

    devices: DevicesPerNuma
    response: bytes | None
    """The first ContainerAllocateResponse, serialized and not interpreted here."""

    @property
    def ids(self) -> frozenset[DeviceId]:
        """The IDs of all devices."""
        # Not stored: a set takes more memory than everything else in this object.
        return frozenset().union(*self.devices.values())


LEAKED = PodUid("")
"""Stands for the pod of leaked devices (Q4)."""

AllocatedByResource = Mapping[ResourceName, AllocatedDevices]
"""Resource to the devices of one container."""
AllocatedByContainer = Mapping[ContainerName, AllocatedByResource]
"""Container to its devices by resource, for one pod."""
Entry = tuple[PodUid, ContainerName, ResourceName, AllocatedDevices]
"""One container's devices of one resource, as in the checkpoint."""

_NOTHING: Mapping[ResourceName, AllocatedDevices] = MappingProxyType({})


@attrs.define(eq=False, repr=False)
class _Index:
    """Private index of one resource: which devices are in use, and by which pods."""

    users: dict[DeviceId, tuple[PodUid, ...]] = attrs.field(factory=dict)
    """Device to one pod per entry or reservation that names it. There are several only within
    one pod (reuse), or in a checkpoint that another program wrote."""
    device_index: DeviceIndex | None = None
    """The numbering that ``bits`` belongs to."""
    bits: int = 0

    def add(self, pod: PodUid, ids: Iterable[DeviceId]) -> None:
        added = []
        for id_ in ids:
            before = self.users.get(id_, ())
            self.users[id_] = (*before, pod)
            if not before:
                added.append(id_)
        self._flip(added)

    def remove(self, pod: PodUid, ids: Iterable[DeviceId]) -> None:
        freed = []
        for id_ in ids:
            users = list(self.users[id_])
            users.remove(pod)
            if users:
                self.users[id_] = tuple(users)
            else:
                del self.users[id_]
                freed.append(id_)
        self._flip(freed)

    def _flip(self, ids: Iterable[DeviceId]) -> None:
        if self.device_index is not None:
            self.bits ^= self.device_index.bits(ids)

    def in_use(self, device_index: DeviceIndex) -> int:
        # A list with other devices has a new numbering, and the bits mean something else.
        if self.device_index is not device_index:
            self.device_index = device_index
            self.bits = device_index.bits(self.users)
        return self.bits


class Draft:
    """Devices that an admission in progress has reserved, and what it will commit."""

    def __init__(self, pod: PodUid) -> None:
        self.pod = pod
        self.allocated: dict[ContainerName, dict[ResourceName, AllocatedDevices]] = {}
        """Devices with the plugin's response; they become entries."""
        self.reserved: dict[ResourceName, list[frozenset[DeviceId]]] = {}

    def __bool__(self) -> bool:
        """True if there is something to commit."""
        return bool(self.allocated)

    def without_response(self) -> dict[ResourceName, set[DeviceId]]:
        """Return the reserved devices whose Allocate has not returned yet."""
        found = {resource: set[DeviceId]().union(*ids) for resource, ids in self.reserved.items()}
        for by_resource in self.allocated.values():
            for resource, allocated in by_resource.items():
                found.get(resource, set()).difference_update(allocated.ids)
        return found


class Ledger:
    """Entries by pod, and the reservations of open drafts.

    Entries are replaced and never changed in place, so that callers can keep what a query
    returned. Not thread-safe: callers hold the manager's lock.
    """

    def __init__(self, *, ignores_drafts: bool = False) -> None:
        """With ``ignores_drafts``, reserved devices count as free once devices of another
        pod are freed (Q25)."""
        self._pods: dict[PodUid, AllocatedByContainer] = {}
        self._index: dict[ResourceName, _Index] = {}
        self._leaked: list[Draft] = []
        # Only for Q4: resources of which a choice was tried, perhaps without success.
        self._tried: set[ResourceName] = set()
        # Resources of entries without devices, which only a foreign checkpoint has.
        self._without_devices: frozenset[ResourceName] = frozenset()
        # Only for Q25: drafts with reservations, and the part of them that counts as free.
        self._open: list[Draft] | None = [] if ignores_drafts else None
        self._ignored: dict[ResourceName, set[DeviceId]] = {}

    # -- reading ---------------------------------------------------------------------

    def pods(self) -> Iterable[PodUid]:
        """Return the pods with entries, in the order of their first allocation."""
        return self._pods.keys()

    def snapshot(self) -> Mapping[PodUid, AllocatedByContainer]:
        """Return all entries of this moment, at the cost of one pointer per pod."""
        return dict(self._pods)

    def __contains__(self, pod: object) -> bool:
        """True if the pod has entries."""
        return pod in self._pods

    def pod(self, pod: PodUid) -> AllocatedByContainer:
        """Return the entries of a pod."""
        return self._pods.get(pod, {})

    def container(self, pod: PodUid, container: ContainerName) -> AllocatedByResource:
        """Return the entries of a container."""
        return self._pods.get(pod, {}).get(container, _NOTHING)

    def allocated(
        self, pod: PodUid, container: ContainerName, resource: ResourceName
    ) -> frozenset[DeviceId] | None:
        """Return a container's devices of a resource; None without an entry, which differs
        from an entry without devices (``containerDevices``, v1.32)."""
        entry = self.container(pod, container).get(resource)
        return None if entry is None else entry.ids

    def allocated_to_pod(self, pod: PodUid, resource: ResourceName) -> frozenset[DeviceId]:
        """Return all devices of a resource that are allocated to a pod (``podDevices``,
        v1.32)."""
        ids: set[DeviceId] = set()
        for by_resource in self._pods.get(pod, {}).values():
            if resource in by_resource:
                ids |= by_resource[resource].ids
        return frozenset(ids)

    def is_in_use(self, resource: ResourceName) -> bool:
        """True if a device of the resource is in use, or an entry names the resource."""
        index = self._index.get(resource)
        if index is not None and index.users:
            return True
        return resource in self._without_devices or resource in self._tried

    def count(self, resource: ResourceName) -> int:
        """Return the number of devices of a resource in use."""
        index = self._index.get(resource)
        return 0 if index is None else len(index.users)

    def in_use(self, resource: ResourceName, device_index: DeviceIndex) -> int:
        """Return the set of devices in use, by number."""
        index = self._index.get(resource)
        if index is None:
            return 0
        bits = index.in_use(device_index)
        if self._ignored:
            bits &= ~device_index.bits(self._ignored.get(resource, ()))
        return bits

    def pods_using(self, resource: ResourceName, ids: Set[DeviceId]) -> dict[PodUid, set[DeviceId]]:
        """Return the pods that use any of the given devices of a resource, with those devices
        (Q8: kubelets search all resources for an ID)."""
        index = self._index.get(resource)
        found: dict[PodUid, set[DeviceId]] = {}
        if index is None:
            return found
        # Usually either few devices changed or few are in use: iterate over the smaller set.
        candidates = index.users.keys() & ids if len(ids) > len(index.users) else ids
        for id_ in candidates:
            for pod in index.users.get(id_, ()):
                found.setdefault(pod, set()).add(id_)
        found.pop(LEAKED, None)
        return found

    def resources(self) -> Iterator[tuple[ResourceName, int]]:
        """Iterate over resources with devices in use and their number, sorted by name."""
        for resource in sorted(self._index):
            if count := len(self._index[resource].users):
                yield resource, count

    def leaked(self) -> Iterator[tuple[ResourceName, frozenset[DeviceId]]]:
        """Iterate over leaked devices (Q4)."""
        for draft in self._leaked:
            for resource, reservations in draft.reserved.items():
                for ids in reservations:
                    yield resource, ids

    # -- writing ---------------------------------------------------------------------

    def note_tried(self, resource: ResourceName) -> None:
        """Count a resource as in use, because a choice of its devices begins (Q4).

        The kubelet adds the resource to ``allocatedDevices`` before it has any device
        (``devicesToAllocate``, v1.36).
        """
        self._tried.add(resource)

    def reserve(self, draft: Draft, resource: ResourceName, ids: frozenset[DeviceId]) -> None:
        """Mark devices as in use by a draft, before Allocate is called."""
        draft.reserved.setdefault(resource, []).append(ids)
        self._index.setdefault(resource, _Index()).add(draft.pod, ids)
        if self._open is not None:
            self._open.append(draft)
            self._ignored.get(resource, set()).difference_update(ids)

    @staticmethod
    def record(
        draft: Draft, container: ContainerName, resource: ResourceName, allocated: AllocatedDevices
    ) -> None:
        """Add reserved devices and the plugin's response to a draft."""
        draft.allocated.setdefault(container, {})[resource] = allocated

    def commit(self, draft: Draft) -> None:
        """Turn a draft into entries."""
        if draft.allocated:
            pod = dict(self._pods.get(draft.pod, {}))
            for container, by_resource in draft.allocated.items():
                pod[container] = {**pod.get(container, {}), **by_resource}
            self._pods[draft.pod] = pod
        # The index is right already: what the draft reserved stays in use.
        self._close(draft)

    def drop(self, draft: Draft) -> None:
        """Free what a draft has reserved. Repeated, or after ``commit``, it does nothing."""
        for resource, reservations in draft.reserved.items():
            for ids in reservations:
                self._index[resource].remove(draft.pod, ids)
        self._close(draft)

    def _close(self, draft: Draft) -> None:
        draft.reserved = {}
        if self._open is not None:
            self._open = [each for each in self._open if each is not draft]

    def leak(self, draft: Draft) -> None:
        """Close a draft but leave its devices in use (Q4)."""
        leaked = Draft(LEAKED)
        for resource, ids in draft.without_response().items():
            self.reserve(leaked, resource, frozenset(ids))
        self._leaked.append(leaked)
        self.drop(draft)

    def count_committed_only(self) -> None:
        """Apply the kubelet's ``m.allocatedDevices = m.podDevices.devices()``.

        Leaked devices become free (Q4), and reserved devices count as free (Q25).
        """
        leaked, self._leaked = self._leaked, []
        self._tried.clear()
        for draft in leaked:
            self.drop(draft)
        if self._open is not None:
            self._ignored = {}
            for draft in self._open:
                # Devices whose Allocate has returned have an entry in the kubelet by now.
                for resource, ids in draft.without_response().items():
                    self._ignored.setdefault(resource, set()).update(ids)

    def retract(self, draft: Draft) -> None:
        """Undo a commit whose checkpoint could not be written."""
        pod = {name: dict(entries) for name, entries in self._pods.get(draft.pod, {}).items()}
        for container, by_resource in draft.allocated.items():
            for resource in by_resource:
                entry = pod.get(container, {}).pop(resource, None)
                if entry is not None:
                    self._index[resource].remove(draft.pod, entry.ids)
            if not pod.get(container, True):
                del pod[container]
        if pod:
            self._pods[draft.pod] = pod
        else:
            self._pods.pop(draft.pod, None)

    def withdraw(self, draft: Draft, others: Iterable[Draft]) -> bool:
        """Undo a draft of an interrupted admission; parts of it may have been committed or
        dropped before. ``others`` are the drafts that are still open. Returns True if it had
        entries.

        The indexes are rebuilt, because the interrupt may have hit in the middle of an update.
        """
        pod = self._pods.get(draft.pod, {})
        had_entries = False
        for container, by_resource in draft.allocated.items():
            entries = pod.get(container, {})
            # By identity: an equal entry of an earlier admission must stay.
            left = {name: one for name, one in entries.items() if by_resource.get(name) is not one}
            if len(left) < len(entries):
                had_entries = True
                pod = {**pod, container: left}
        pod = {container: entries for container, entries in pod.items() if entries}
        if pod:
            self._pods[draft.pod] = pod
        else:
            self._pods.pop(draft.pod, None)
        self._close(draft)
        self.recount(others)
        return had_entries

    def recount(self, drafts: Iterable[Draft] = ()) -> None:
        """Rebuild every index from the entries and the given open drafts."""
        self._index = {}
        for pod, resource, ids in self._all_in_use(drafts):
            self._index.setdefault(resource, _Index()).add(pod, ids)

    def enter(self, draft: Draft, containers: Iterable[ContainerName]) -> None:
        """Turn a part of a dropped draft into entries (Q31)."""
        self.restore(
            (draft.pod, container, resource, allocated)
            for container in containers
            for resource, allocated in draft.allocated.get(container, {}).items()
        )

    def restore(self, entries: Iterable[Entry]) -> None:
        """Add entries, as from a checkpoint. Of several with the same pod, container and
        resource the last one counts."""
        # Copy each pod only once: a checkpoint can have any number of entries for one pod.
        pods: dict[PodUid, dict[ContainerName, dict[ResourceName, AllocatedDevices]]] = {}
        for pod, container, resource, allocated in entries:
            if pod not in pods:
                pods[pod] = {name: dict(before) for name, before in self.pod(pod).items()}
            by_resource = pods[pod].setdefault(container, {})
            index = self._index.setdefault(resource, _Index())
            if resource in by_resource:
                index.remove(pod, by_resource[resource].ids)
            by_resource[resource] = allocated
            index.add(pod, allocated.ids)
            if not allocated.devices:
                self._without_devices |= {resource}
        self._pods.update(pods)

    def release(self, pod: PodUid) -> AllocatedByContainer:
        """Free all devices of a pod and return its entries."""
        released = self._pods.pop(pod, {})
        for by_resource in released.values():
            for resource, allocated in by_resource.items():
                self._index[resource].remove(pod, allocated.ids)
        if released:
            self.count_committed_only()
            if self._without_devices:
                self._without_devices = frozenset(
                    resource
                    for pod in self._pods.values()
                    for by_resource in pod.values()
                    for resource, allocated in by_resource.items()
                    if not allocated.devices
                )
        return released

    # -- checking --------------------------------------------------------------------

    def self_check(self, drafts: Iterable[Draft] = ()) -> None:
        """Recount every index; raise InternalError if one differs from the entries and the
        given open drafts."""
        counted: dict[ResourceName, dict[DeviceId, list[PodUid]]] = {}
        for pod, resource, ids in self._all_in_use(drafts):
            users = counted.setdefault(resource, {})
            for id_ in ids:
                users.setdefault(id_, []).append(pod)
        for resource, index in self._index.items():
            recounted = counted.pop(resource, {})
            indexed = {id_: sorted(pods) for id_, pods in index.users.items()}
            if indexed != {id_: sorted(pods) for id_, pods in recounted.items()}:
                raise InternalError(f"ledger: users of {resource} do not match the entries")
            device_index = index.device_index
            if device_index is not None and index.bits != device_index.bits(index.users):
                raise InternalError(f"ledger: set in use of {resource} does not match")
        if counted:
            raise InternalError(f"ledger: no index for {sorted(counted)}")

    def _all_in_use(
        self, drafts: Iterable[Draft]
    ) -> Iterator[tuple[PodUid, ResourceName, frozenset[DeviceId]]]:
        for uid, pod in self._pods.items():
            for by_resource in pod.values():
                for resource, allocated in by_resource.items():
                    yield uid, resource, allocated.ids
        for draft in (*drafts, *self._leaked):
            for resource, reservations in draft.reserved.items():
                for ids in reservations:
                    yield draft.pod, resource, ids
