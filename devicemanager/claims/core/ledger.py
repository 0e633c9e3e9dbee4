"""Ledger of claims: the source of truth for allocations, devices in use and charges to pools.

In:  allocations from ``solve``, releases, or the state of an earlier ledger.
Out: the allocation of each claim, the devices in use, and the charges to each pool.

The docstring of the package ``claims.core`` defines charge, budget and all other terms.
"""

# Two decisions shape this module:
#
# * The ledger identifies devices by key, not by number, and never checks if they are still
#   published. So republishing or removing a pool cannot release or move a device, and a device
#   that is published again under its key still belongs to its claims.
# * A device's charge is recorded when it is allocated to its first claim, and stays until its
#   last claim is released, even if its pool is republished in between. Otherwise a release could
#   subtract more or less than was charged.
#
# Admin access is recorded with its claim but uses no device and is not charged.
#
# ``commit`` checks everything before it changes anything, although ``solve`` has already
# decided: the caller may have changed the ledger in between.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, Device, DeviceKey, Inventory, PoolKey
from devicemanager.claims.core.model import AccessMode, Allocation, Grant, LedgerState


class LedgerError(Exception):
    """Error for a contradiction in a ledger, or between an allocation and a ledger. The ledger is
    unchanged."""


@attrs.frozen
class _DeviceUse:
    """Claims and charge of one device in use. Immutable, so that ledgers can share it."""

    charge: Amounts
    """Charge of the device when it was allocated to its first claim."""
    grants: Mapping[str, Grant] = attrs.field(factory=dict)
    """Grant of each claim that uses the device: one exclusive grant, or only shared grants."""
    allocated: Amounts = attrs.field(factory=dict)
    """For each resource, the amount that is allocated to claims, in nano-units; 0 is omitted."""

    def plus(self, claim: str, grant: Grant) -> _DeviceUse:
        allocated = Counter(self.allocated)
        allocated.update(grant.amounts)
        return _DeviceUse(self.charge, {**self.grants, claim: grant}, dict(allocated))

    def without(self, claim: str) -> _DeviceUse:
        allocated = Counter(self.allocated)
        allocated.subtract(self.grants[claim].amounts)
        grants = {name: grant for name, grant in self.grants.items() if name != claim}
        return _DeviceUse(self.charge, grants, {n: a for n, a in allocated.items() if a})


