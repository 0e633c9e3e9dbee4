"""Who holds which device, in what part, and what pools are charged for it.

The ledger knows devices by key, not by number, and never asks whether they are still
published: a pool that is published anew neither frees nor moves anything. Admin access is
recorded with its claim and holds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, Device, DeviceKey, Inventory, PoolKey
from devicemanager.claims.core.model import Allocation, Grant, LedgerState, Mode


class LedgerError(Exception):
    """An allocation contradicts what is held. Nothing was changed."""


@attrs.define
class _Holding:
    """One device in use."""

    charge: Amounts
    """Recorded when the first holder came; it stays whatever is published later."""
    grants: dict[str, Grant] = attrs.field(factory=dict)
    """By claim: one exclusive grant, or shared ones."""
    given: dict[str, int] = attrs.field(factory=dict)
    """Resource to what the shared grants have of it; no zeros. The sum of ``grants``."""

    def add(self, claim: str, grant: Grant) -> None:
        self.grants[claim] = grant
        for name, amount in grant.amounts.items():
            self.given[name] = self.given.get(name, 0) + amount

    def remove(self, claim: str) -> None:
        for name, amount in self.grants.pop(claim).amounts.items():
            rest = self.given[name] - amount
            if rest:
                self.given[name] = rest
            else:
                del self.given[name]


class Ledger:
    """Holdings of devices, by claim and by device. Not safe for threads."""

    def __init__(self) -> None:
        self._allocations: dict[str, Allocation] = {}
        self._holdings: dict[DeviceKey, _Holding] = {}
        self._spent: dict[PoolKey, Counter[str]] = {}
        """The sum of the charges, by pool and resource; no zeros."""

    def allocation(self, claim: str) -> Allocation | None:
        """What the claim has; None if it is not allocated."""
        return self._allocations.get(claim)

    def claims(self) -> tuple[str, ...]:
        """The allocated claims, sorted."""
        return tuple(sorted(self._allocations))

    def in_use(self) -> Iterable[DeviceKey]:
        """The devices that have a holder, in no particular order."""
        return self._holdings.keys()

    def holders(self, device: DeviceKey) -> tuple[str, ...]:
        """The claims that hold the device or part of it, sorted."""
        holding = self._holdings.get(device)
        return tuple(sorted(holding.grants)) if holding else ()

    def is_whole(self, device: DeviceKey) -> bool:
        """Is the device held by one claim alone (and not in shares)?"""
        holding = self._holdings.get(device)
        return holding is not None and _is_whole(holding)

    def given(self, device: DeviceKey) -> Amounts:
        """What claims have of each resource of the device, in nano units."""
        holding = self._holdings.get(device)
        return holding.given if holding else {}

    def spent(self, pool: PoolKey) -> Amounts:
        """What the pool's devices in use are charged together, in nano units."""
        return self._spent.get(pool, {})

    def commit(self, inventory: Inventory, allocations: Iterable[Allocation]) -> None:
        """Record allocations that ``solve`` gave for this inventory, all or none.

        Raises ``LedgerError`` if one contradicts what is held, a capacity or a budget.
        """
        new = tuple(allocations)
        self._check_claims(new)
        by_device = _by_device(new)
        devices = {key: _published(inventory, key) for key in by_device}
        for key, grants in by_device.items():
            self._check_device(devices[key], grants)
        fresh = [device for key, device in devices.items() if key not in self._holdings]
        self._check_budgets(inventory, fresh)
        for device in fresh:
            self._charge(device.key, device.charge)
        self._record(new, by_device)

    def release(self, *claims: str) -> tuple[str, ...]:
        """Free all that the claims hold; gives those that held something. Idempotent.

        Also how a commit is taken back: it restores the ledger to what it was before.
        """
        released = []
        for claim in claims:
            allocation = self._allocations.pop(claim, None)
            if allocation is None:
                continue
            released.append(claim)
            for grant in allocation.grants:
                if grant.mode is not Mode.ADMIN:
                    self._let_go(claim, grant.device)
        return tuple(released)

    def state(self) -> LedgerState:
        """All that ``restore`` needs, sorted."""
        allocations = tuple(self._allocations[claim] for claim in sorted(self._allocations))
        charges = {key: dict(self._holdings[key].charge) for key in sorted(self._holdings)}
        return LedgerState(allocations, charges)

    @classmethod
    def restore(cls, state: LedgerState) -> Ledger:
        """The ledger that had this state. Raises ``LedgerError`` if no ledger can have had it."""
        ledger = cls()
        ledger._check_claims(state.allocations)
        by_device = _by_device(state.allocations)
        for key, grants in by_device.items():
            _check_together(key, [grant for _, grant in grants])
        if by_device.keys() != state.charges.keys():
            odd = min(by_device.keys() ^ state.charges.keys())
            raise LedgerError(f"device {_name(odd)}: the charges do not fit the holdings")
        for key, charge in state.charges.items():
            ledger._charge(key, charge)
        ledger._record(state.allocations, by_device)
        return ledger

    def self_check(self) -> None:
        """Compare every index with a recount. For tests; raises ``LedgerError``."""
        again = Ledger.restore(self.state())
        if (again._holdings, again._spent) != (self._holdings, self._spent):
            raise LedgerError("an index of the ledger differs from a recount")

    def _check_claims(self, allocations: Iterable[Allocation]) -> None:
        seen = set(self._allocations)
        for allocation in allocations:
            if allocation.claim in seen:
                raise LedgerError(f"claim {allocation.claim} is allocated already")
            seen.add(allocation.claim)
            devices = [grant.device for grant in allocation.grants]
            if len(set(devices)) != len(devices):
                raise LedgerError(f"claim {allocation.claim} has a device twice")

    def _check_device(self, device: Device, grants: list[tuple[str, Grant]]) -> None:
        held = self._holdings.get(device.key)
        before = list(held.grants.values()) if held else []
        _check_together(device.key, before + [grant for _, grant in grants])
        given = Counter(held.given if held else {})
        asked: Counter[str] = Counter()
        for _, grant in grants:
            asked.update(grant.amounts)
        for name, amount in asked.items():
            share = device.shares.get(name)
            if share is None or given[name] + amount > share.capacity:
                raise LedgerError(f"device {_name(device.key)} has too little {name} left")

    def _check_budgets(self, inventory: Inventory, fresh: Iterable[Device]) -> None:
        """Budgets bind the devices that come into use; what is charged already stays."""
        more: dict[PoolKey, Counter[str]] = {}
        for device in fresh:
            more.setdefault(device.key.pool_key, Counter()).update(device.charge)
        budgets = {pool.key: pool.budget for pool in inventory.pools if pool.key in more}
        for key, charge in more.items():
            spent = self.spent(key)
            for name, amount in charge.items():
                if amount and spent.get(name, 0) + amount > budgets[key].get(name, 0):
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
                self._holdings[key].add(claim, grant)

    def _charge(self, key: DeviceKey, charge: Amounts) -> None:
        recorded = {name: amount for name, amount in charge.items() if amount}
        self._holdings[key] = _Holding(recorded)
        if recorded:
            self._spent.setdefault(key.pool_key, Counter()).update(recorded)

    def _let_go(self, claim: str, key: DeviceKey) -> None:
        holding = self._holdings[key]
        holding.remove(claim)
        if holding.grants:
            return
        del self._holdings[key]
        spent = self._spent.get(key.pool_key)
        if spent is None:
            return
        spent.subtract(holding.charge)
        for name in holding.charge:
            if not spent[name]:
                del spent[name]
        if not spent:
            del self._spent[key.pool_key]


def _is_whole(holding: _Holding) -> bool:
    return any(grant.mode is Mode.EXCLUSIVE for grant in holding.grants.values())


def _by_device(allocations: Iterable[Allocation]) -> dict[DeviceKey, list[tuple[str, Grant]]]:
    """The grants that hold something, with their claims."""
    found: dict[DeviceKey, list[tuple[str, Grant]]] = {}
    for allocation in allocations:
        for grant in allocation.grants:
            if grant.mode is not Mode.ADMIN:
                found.setdefault(grant.device, []).append((allocation.claim, grant))
    return found


def _published(inventory: Inventory, key: DeviceKey) -> Device:
    number = inventory.index.get(key)
    if number is None:
        raise LedgerError(f"device {_name(key)} is not published")
    return inventory.devices[number]


def _check_together(key: DeviceKey, grants: list[Grant]) -> None:
    if len(grants) > 1 and any(grant.mode is Mode.EXCLUSIVE for grant in grants):
        raise LedgerError(f"device {_name(key)} is held by somebody already")


def _name(key: DeviceKey) -> str:
    return f"{key.pool}/{key.name}"
