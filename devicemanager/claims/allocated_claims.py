"""What claims hold on a node, and for whom: everything that the state file mirrors.

Without lock, files and threads; ``ClaimManager`` has those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Allocation, Limits
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.reservations import Reservations
from devicemanager.claims.statefile import ClaimRecord, ClaimsState
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.validate import device_status_faults

Gone = Mapping[str, tuple[DeviceKey, ...]]
"""By claim: devices that it holds and that no pool offers any more."""


@attrs.frozen
class ClaimView:
    """One claim as of one moment."""

    claim: api.DeviceClaim
    allocation: Allocation | None = None
    """What it holds; None if it is not allocated."""
    users: Mapping[str, str] = attrs.field(factory=dict)
    """The pods that use it: UID to name."""
    is_deleted: bool = False
    """Whether it goes as soon as nobody uses it any more."""
    gone: tuple[DeviceKey, ...] = ()
    """Devices that it holds and that no pool offers any more: unhealthy."""

    @property
    def phase(self) -> str:
        """``Pending``, ``Allocated`` or ``Reserved``."""
        if self.allocation is None:
            return "Pending"
        return "Reserved" if self.users else "Allocated"


@attrs.frozen
class Released:
    """A claim that holds nothing any more."""

    claim: api.DeviceClaim
    prepared: tuple[DeviceKey, ...] = ()
    """The devices that drivers had prepared for it."""


class Holdings:
    """Allocated claims, their users, and what drivers prepared."""

    def __init__(
        self, store: ObjectStore, node: str, limits: Limits, admin_namespaces: frozenset[str] | None
    ) -> None:
        self._store = store
        self._node = node
        self._limits = limits
        self._admin_namespaces = admin_namespaces
        self.version = 0
        """Grows with every change."""
        self.pod_versions: dict[str, int] = {}
        """The version at which a pod's claims last changed."""
        self._released: list[Released] = []
        self.take_over(ClaimsState())

    # -- the state file ------------------------------------------------------------------

    def take_over(self, state: ClaimsState) -> None:
        """Forget everything, and go on from a state. Raises LedgerError, and forgets nothing,
        for one that cannot have been."""
        self.allocator = Allocator(
            self._store,
            ledger=Ledger.restore(state.ledger()),
            allocated=[record.claim for record in state.records],
            limits=self._limits,
            admin_namespaces=self._admin_namespaces,
        )
        self.reservations = Reservations()
        self.prepared = {record.claim.id: dict(record.prepared) for record in state.records}
        self._deleted = {record.claim.id for record in state.records if record.is_deleted}
        self._new: dict[str, tuple[str, ...]] = {}
        """Claims that were allocated for a pod whose admission is under way."""
        for record in state.records:
            for uid, name in record.users.items():
                self.reservations.reserve(record.claim.id, uid, name)
        self._records: dict[str, ClaimRecord] = {}
        """What was told of claims that have not changed since."""
        self.is_sources_ready = not self.reservations.pods()
        self.changed(*self.reservations.pods())

    def state(self) -> ClaimsState:
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

    def changed(self, *pods: str) -> None:
        """Something that others show is different now; for these pods, too."""
        self.version += 1
        for pod in pods:
            self.pod_versions[pod] = self.version

    def reserve(self, uid: str, name: str, claims: Sequence[str]) -> None:
        """Allocate what is not allocated, all or none, and reserve all for a pod. Raises
        ClaimsError."""
        for claim in claims:
            if claim in self._deleted and uid not in self.reservations.users(claim):
                raise ClaimsError(f'DeviceClaim "{claim}" is being deleted')
        new = self.allocator.allocate(claims, self._node)
        if new:
            self._new[uid] = new
        for claim in claims:
            self.reservations.reserve(claim, uid, name)
            self._note_users(claim)
        self.changed(uid)

    def new_for(self, pod: str) -> tuple[str, ...]:
        """What was allocated for a pod whose admission is under way."""
        return self._new.get(pod, ())

    def admitted(self, pod: str) -> None:
        """The pod's admission is over: it keeps its claims."""
        self._new.pop(pod, None)

    def leave(self, pods: Iterable[str], also_allocated_before: bool) -> tuple[str, ...]:
        """Pods use nothing any more; gives the claims that they used. Those without another
        user are free; without ``also_allocated_before`` only if they were allocated in an
        admission that is under way."""
        uids = tuple(pods)
        new = {claim for pod in uids for claim in self._new.pop(pod, ())}
        left = self.reservations.leave(uids)
        for claim in left:
            self._note_users(claim)
            ends = also_allocated_before or claim in new or claim in self._deleted
            if ends and not self.reservations.users(claim):
                self.free(claim)
        self.changed(*uids)
        return left

    def free(self, *claims: str) -> None:
        """Release claims that nobody uses; ``take_released`` tells."""
        for claim in claims:
            if self.allocator.is_allocated(claim) and not self.reservations.users(claim):
                found = self.allocator.claim(claim)
                self._released.append(Released(found, tuple(self.prepared.pop(claim, {}))))
                self.allocator.release(claim)
                self._deleted.discard(claim)
                self._records.pop(claim, None)
        self.changed()

    def take_released(self) -> list[Released]:
        """What was released since the last call."""
        released, self._released = self._released, []
        return released

    def withdraw(self, claim: str) -> bool:
        """A claim's object is deleted; the claim goes when its last user does. False if there
        is none."""
        is_allocated = self.allocator.is_allocated(claim)
        was_there = self._store.withdraw_claim(claim)
        was_there |= is_allocated and claim not in self._deleted
        if is_allocated:
            self._deleted.add(claim)
            self._records.pop(claim, None)
        self.free(claim)
        return was_there

    def note_prepared(self, pod: str, claim: str, ids: Mapping[DeviceKey, tuple[str, ...]]) -> bool:
        """Devices are prepared; False if the pod has let go of the claim meanwhile."""
        users = self.reservations.users(claim)
        if pod not in users:
            return False
        self.prepared.setdefault(claim, {}).update(ids)
        self._records.pop(claim, None)
        self.changed(*users)
        return True

    def report(self, driver: str, claim: str, statuses: Sequence[api.DeviceStatus]) -> None:
        """What a driver says about its devices of a claim takes the place of all that it said of
        them before. Raises ClaimsError, and changes nothing, for what it cannot speak of."""
        found = self.allocator.claim(claim)
        mine = {key[1:] for key in self.devices(claim) if key.driver == driver}
        for status in statuses:
            for fault in device_status_faults(status, found.status.allocations):
                raise ClaimsError(f'DeviceClaim "{claim}": status.deviceStatuses: {fault}')
            if _place(status) not in mine:
                named = "/".join(_place(status))
                raise ClaimsError(f'DeviceClaim "{claim}": {named} is no device of {driver}')
        entries = {_place(s): s for s in found.status.device_statuses if _place(s) not in mine}
        entries.update((_place(status), status) for status in statuses)
        ordered = tuple([entries[place] for place in sorted(entries)])
        if self.allocator.is_allocated(claim):
            self.allocator.set_status(claim, device_statuses=ordered)
        self._records.pop(claim, None)
        self.changed()

    def _note_users(self, claim: str) -> None:
        self._records.pop(claim, None)
        if self.allocator.is_allocated(claim):
            self.allocator.set_status(claim, pod_names=self.reservations.names(claim))

    # -- reading -------------------------------------------------------------------------

    @property
    def is_unused(self) -> bool:
        """Whether nobody ever used structured claims here."""
        return self._store.is_empty and not self.allocator.ledger.claims()

    def devices(self, claim: str) -> tuple[DeviceKey, ...]:
        """What a claim holds, in the order of its status."""
        allocation = self.allocator.ledger.allocation(claim)
        return tuple([grant.device for grant in allocation.grants]) if allocation else ()

    def gone(self) -> Gone:
        # Not by an inventory: one would be made for each of many pools that are published.
        offered: dict[str, frozenset[DeviceKey]] = {}
        found = {}
        for claim in self.allocator.ledger.claims():
            held = self.devices(claim)
            for pool in {key.pool for key in held} - offered.keys():
                offered[pool] = self._offered(pool)
            gone = tuple([key for key in held if key not in offered[key.pool]])
            if gone:
                found[claim] = gone
        return found

    def _offered(self, name: str) -> frozenset[DeviceKey]:
        """The devices of a pool that this node can use."""
        pool = self._store.pools.get(name)
        if pool is None or pool.node_name not in ("", self._node):
            return frozenset()
        return frozenset(DeviceKey(pool.driver, name, device.name) for device in pool.devices)

    def view(self, claim: str) -> ClaimView:
        """One claim; raises ClaimsError if there is none."""
        found = self.allocator.claim(claim)
        return self._view(found, self.gone())

    def views(self) -> tuple[ClaimView, ...]:
        """All claims, by name."""
        gone, claims = self.gone(), self.allocator.claims
        return tuple([self._view(claim, gone) for _, claim in sorted(claims.items())])

    def _view(self, claim: api.DeviceClaim, gone: Gone) -> ClaimView:
        name = claim.id
        return ClaimView(
            claim,
            self.allocator.ledger.allocation(name),
            dict(self.reservations.users(name)),
            name in self._deleted,
            gone.get(name, ()),
        )


def _place(status: api.DeviceStatus) -> tuple[str, str]:
    return status.device_pool_name, status.device_name
