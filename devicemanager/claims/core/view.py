"""What is still free, seen through an inventory's numbers: the ledger at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, Inventory, Kind
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Alternative, Mode


@attrs.frozen(eq=False)
class View:
    inventory: Inventory
    in_use: int
    """The devices that have a holder: they are charged already."""
    whole: int
    """Those of them that one claim has alone."""
    given: Mapping[int, Amounts]
    """For each device in shares: what claims have of its resources."""
    headroom: tuple[Mapping[str, int], ...]
    """For each pool, what its budget still allows; may be below 0."""
    unaffordable: int
    """The devices not in use whose charge does not fit the headroom."""
    _usable: dict[int, tuple[Alternative, int]] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, inventory: Inventory, ledger: Ledger) -> View:
        in_use = whole = 0
        given = {}
        for key in ledger.in_use():
            number = inventory.index.get(key)
            if number is None:
                continue  # its pool is gone, or of another node
            in_use |= 1 << number
            if ledger.is_whole(key):
                whole |= 1 << number
            else:
                given[number] = ledger.given(key)
        pools = inventory.pools
        headroom = tuple([_headroom(pool.budget, ledger.spent(pool.key)) for pool in pools])
        unaffordable = 0
        for kind in inventory.kinds:
            if kind.charge and not affords(headroom[kind.pool], kind.charge):
                unaffordable |= kind.devices
        return cls(inventory, in_use, whole, given, headroom, unaffordable & ~in_use)

    def blocks(self, number: int, resource: str, given: Amounts | None = None) -> int:
        """How many blocks of a resource the device can still give.

        ``given``: what claims have of the device, if not what the ledger says.
        """
        share = self.inventory.kind_of[number].shares.get(resource)
        if share is None:
            return 0
        held = self.given.get(number, {}) if given is None else given
        return max(0, (share.capacity - held.get(resource, 0)) // share.block)

    def usable(self, alternative: Alternative) -> int:
        """The eligible devices that holdings, shares and budgets leave to a request."""
        known = self._usable.get(id(alternative))
        if known is None:  # held with its alternative, so that the id stays its own
            known = self._usable[id(alternative)] = alternative, self._find_usable(alternative)
        return known[1]

    def _find_usable(self, alternative: Alternative) -> int:
        eligible = alternative.eligible
        if alternative.mode is Mode.ADMIN:
            return eligible
        if alternative.mode is Mode.EXCLUSIVE:
            return eligible & ~self.in_use & ~self.unaffordable
        sharing = self.sharing(alternative, eligible)
        return sharing & ~self.whole & ~self.unaffordable

    def sharing(self, alternative: Alternative, devices: int) -> int:
        """Those of ``devices`` that have a block left of each resource that is requested."""
        found = 0
        for kind in self.inventory.kinds:
            if kind.devices & devices and all(_offers(kind, name) for name in alternative.amounts):
                found |= kind.devices & devices
        for number in self.given:
            bit = 1 << number
            if found & bit and not all(self.blocks(number, name) for name in alternative.amounts):
                found ^= bit
        return found

    def tiers(self, resource: str, devices: int) -> list[tuple[int, int]]:
        """What devices that all have the resource can give of it, largest first, with who can."""
        found: dict[int, int] = {}
        untouched = devices
        for number in self.given:
            bit = 1 << number
            if devices & bit:
                untouched ^= bit
                free = self.blocks(number, resource)
                free *= self.inventory.kind_of[number].shares[resource].block
                found[free] = found.get(free, 0) | bit
        for kind in self.inventory.kinds:
            if kind.devices & untouched:
                free = kind.shares[resource].capacity
                found[free] = found.get(free, 0) | kind.devices & untouched
        return sorted(found.items(), reverse=True)


def affords(headroom: Mapping[str, int], charge: Amounts) -> bool:
    return all(headroom.get(name, 0) >= amount for name, amount in charge.items())


def _offers(kind: Kind, resource: str) -> bool:
    share = kind.shares.get(resource)
    return share is not None and share.capacity >= share.block


def _headroom(budget: Amounts, spent: Amounts) -> dict[str, int]:
    return {name: amount - spent.get(name, 0) for name, amount in budget.items()}
