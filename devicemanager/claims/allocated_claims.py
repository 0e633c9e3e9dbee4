"""Allocated claims of a node: their devices, the pods that use them, the prepared devices."""

# The state file stores everything in this module. The module uses no locks, files or threads, so
# that tests and replays use the same code; ``ClaimManager`` adds locks and the file.
#
# A claim goes through these states, as in ``resource.k8s.io``:
#
#     Pending -> Allocated -> Reserved (used by pods) -> Allocated -> released (Pending again)
#
# Three rules follow from these states:
#
# * A claim that pods use is never released. A deleted claim is released when its last pod ends,
#   and no other pod can start to use it.
# * A failed admission releases only the claims that it allocated. Claims that were allocated
#   before stay allocated, even without a pod.
# * Publishing pools never releases a device. A device that no pool offers any more stays
#   allocated to its claim and is reported as missing.

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Allocation
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.snapshot import Found
from devicemanager.claims.state_file import ClaimRecord, ClaimsState
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.validate import device_status_faults

MissingDevices = Mapping[str, tuple[DeviceKey, ...]]
"""Missing devices, by claim (``namespace/name``).

A missing device is allocated to the claim, but no pool offers it any more.
"""


@attrs.frozen
class ClaimView:
    """Immutable snapshot of one claim and its allocation."""

    claim: api.DeviceClaim
    allocation: Allocation | None = None
    """The claim's devices; None if the claim is not allocated."""
    users: Mapping[str, str] = attrs.field(factory=dict)
    """Pods that use the claim: their names, by pod UID."""
    is_deleted: bool = False
    """True if the claim is being deleted: it is removed when no pod uses it any more."""
    missing: tuple[DeviceKey, ...] = ()
    """Missing devices: they are allocated to the claim, but no pool offers them any more. They
    count as unhealthy."""

    @property
    def phase(self) -> str:
        """State of the claim: ``Pending``, ``Allocated`` or ``Reserved`` (used by pods)."""
        if self.allocation is None:
            return "Pending"
        return "Reserved" if self.users else "Allocated"


@attrs.frozen
class ReleasedClaim:
    """A released claim, with the devices that drivers must unprepare."""

    claim: api.DeviceClaim
    prepared: tuple[DeviceKey, ...] = ()
    """The devices that drivers had prepared for the claim."""


@attrs.define
class Reservations:
    """The pods that use each claim (``status.podNames``). Not thread-safe."""

    _users: dict[str, dict[str, str]] = attrs.field(factory=dict)
    """Pods of each claim: names by UID. A claim without pods has no entry."""
    _claims: dict[str, set[str]] = attrs.field(factory=dict)
    """Claims of each pod, by pod UID."""

    def users(self, claim: str) -> Mapping[str, str]:
        """Return the pods that use a claim: their names, by pod UID."""
        return self._users.get(claim, {})

    def names(self, claim: str) -> tuple[str, ...]:
        """Return the sorted names of the pods that use a claim, for ``status.podNames``."""
        return tuple(sorted(set(self.users(claim).values())))

    def claims(self, pod: str) -> tuple[str, ...]:
        """Return the claims that a pod (UID) uses, sorted."""
        return tuple(sorted(self._claims.get(pod, ())))

    def pods(self) -> frozenset[str]:
        """Return the UIDs of all pods that use claims."""
        return frozenset(self._claims)

    def reserve(self, claim: str, pod: str, name: str) -> bool:
        """Add a pod (UID, name) to the users of a claim. Return False if it was added before."""
        users = self._users.setdefault(claim, {})
        if users.get(pod) == name:
            return False
        users[pod] = name
        self._claims.setdefault(pod, set()).add(claim)
        return True

    def remove(self, pods: Iterable[str]) -> tuple[str, ...]:
        """Remove pods (UIDs) from all claims. Return the claims that the pods used, sorted."""
        used: set[str] = set()
        for pod in pods:
            for claim in self._claims.pop(pod, ()):
                used.add(claim)
                users = self._users[claim]
                del users[pod]
                if not users:
                    del self._users[claim]
        return tuple(sorted(used))

    def others(self, pods: Collection[str]) -> tuple[str, ...]:
        """Return the sorted UIDs of pods that use claims and are not in ``pods``."""
        return tuple(sorted(self._claims.keys() - set(pods)))


