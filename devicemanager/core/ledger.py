"""Ledger of device allocations: the only record of which container uses which devices.

Q4, Q8, Q25 and Q31 are bugs of the kubelet that tests can enable (``versions.quirks``).
"""

# Theory of operation. A device is in one of three states:
#
# * free,
# * *reserved* by the ``Draft`` of a pod whose admission is in progress,
# * *allocated*: named in an entry. A committed pod has an entry per container and resource.
#
# Reserved and allocated devices are *in use*. The allocator reserves devices in the draft as it
# chooses them, so no concurrent admission chooses the same devices. One of these methods closes
# the draft:
#
# * ``commit``: the drafted devices become entries. If the checkpoint cannot be written after
#   that, ``retract`` undoes the commit.
# * ``drop``: the reserved devices are freed. A rejected pod has no devices.
# * ``leak``: with quirk Q4, the reserved devices stay in use and belong to no pod.
# * ``withdraw``: an interrupt stopped the admission at an unknown point. The entries that came
#   from the draft are removed, and the indexes are rebuilt instead of updated.
#
# The kubelet has no drafts. It has a set of devices in use (``m.allocatedDevices``) and adds
# devices to it while it allocates. At some events it replaces the set by the devices of all
# entries (``m.podDevices.devices()``). This frees leaked devices (Q4), but also, by mistake,
# devices that are only reserved (Q25). ``count_committed_only`` is called at these events; it has
# an effect only if one of the two quirks is enabled.
#
# Two indexes per resource make queries fast: a map of each device to the pods that use it, and
# the set of devices in use as an integer. Both are private and computed from the entries and
# drafts. ``self_check`` verifies them.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType

import attrs

from devicemanager.core.errors import InternalError
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceIndex

DevicesPerNuma = Mapping[int, tuple[DeviceId, ...]]
"""Mapping from the ID of a NUMA node to the sorted IDs of its devices. The key
``WITHOUT_TOPOLOGY`` has the devices without topology."""


@attrs.frozen
class AllocatedDevices:
    """Devices of one resource that are allocated to one container, with the plugin's response
    (the kubelet's ``deviceAllocateInfo``)."""

    devices: DevicesPerNuma
    response: bytes | None
    """The plugin's first ContainerAllocateResponse, serialized; None if the checkpoint has null.
    The ledger does not read the response."""

    @property
    def ids(self) -> frozenset[DeviceId]:
        """The IDs of all allocated devices."""
        # Computed at each call: a stored set would take more memory than all other fields.
        return frozenset().union(*self.devices.values())


LEAKED = PodUid("")
"""Empty UID, which stands in place of a pod's UID for leaked devices. With quirk Q4, devices of a
failed admission leak: they stay in use and belong to no pod."""

AllocatedByResource = Mapping[ResourceName, AllocatedDevices]
"""Devices that are allocated to one container, by resource."""
AllocatedByContainer = Mapping[ContainerName, AllocatedByResource]
"""Devices that are allocated to one pod, by container and resource."""
Entry = tuple[PodUid, ContainerName, ResourceName, AllocatedDevices]
"""One container's devices of one resource, as in the checkpoint."""

_NOTHING: Mapping[ResourceName, AllocatedDevices] = MappingProxyType({})


@attrs.define(eq=False, repr=False)
class _Index:
    """Index of the devices in use of one resource, and of the pods that use these devices."""

    users: dict[DeviceId, tuple[PodUid, ...]] = attrs.field(factory=dict)
    """Pod UIDs by device ID: one UID for each allocation or reservation of the device. A device has
    several UIDs only if containers of one pod reuse the device, or if another program wrote the
    checkpoint."""
    device_index: DeviceIndex | None = None
    """The numbering of devices on which ``bits`` is based."""
    bits: int = 0
    """The set of devices in use."""

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
        # A list with other devices has a new numbering, so the set must be built again.
        if self.device_index is not device_index:
            self.device_index = device_index
            self.bits = device_index.bits(self.users)
        return self.bits


