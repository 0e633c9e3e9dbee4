"""View of a ledger for one inventory: the available devices, and the headroom of the pools.

The docstring of the package ``claims.core`` defines headroom, charge and all other terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from devicemanager.claims.core.inventory import Amounts, DeviceKey, DeviceKind, Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import AccessMode, Alternative


@attrs.frozen(eq=False)
class LedgerView:
    """View of a ledger: sets of devices by availability, and the headroom of pools.

    The ledger must not change while a view is used.
    """

    inventory: Inventory
    in_use: int
    """The set of devices in use, which are already charged to their pools."""
    exclusive: int
    """The set of devices that claims use exclusively."""
    allocated: Mapping[int, Amounts]
    """For each shared device (by number), the allocated amount of each resource."""
    headroom: tuple[Mapping[str, int], ...]
    """For each pool, the unused amount of each budget; negative if overdrawn."""
    unaffordable: int
    """The set of unused devices whose charge exceeds the headroom of their pool."""
    _usable: dict[int, tuple[Alternative, int]] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, inventory: Inventory, ledger: Ledger) -> LedgerView:
        """Return the view of a ledger for the devices of an inventory."""
        in_use = exclusive = 0
        allocated = {}
        for key in ledger.in_use():
            number = inventory.index.get(key)
            if number is None:
                continue  # its pool was withdrawn, or belongs to another node
            in_use |= 1 << number
            if ledger.is_exclusive(key):
                exclusive |= 1 << number
            else:
                allocated[number] = ledger.allocated_amounts(key)
        pools = inventory.pools
        headroom = tuple([_headroom(pool.budget, ledger.charged(pool.key)) for pool in pools])
        unaffordable = _unaffordable(inventory, headroom, in_use)
        return cls(inventory, in_use, exclusive, allocated, headroom, unaffordable)

    def changed(
        self,
        taken: Iterable[DeviceKey],
        released: Iterable[DeviceKey],
        charges: Mapping[DeviceKey, Amounts],
    ) -> LedgerView:
        """Return a view that includes further exclusive allocations and releases.

        The ledger is not read again.

        ``taken``: devices that were allocated since this view was created. ``released``: devices
        that were released since then. ``charges``: the charge of each of these devices.
        """
        in_use, exclusive, headroom = self.in_use, self.exclusive, list(map(dict, self.headroom))
        pools = {pool.key: place for place, pool in enumerate(self.inventory.pools)}
        for key, sign in (*((key, -1) for key in taken), *((key, 1) for key in released)):
            number, charge = self.inventory.index.get(key), charges.get(key, {})
            if number is not None:
                in_use ^= 1 << number
                exclusive ^= 1 << number
            if charge:
                left = headroom[pools[key.pool_key]]
                for name, amount in charge.items():
                    left[name] += sign * amount
        return LedgerView(
            self.inventory,
            in_use,
            exclusive,
            self.allocated,
            tuple(headroom),
            _unaffordable(self.inventory, headroom, in_use),
        )

    def blocks(self, number: int, resource: str, allocated: Amounts | None = None) -> int:
        """Return the number of free blocks of a device's resource.

        ``allocated``: the allocated amounts of the device; None means those in the ledger.
        """
        capacity = self.inventory.kind_of[number].capacity.get(resource)
        if capacity is None:
            return 0
        used = self.allocated.get(number, {}) if allocated is None else allocated
        # A pool can be republished with less capacity than is already allocated.
        return max(0, (capacity.total - used.get(resource, 0)) // capacity.block)

    def usable(self, alternative: Alternative) -> int:
        """Return the set of devices that are eligible for an alternative and available.

        If the charge of an unused device exceeds the headroom of its pool, the device is available
        only to requests with admin access. The result is cached for each alternative.
        """
        found = self._usable.get(id(alternative))
        if found is None:
            # Store the alternative as well: its ID must not be reused while it is a key.
            found = self._usable[id(alternative)] = alternative, self._find_usable(alternative)
        return found[1]

    def _find_usable(self, alternative: Alternative) -> int:
        eligible = alternative.eligible
        if alternative.mode is AccessMode.ADMIN:
            return eligible
        if alternative.mode is AccessMode.EXCLUSIVE:
            return eligible & ~self.in_use & ~self.unaffordable
        # A shared device in use is already charged, so it is usable even if its pool is overdrawn.
        shareable = self.shareable(alternative, eligible)
        return shareable & ~self.exclusive & ~self.unaffordable

    def shareable(self, alternative: Alternative, devices: int) -> int:
        """Return the subset of ``devices`` with a free block of each requested resource."""
        found = 0
        for kind in self.inventory.kinds:
            if kind.devices & devices and all(_offers(kind, name) for name in alternative.amounts):
                found |= kind.devices & devices
        for number in self.allocated:
            bit = 1 << number
            if found & bit and not all(self.blocks(number, name) for name in alternative.amounts):
                found ^= bit
        return found

    def tiers(self, resource: str, devices: int) -> list[tuple[int, int]]:
        """Group devices by their free amount of a resource. All ``devices`` must have the resource.

        Return pairs of a free amount and the set of devices that have it, largest amount first.
        """
        found: dict[int, int] = {}
        untouched = devices
        for number in self.allocated:
            bit = 1 << number
            if devices & bit:
                untouched ^= bit
                free = self.blocks(number, resource)
                free *= self.inventory.kind_of[number].capacity[resource].block
                found[free] = found.get(free, 0) | bit
        for kind in self.inventory.kinds:
            if kind.devices & untouched:
                free = kind.capacity[resource].total
                found[free] = found.get(free, 0) | kind.devices & untouched
        return sorted(found.items(), reverse=True)


def affords(headroom: Mapping[str, int], charge: Amounts) -> bool:
    """True if the headroom of a pool covers the charge of a device, for each budget."""
    return all(headroom.get(name, 0) >= amount for name, amount in charge.items())


def _unaffordable(inventory: Inventory, headroom: Sequence[Mapping[str, int]], in_use: int) -> int:
    found = 0
    for kind in inventory.kinds:
        if kind.charge and not affords(headroom[kind.pool], kind.charge):
            found |= kind.devices
    return found & ~in_use


def _offers(kind: DeviceKind, resource: str) -> bool:
    capacity = kind.capacity.get(resource)
    return capacity is not None and capacity.total >= capacity.block


def _headroom(budget: Amounts, charged: Amounts) -> dict[str, int]:
    return {name: amount - charged.get(name, 0) for name, amount in budget.items()}