class AllocatedClaims:
    """Allocations, reservations and prepared devices of one node. Not thread-safe."""

    def __init__(
        self, store: ObjectStore, node: str, admin_namespaces: frozenset[str] | None
    ) -> None:
        self._store = store
        self._node = node
        self._admin_namespaces = admin_namespaces
        # Grows with every change.
        self.version = 0
        # By pod with claims: the version at which its claims last changed.
        self.pod_versions: dict[str, int] = {}
        self._released: list[ReleasedClaim] = []
        self.allocator = Allocator(store, admin_namespaces=admin_namespaces)
        self.restore(ClaimsState())

    # -- the state file ------------------------------------------------------------------

    def restore(self, state: ClaimsState) -> None:
        """Replace all allocations, reservations and prepared devices with those in ``state``.

        Raises LedgerError, and changes nothing, if allocations or charges in ``state`` contradict
        each other.
        """
        # First, because only this step can fail.
        ledger = Ledger.restore(state.ledger())
        # A running search must notice that its ledger was replaced.
        ledger.version = self.allocator.ledger.version + 1
        self.allocator = Allocator(
            self._store,
            ledger=ledger,
            allocated=[record.claim for record in state.records],
            admin_namespaces=self._admin_namespaces,
        )
        self.reservations = Reservations()
        self.prepared = {record.claim.id: dict(record.prepared) for record in state.records}
        self._deleted = {record.claim.id for record in state.records if record.is_deleted}
        # By pod whose admission is in progress: the claims that were allocated for it.
        self._new: dict[str, tuple[str, ...]] = {}
        for record in state.records:
            for uid, name in record.users.items():
                self.reservations.reserve(record.claim.id, uid, name)
        # Unchanged records are the same objects, so the state file need not render them again.
        self._records: dict[str, ClaimRecord] = {}
        self.is_sources_ready = not self.reservations.pods()
        self.pod_versions.clear()
        self.mark_changed(*self.reservations.pods())

    def state(self) -> ClaimsState:
        """Return the contents of the state file: all allocated claims, and the charge of each
        device.

        A charge contains the amounts that the device consumes of its pool's resources.
        """
        ledger = self.allocator.ledger.state()
        for allocation in ledger.allocations:
            if allocation.claim not in self._records:
                self._records[allocation.claim] = self._record(allocation)
        records = tuple([self._records[allocation.claim] for allocation in ledger.allocations])
        return ClaimsState(records, ledger.charges)

    def _record(self, allocation: Allocation) -> ClaimRecord:
        claim = allocation.claim
        return ClaimRecord(
            self.allocator.claim(claim),
            allocation,
            dict(self.reservations.users(claim)),
            claim in self._deleted,
            dict(self.prepared.get(claim, {})),
        )

    # -- changes -------------------------------------------------------------------------

    def mark_changed(self, *pods: str) -> None:
        """Increment ``version``. For each of the pods (UIDs), store the new version in
        ``pod_versions``."""
        self.version += 1
        for pod in pods:
            self.pod_versions[pod] = self.version

    def allocate(self, found: Found | None) -> tuple[str, ...]:
        """Allocate the devices in ``found``, the result of ``Snapshot.search``. Return the claims
        that got devices (``namespace/name``).

        If ``found`` is None, allocate nothing and return no claims.

        Raises TryAgain, and changes nothing, if the devices are not available any more or if a
        claim was changed during the search.
        """
        new = self.allocator.commit(found) if found is not None else ()
        self.mark_changed()
        return new

    def check_not_deleted(self, uid: str, claims: Iterable[str]) -> None:
        """Raise ClaimsError if a claim is being deleted and the pod (UID) does not use it yet."""
        # A pod that uses a deleted claim can be admitted again, after a restart of the kubelet.
        for claim in claims:
            if claim in self._deleted and uid not in self.reservations.users(claim):
                raise ClaimsError(f'DeviceClaim "{claim}" is being deleted: use another claim')

    def reserve(self, uid: str, name: str, claims: Sequence[str], found: Found | None) -> None:
        """Allocate the devices in ``found``, the result of ``Snapshot.search``. Then reserve
        ``claims`` for a pod (UID, name).

        ``found`` is None if all claims of the pod are allocated already.

        Raises ClaimsError, and changes nothing, in three cases: a claim is being deleted, a claim
        was changed during the search, or the devices are not available any more.
        """
        self.check_not_deleted(uid, claims)
        new = self.allocate(found)
        if new:
            self._new[uid] = new
        for claim in claims:
            self.reservations.reserve(claim, uid, name)
            self._update_pod_names(claim)
        self.mark_changed(uid)

    def newly_allocated(self, pod: str) -> tuple[str, ...]:
        """Return the claims that were allocated in the current admission of a pod (UID)."""
        return self._new.get(pod, ())

    def admitted(self, pod: str) -> None:
        """Record that a pod (UID) was admitted. ``newly_allocated`` then returns no claims for the
        pod."""
        self._new.pop(pod, None)

    def remove_pods(self, pods: Iterable[str], also_allocated_before: bool) -> tuple[str, ...]:
        """Remove pods (UIDs) from the users of all claims. Return the claims that these pods used.

        Also release those of the returned claims that no other pod uses. If
        ``also_allocated_before`` is False, release only two kinds of claims: those that are being
        deleted, and those that were allocated in the current admission of one of the pods.
        """
        uids = tuple(pods)
        new = {claim for pod in uids for claim in self._new.pop(pod, ())}
        used = self.reservations.remove(uids)
        for claim in used:
            self._update_pod_names(claim)
            is_releasable = also_allocated_before or claim in new or claim in self._deleted
            if is_releasable and not self.reservations.users(claim):
                self.release(claim)
        self.mark_changed()
        # Their versions would accumulate: most pods never have claims again.
        for uid in uids:
            self.pod_versions.pop(uid, None)
        return used

    def release(self, *claims: str) -> None:
        """Release the given claims, except claims that a pod uses.

        The next call of ``take_released`` returns the released claims.
        """
        for claim in claims:
            if self.allocator.is_allocated(claim) and not self.reservations.users(claim):
                found = self.allocator.claim(claim)
                self._released.append(ReleasedClaim(found, tuple(self.prepared.pop(claim, {}))))
                self.allocator.release(claim)
                self._deleted.discard(claim)
                self._records.pop(claim, None)
        self.mark_changed()

    def take_released(self) -> list[ReleasedClaim]:
        """Return the claims that were released since the last call of this method."""
        released, self._released = self._released, []
        return released

    def withdraw(self, claim: str) -> bool:
        """Delete a claim; if pods use it, delete it when the last of these pods ends.

        Return False if the claim does not exist or is already being deleted.
        """
        is_allocated = self.allocator.is_allocated(claim)
        existed = self._store.withdraw_claim(claim)
        existed |= is_allocated and claim not in self._deleted
        if is_allocated:
            self._deleted.add(claim)
            self._records.pop(claim, None)
        self.release(claim)
        return existed

    def record_prepared(
        self, pod: str, claim: str, ids: Mapping[DeviceKey, tuple[str, ...]]
    ) -> bool:
        """Record prepared devices and their CDI names.

        Return False, and record nothing, if the pod (UID) no longer uses the claim.
        """
        # Drivers are called without a lock: the pod may have ended in the meantime.
        users = self.reservations.users(claim)
        if pod not in users:
            return False
        self.prepared.setdefault(claim, {}).update(ids)
        self._records.pop(claim, None)
        self.mark_changed(*users)
        return True

    def report(self, driver: str, claim: str, statuses: Sequence[api.DeviceStatus]) -> None:
        """Replace a driver's entries in ``status.deviceStatuses`` of a claim.

        Raises ClaimsError, and changes nothing, for an invalid status, and for a device that is not
        allocated to the claim or belongs to another driver.
        """
        found = self.allocator.claim(claim)
        own = {key[1:] for key in self.devices(claim) if key.driver == driver}
        for status in statuses:
            for fault in device_status_faults(status, found.status.allocations):
                raise ClaimsError(f'DeviceClaim "{claim}": status.deviceStatuses: {fault}')
            if _place(status) not in own:
                named = "/".join(_place(status))
                raise ClaimsError(
                    f'DeviceClaim "{claim}": {named} is not a device of driver {driver} in this'
                    " claim: report only devices in status.allocations"
                )
        # Replace, never append: repeated reports must not make PodResources grow (k/k#140274).
        entries = {_place(s): s for s in found.status.device_statuses if _place(s) not in own}
        entries.update((_place(status), status) for status in statuses)
        ordered = tuple([entries[place] for place in sorted(entries)])
        if self.allocator.is_allocated(claim):
            self.allocator.set_status(claim, device_statuses=ordered)
        self._records.pop(claim, None)
        self.mark_changed()

    def _update_pod_names(self, claim: str) -> None:
        self._records.pop(claim, None)
        if self.allocator.is_allocated(claim):
            self.allocator.set_status(claim, pod_names=self.reservations.names(claim))

    # -- reading -------------------------------------------------------------------------

    @property
    def is_unused(self) -> bool:
        """True if the node has no pools, classes or claims."""
        return self._store.is_empty and not self.allocator.ledger.claims()

    def devices(self, claim: str) -> tuple[DeviceKey, ...]:
        """Return the devices of a claim, in the order of ``status.allocations``."""
        allocation = self.allocator.ledger.allocation(claim)
        return tuple([grant.device for grant in allocation.grants]) if allocation else ()

    def missing_devices(self, *claims: str) -> MissingDevices:
        """Return the missing devices of claims, by claim (``namespace/name``).

        A missing device is allocated to the claim, but no pool offers it any more. A claim without
        missing devices is not in the result. Without arguments, check all claims.
        """
        # Reads the pools, not the inventory: publishing many pools would rebuild the inventory
        # once for each pool.
        offered: dict[str, frozenset[DeviceKey]] = {}
        found = {}
        for claim in claims or self.allocator.ledger.claims():
            devices = self.devices(claim)
            for pool in {key.pool for key in devices} - offered.keys():
                offered[pool] = self._offered(pool)
            missing = tuple([key for key in devices if key not in offered[key.pool]])
            if missing:
                found[claim] = missing
        return found

    def _offered(self, name: str) -> frozenset[DeviceKey]:
        """Return the devices of pool ``name``; none if this node cannot use the pool."""
        pool = self._store.pools.get(name)
        if pool is None or pool.node_name not in ("", self._node):
            return frozenset()
        return frozenset(DeviceKey(pool.driver, name, device.name) for device in pool.devices)

    def view(self, claim: str) -> ClaimView:
        """Return a snapshot of one claim. Raises ClaimsError if the claim does not exist."""
        found = self.allocator.claim(claim)
        return self._view(found, self.missing_devices(claim))

    def views(self) -> tuple[ClaimView, ...]:
        """Return snapshots of all claims, sorted by ``namespace/name``."""
        missing, claims = self.missing_devices(), self.allocator.claims
        return tuple([self._view(claim, missing) for _, claim in sorted(claims.items())])

    def _view(self, claim: api.DeviceClaim, missing: MissingDevices) -> ClaimView:
        name = claim.id
        return ClaimView(
            claim,
            self.allocator.ledger.allocation(name),
            dict(self.reservations.users(name)),
            name in self._deleted,
            missing.get(name, ()),
        )


def _place(status: api.DeviceStatus) -> tuple[str, str]:
    return status.device_pool_name, status.device_name