class Draft:
    """Draft of one pod's allocation: devices reserved by an admission in progress."""

    def __init__(self, pod: PodUid) -> None:
        self.pod = pod
        self.allocated: dict[ContainerName, dict[ResourceName, AllocatedDevices]] = {}
        """Devices for which Allocate has returned, by container and resource. ``Ledger.commit``
        adds them to the allocated devices."""
        self.reserved: dict[ResourceName, list[frozenset[DeviceId]]] = {}

    def __bool__(self) -> bool:
        """True if the draft has devices for which Allocate has returned."""
        return bool(self.allocated)

    def without_response(self) -> dict[ResourceName, set[DeviceId]]:
        """Return, by resource, the reserved devices for which Allocate has not returned yet."""
        found = {resource: set[DeviceId]().union(*ids) for resource, ids in self.reserved.items()}
        for by_resource in self.allocated.values():
            for resource, allocated in by_resource.items():
                found.get(resource, set()).difference_update(allocated.ids)
        return found


class Ledger:
    """Record of all allocated devices, by pod, and of the devices that admissions in progress have
    reserved.

    Allocations are replaced, never changed in place, so callers can keep the result of a query. Not
    thread-safe: callers must hold the device manager's lock.
    """

    def __init__(self, *, ignores_drafts: bool = False, keeps_requested: bool = False) -> None:
        """Create an empty ledger.

        With ``ignores_drafts``, devices that an admission in progress has reserved count as free as
        soon as devices of another pod are freed (quirk Q25). With ``keeps_requested``, a resource
        counts as in use once a pod has requested it, even if the pod gets no devices (quirk Q4).
        """
        self._pods: dict[PodUid, AllocatedByContainer] = {}
        self._index: dict[ResourceName, _Index] = {}
        self._leaked: list[Draft] = []
        self._requested: set[ResourceName] | None = set() if keeps_requested else None
        # Resources of entries without devices. Only checkpoints of other programs have such
        # entries.
        self._without_devices: frozenset[ResourceName] = frozenset()
        # Used only for Q25: drafts with reservations, and the reserved devices that count as free.
        self._open: list[Draft] | None = [] if ignores_drafts else None
        self._ignored: dict[ResourceName, set[DeviceId]] = {}

    # -- reading ---------------------------------------------------------------------

    def pods(self) -> Iterable[PodUid]:
        """Return the UIDs of the pods with allocated devices, in the order of their first
        allocation."""
        return self._pods.keys()

    def snapshot(self) -> Mapping[PodUid, AllocatedByContainer]:
        """Return all current allocations by pod UID. The call is cheap: only the outer dict is
        copied."""
        return dict(self._pods)

    def __contains__(self, pod: object) -> bool:
        """True if devices are allocated to the pod with this UID."""
        return pod in self._pods

    def pod(self, pod: PodUid) -> AllocatedByContainer:
        """Return the devices allocated to a pod, by container and resource."""
        return self._pods.get(pod, {})

    def container(self, pod: PodUid, container: ContainerName) -> AllocatedByResource:
        """Return the devices allocated to a container, by resource."""
        return self._pods.get(pod, {}).get(container, _NOTHING)

    def allocated(
        self, pod: PodUid, container: ContainerName, resource: ResourceName
    ) -> frozenset[DeviceId] | None:
        """Return the IDs of a container's devices of a resource (``containerDevices``, v1.32).

        Returns None if the resource was never allocated to the container. An empty set means an
        allocation of no devices.
        """
        entry = self.container(pod, container).get(resource)
        return None if entry is None else entry.ids

    def allocated_to_pod(self, pod: PodUid, resource: ResourceName) -> frozenset[DeviceId]:
        """Return the IDs of all devices of a resource that are allocated to a pod
        (``podDevices``, v1.32)."""
        ids: set[DeviceId] = set()
        for by_resource in self._pods.get(pod, {}).values():
            if resource in by_resource:
                ids |= by_resource[resource].ids
        return frozenset(ids)

    def is_in_use(self, resource: ResourceName) -> bool:
        """True if a device of the resource is in use, or a checkpoint contains an allocation
        of 0 devices of the resource. With quirk Q4, also True after a failed allocation."""
        index = self._index.get(resource)
        return (
            (index is not None and bool(index.users))
            or resource in self._without_devices
            or (self._requested is not None and resource in self._requested)
        )

    def count(self, resource: ResourceName) -> int:
        """Return the number of devices of a resource that are in use."""
        index = self._index.get(resource)
        return 0 if index is None else len(index.users)

    def in_use(self, resource: ResourceName, device_index: DeviceIndex) -> int:
        """Return the devices of a resource that are in use, as a bit set of their numbers in
        ``device_index``."""
        index = self._index.get(resource)
        if index is None:
            return 0
        bits = index.in_use(device_index)
        if self._ignored:
            bits &= ~device_index.bits(self._ignored.get(resource, ()))
        return bits

    def unlisted(self, resource: ResourceName, device_index: DeviceIndex) -> list[DeviceId]:
        """Return the sorted IDs of devices of a resource that are in use but not in
        ``device_index``."""
        index = self._index.get(resource)
        return [] if index is None else sorted(index.users.keys() - device_index.index.keys())

    def pods_using(self, resource: ResourceName, ids: Set[DeviceId]) -> dict[PodUid, set[DeviceId]]:
        """Return a dict from pod UID to the set of devices in ``ids`` that the pod uses.

        Only devices of ``resource`` are searched. Pods that use none of them are left out.
        """
        index = self._index.get(resource)
        found: dict[PodUid, set[DeviceId]] = {}
        if index is None:
            return found
        # Usually either few devices changed or few are in use: iterate over the smaller set.
        candidates = index.users.keys() & ids if len(ids) > len(index.users) else ids
        for id_ in candidates:
            # Devices that no pod uses have no entry. With quirk Q8, ``ids`` can also be the IDs of
            # another resource's devices.
            for pod in index.users.get(id_, ()):
                found.setdefault(pod, set()).add(id_)
        found.pop(LEAKED, None)
        return found

    def resources(self) -> Iterator[tuple[ResourceName, int]]:
        """Iterate over the resources with devices in use, sorted by name, as pairs of name and
        number of devices in use."""
        for resource in sorted(self._index):
            if count := len(self._index[resource].users):
                yield resource, count

    def leaked(self) -> Iterator[tuple[ResourceName, frozenset[DeviceId]]]:
        """Iterate over leaked devices, as pairs of resource and IDs. With quirk Q4, devices of a
        failed admission leak: they stay in use."""
        for draft in self._leaked:
            for resource, reservations in draft.reserved.items():
                for ids in reservations:
                    yield resource, ids

    # -- writing ---------------------------------------------------------------------

    def request(self, resource: ResourceName) -> None:
        """Record that an admission requests devices of a resource. With quirk Q4, the resource then
        counts as in use."""
        if self._requested is not None:
            self._requested.add(resource)

    def reserve(self, draft: Draft, resource: ResourceName, ids: frozenset[DeviceId]) -> None:
        """Reserve devices of a resource in a draft. Must be called before the plugin's Allocate."""
        draft.reserved.setdefault(resource, []).append(ids)
        self._index.setdefault(resource, _Index()).add(draft.pod, ids)
        if self._open is not None:
            self._open.append(draft)
            self._ignored.get(resource, set()).difference_update(ids)

    @staticmethod
    def record(
        draft: Draft, container: ContainerName, resource: ResourceName, allocated: AllocatedDevices
    ) -> None:
        """Add a container's reserved devices and the plugin's response to a draft."""
        draft.allocated.setdefault(container, {})[resource] = allocated

    def commit(self, draft: Draft) -> None:
        """Turn the devices of a draft into allocated devices, and close the draft."""
        if draft.allocated:
            pod = dict(self._pods.get(draft.pod, {}))
            for container, by_resource in draft.allocated.items():
                pod[container] = {**pod.get(container, {}), **by_resource}
            self._pods[draft.pod] = pod
        # The index does not change: the reserved devices stay in use.
        self._close(draft)

    def drop(self, draft: Draft) -> None:
        """Free the devices that a draft has reserved, and close the draft. Do nothing if the draft
        is already closed."""
        for resource, reservations in draft.reserved.items():
            for ids in reservations:
                self._index[resource].remove(draft.pod, ids)
        self._close(draft)

    def _close(self, draft: Draft) -> None:
        draft.reserved = {}
        if self._open is not None:
            self._open = [each for each in self._open if each is not draft]

    def leak(self, draft: Draft) -> None:
        """Close a draft, but keep in use the devices for which Allocate has not returned
        (quirk Q4). Free the draft's other devices."""
        leaked = Draft(LEAKED)
        for resource, ids in draft.without_response().items():
            self.reserve(leaked, resource, frozenset(ids))
        self._leaked.append(leaked)
        self.drop(draft)

    def count_committed_only(self) -> None:
        """With quirk Q4 or Q25, count only allocated devices as in use; otherwise do nothing.

        The kubelet does this with ``m.allocatedDevices = m.podDevices.devices()``. Leaked devices
        become free (Q4). Devices that are only reserved, by an admission in progress, count as
        free (Q25).
        """
        if self._requested:
            self._requested.clear()
        leaked, self._leaked = self._leaked, []
        for draft in leaked:
            self.drop(draft)
        if self._open is not None:
            self._ignored = {}
            for draft in self._open:
                # Devices whose Allocate has returned have an entry in the kubelet by now.
                for resource, ids in draft.without_response().items():
                    self._ignored.setdefault(resource, set()).update(ids)

    def retract(self, draft: Draft) -> None:
        """Undo the commit of a draft, because the checkpoint could not be written."""
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
        """Undo the draft of an interrupted admission. Return True if devices of the draft were
        already allocated.

        ``others`` are the drafts of all other admissions in progress. Their devices stay in use.
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
        # The interrupt may have stopped an update of the indexes halfway, so they are not updated
        # but built again.
        self._close(draft)
        self.recount(others)
        return had_entries

    def recount(self, drafts: Iterable[Draft] = ()) -> None:
        """Compute from scratch which devices are in use: allocated devices, devices reserved in
        ``drafts``, and devices that a failed admission leaked (quirk Q4)."""
        self._index = {}
        for pod, resource, ids in self._all_in_use(drafts):
            self._index.setdefault(resource, _Index()).add(pod, ids)

    def enter(self, draft: Draft) -> None:
        """Allocate the devices of a draft to its pod, although the pod is rejected (quirk Q31).

        The caller must first free the reserved devices of the draft with ``drop``.
        """
        self.restore(
            (draft.pod, container, resource, allocated)
            for container, by_resource in draft.allocated.items()
            for resource, allocated in by_resource.items()
        )

    def restore(self, entries: Iterable[Entry]) -> None:
        """Add allocated devices, from a checkpoint for example.

        If several entries have the same pod, container and resource, the last entry counts.
        """
        # Each pod is copied only once: a checkpoint can have any number of entries for a pod.
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
        """Free all devices of a pod; return the freed devices by container and resource."""
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
        """Raise InternalError if the counted devices in use are not exactly the allocated devices
        and the devices reserved in ``drafts``."""
        counted: dict[ResourceName, dict[DeviceId, list[PodUid]]] = {}
        for pod, resource, ids in self._all_in_use(drafts):
            users = counted.setdefault(resource, {})
            for id_ in ids:
                users.setdefault(id_, []).append(pod)
        for resource, index in self._index.items():
            recounted = counted.pop(resource, {})
            indexed = {id_: sorted(pods) for id_, pods in index.users.items()}
            if indexed != {id_: sorted(pods) for id_, pods in recounted.items()}:
                raise InternalError(
                    f"inconsistent ledger: the indexed users of {resource} differ from the entries"
                )
            device_index = index.device_index
            if device_index is not None and index.bits != device_index.bits(index.users):
                raise InternalError(
                    f"inconsistent ledger: the set in use of {resource} differs from its users"
                )
        if counted:
            raise InternalError(f"inconsistent ledger: no index for {', '.join(sorted(counted))}")

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