class Ledger:
    """Ledger of allocations, by claim and by device. Not thread-safe."""

    def __init__(self) -> None:
        # Grows with every commit and every release of an allocated claim.
        self.version = 0
        self._allocations: dict[str, Allocation] = {}
        # Derived from the allocations and the recorded charges; ``self_check`` compares them.
        self._in_use: dict[DeviceKey, _DeviceUse] = {}
        # The sum of the charges, by pool and resource; no zeros. Mappings are replaced, never
        # changed, because copies of the ledger share them.
        self._charged: dict[PoolKey, Mapping[str, int]] = {}

    def copy(self) -> Ledger:
        """Return an independent ledger with the same allocations, charges and version."""
        found = Ledger()
        found.version = self.version
        found._allocations = self._allocations.copy()
        found._in_use = self._in_use.copy()
        found._charged = self._charged.copy()
        return found

    def allocation(self, claim: str) -> Allocation | None:
        """Return the allocation of a claim; None if the claim is not allocated."""
        return self._allocations.get(claim)

    def claims(self) -> tuple[str, ...]:
        """Return the names of the allocated claims, sorted."""
        return tuple(sorted(self._allocations))

    def in_use(self) -> Iterable[DeviceKey]:
        """Return the keys of the devices in use, in no particular order."""
        return self._in_use.keys()

    def claims_using(self, device: DeviceKey) -> tuple[str, ...]:
        """Return the names of the claims that use the device or a share of it, sorted."""
        use = self._in_use.get(device)
        return tuple(sorted(use.grants)) if use else ()

    def is_exclusive(self, device: DeviceKey) -> bool:
        """True if a claim uses the device exclusively."""
        use = self._in_use.get(device)
        return use is not None and _any_exclusive(use.grants.values())

    def allocated_amounts(self, device: DeviceKey) -> Amounts:
        """Return how much of each resource of the device is allocated to claims.

        Amounts are in nano-units. The result is empty for a device that is not shared.
        """
        use = self._in_use.get(device)
        return use.allocated if use else {}

    def charged(self, pool: PoolKey) -> Amounts:
        """Return the amount of each budget that the pool's devices in use consume, in nano-units.

        Budgets without consumption are omitted.
        """
        return self._charged.get(pool, {})

    def commit(self, inventory: Inventory, allocations: Iterable[Allocation]) -> None:
        """Record allocations that ``solve`` found for this inventory, all or none.

        Raises LedgerError if an allocation contradicts another one, exceeds a capacity or budget,
        or contains a device that the inventory does not have.
        """
        new = tuple(allocations)
        self._check_claims(new)
        by_device = _by_device(new)
        devices = {key: _published(inventory, key) for key in by_device}
        for key, grants in by_device.items():
            self._check_device(devices[key], grants)
        fresh = [device for key, device in devices.items() if key not in self._in_use]
        self._check_budgets(inventory, fresh)
        # The lines below cannot fail, so all allocations are recorded or none.
        for device in fresh:
            self._charge(device.key, device.charge)
        self._record(new, by_device)
        self.version += 1

    def release(self, *claims: str) -> tuple[str, ...]:
        """Release claims, and ignore claims that are not allocated. Return the released claims.

        Releasing claims directly after their ``commit`` restores the previous ledger exactly.
        """
        released = []
        for claim in claims:
            allocation = self._allocations.pop(claim, None)
            if allocation is None:
                continue
            released.append(claim)
            for grant in allocation.grants:
                if grant.mode is not AccessMode.ADMIN:
                    self._release_device(claim, grant.device)
        self.version += bool(released)
        return tuple(released)

    def state(self) -> LedgerState:
        """Return the sorted allocations and charges, from which ``restore`` creates a ledger."""
        allocations = tuple(self._allocations[claim] for claim in sorted(self._allocations))
        charges = {key: dict(self._in_use[key].charge) for key in sorted(self._in_use)}
        return LedgerState(allocations, charges)

    @classmethod
    def restore(cls, state: LedgerState) -> Ledger:
        """Return a ledger with a stored state. Raises LedgerError for a contradictory state."""
        ledger = cls()
        ledger._check_claims(state.allocations)
        by_device = _by_device(state.allocations)
        for key, grants in by_device.items():
            _check_together(key, [grant for _, grant in grants])
        if by_device.keys() != state.charges.keys():
            odd = min(by_device.keys() ^ state.charges.keys())
            raise LedgerError(
                f"device {_name(odd)} must have both an allocation and a charge, or neither"
            )
        for key, charge in state.charges.items():
            ledger._charge(key, charge)
        ledger._record(state.allocations, by_device)
        return ledger

    def self_check(self) -> None:
        """Raise LedgerError if the devices in use or the charges do not match the allocations."""
        again = Ledger.restore(self.state())
        if (again._in_use, again._charged) != (self._in_use, self._charged):
            raise LedgerError(
                "devices in use or charges differ from those of the ledger's allocations"
            )

    def _check_claims(self, allocations: Iterable[Allocation]) -> None:
        seen = set(self._allocations)
        for allocation in allocations:
            if allocation.claim in seen:
                raise LedgerError(f"claim {allocation.claim} is already allocated")
            seen.add(allocation.claim)
            devices = [grant.device for grant in allocation.grants]
            if len(set(devices)) != len(devices):
                raise LedgerError(f"claim {allocation.claim} names a device twice")

    def _check_device(self, device: Device, grants: list[tuple[str, Grant]]) -> None:
        use = self._in_use.get(device.key)
        before = list(use.grants.values()) if use else []
        _check_together(device.key, before + [grant for _, grant in grants])
        allocated = Counter(use.allocated if use else {})
        requested: Counter[str] = Counter()
        for _, grant in grants:
            requested.update(grant.amounts)
        for name, amount in requested.items():
            capacity = device.capacity.get(name)
            if capacity is None or allocated[name] + amount > capacity.total:
                raise LedgerError(f"device {_name(device.key)} has too little {name} left")

    def _check_budgets(self, inventory: Inventory, fresh: Iterable[Device]) -> None:
        # Only newly used devices are checked: devices in use keep their charge even if the pool
        # was republished with a smaller budget.
        more: dict[PoolKey, Counter[str]] = {}
        for device in fresh:
            more.setdefault(device.key.pool_key, Counter()).update(device.charge)
        budgets = {pool.key: pool.budget for pool in inventory.pools if pool.key in more}
        for key, charge in more.items():
            charged = self.charged(key)
            for name, amount in charge.items():
                if amount and charged.get(name, 0) + amount > budgets[key].get(name, 0):
                    raise LedgerError(f"pool {key.name} has too little {name} left")

    def _record(
        self,
        allocations: Iterable[Allocation],
        by_device: Mapping[DeviceKey, list[tuple[str, Grant]]],
    ) -> None:
        for allocation in allocations:
            self._allocations[allocation.claim] = allocation
        for key, grants in by_device.items():
            for claim, grant in grants:
                self._in_use[key] = self._in_use[key].plus(claim, grant)

    def _charge(self, key: DeviceKey, charge: Amounts) -> None:
        recorded = {name: amount for name, amount in charge.items() if amount}
        self._in_use[key] = _DeviceUse(recorded)
        if recorded:
            charged = Counter(self._charged.get(key.pool_key, {}))
            charged.update(recorded)
            self._charged[key.pool_key] = dict(charged)

    def _release_device(self, claim: str, key: DeviceKey) -> None:
        use = self._in_use[key].without(claim)
        if use.grants:
            self._in_use[key] = use
            return
        del self._in_use[key]
        if not use.charge:
            return
        charged = Counter(self._charged.pop(key.pool_key))
        charged.subtract(use.charge)
        # Zeros are removed, so that after a release the ledger equals the one before the commit.
        if left := {name: amount for name, amount in charged.items() if amount}:
            self._charged[key.pool_key] = left


def _any_exclusive(grants: Iterable[Grant]) -> bool:
    return any(grant.mode is AccessMode.EXCLUSIVE for grant in grants)


def _by_device(allocations: Iterable[Allocation]) -> dict[DeviceKey, list[tuple[str, Grant]]]:
    """Return the claims and their grants by device. Admin access is omitted, because it uses no
    device."""
    found: dict[DeviceKey, list[tuple[str, Grant]]] = {}
    for allocation in allocations:
        for grant in allocation.grants:
            if grant.mode is not AccessMode.ADMIN:
                found.setdefault(grant.device, []).append((allocation.claim, grant))
    return found


def _published(inventory: Inventory, key: DeviceKey) -> Device:
    number = inventory.index.get(key)
    if number is None:
        raise LedgerError(f"device {_name(key)} is not published")
    return inventory.devices[number]


def _check_together(key: DeviceKey, grants: list[Grant]) -> None:
    if len(grants) > 1 and _any_exclusive(grants):
        raise LedgerError(f"device {_name(key)} is already allocated")


def _name(key: DeviceKey) -> str:
    return f"{key.pool}/{key.name}"
