"""Partial allocation: what a running search uses so far, and what is still available.

The docstring of the package ``claims.core`` defines slot, pick and all other terms.
"""

# Every change has an inverse: ``pick`` and ``put_back``, ``share`` and ``unshare``,
# ``fix_values`` and ``unfix_values``. The search undoes changes in reverse order, so no state is
# copied: a search makes up to thousands of picks, and a copy for each pick would be slow.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from devicemanager.claims.core import max_flow
from devicemanager.claims.core.ledger_view import affords
from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.core.problem import Problem, Slot, Tiers

__all__ = ["PartialAllocation", "Pick", "divide"]


@attrs.frozen
class Pick:
    """Device picked for a slot, with the changes that ``put_back`` must undo."""

    slot: Slot
    number: int
    is_charged: bool
    """True if this pick reduced the headroom of the device's pool."""
    fixed: list[int]
    """Indexes of the constraints whose matched value this pick has determined."""


class PartialAllocation:
    """State of a running search: picked devices, allocated amounts, charges and matched values."""

    def __init__(self, problem: Problem, slots: Sequence[Slot]) -> None:
        self._problem = problem
        self._view = problem.view
        self._slots = slots
        # The sets below contain only devices that this search picked. ``_charged`` also contains
        # the devices that were already in use.
        self._exclusive = 0
        self._shared = 0
        # For each device in ``_shared``: its allocated amounts, including those of other claims.
        self._amounts: dict[int, dict[str, int]] = {}
        # For each claim: its devices in this search, including those with admin access.
        self._used = {slot.claim: 0 for slot in slots}
        self._charged = problem.view.in_use
        self._headroom = [dict(headroom) for headroom in problem.view.headroom]
        # For each constraint: the devices with its fixed value; 0 while no value is fixed.
        self._agreed = [0] * len(problem.constraints)

    # -- whole devices -----------------------------------------------------------------

    def pick(self, slot: Slot, number: int) -> Pick | None:
        """Put a device into a slot. Return the pick, which ``put_back`` can undo.

        Return None, without a change, if the device's charge exceeds the headroom of its pool.
        """
        low = 1 << number
        kind = self._view.inventory.kind_of[number]
        is_charged = (
            bool(kind.charge) and slot.mode is not AccessMode.ADMIN and not self._charged & low
        )
        if is_charged:
            headroom = self._headroom[kind.pool]
            if not affords(headroom, kind.charge):
                return None
            for name, amount in kind.charge.items():
                headroom[name] -= amount
            self._charged |= low
        fixed = self.fix_values(slot, number)
        self._used[slot.claim] |= low
        if slot.mode is AccessMode.EXCLUSIVE:
            self._exclusive |= low
        return Pick(slot, number, is_charged, fixed)

    def put_back(self, pick: Pick) -> None:
        """Undo ``pick``: make the device available again."""
        slot, low = pick.slot, 1 << pick.number
        self._used[slot.claim] ^= low
        if slot.mode is AccessMode.EXCLUSIVE:
            self._exclusive ^= low
        self.unfix_values(pick.fixed)
        if pick.is_charged:
            kind = self._view.inventory.kind_of[pick.number]
            headroom = self._headroom[kind.pool]
            for name, amount in kind.charge.items():
                headroom[name] += amount
            self._charged ^= low

    def toggle_used(self, slot: Slot, devices: int) -> None:
        """Record that the slot's claim uses ``devices``. An identical second call deletes the
        record."""
        self._used[slot.claim] ^= devices

    # -- shared capacity ---------------------------------------------------------------

    def share(
        self, devices: Sequence[int], amounts: Sequence[Mapping[str, int]]
    ) -> dict[int, dict[str, int] | None]:
        """Allocate amounts of shared devices. Return the previous amounts, for ``unshare``.

        ``amounts``: for each device, the amounts by resource. The result maps each device number to
        the device's previously allocated amounts; None if this search has not shared the device
        yet.
        """
        before = {number: self._amounts.get(number) for number in devices}
        for number, more in zip(devices, amounts, strict=True):
            total = Counter(before[number] or self._view.allocated.get(number, {}))
            total.update(more)
            self._amounts[number] = total
            self._shared |= 1 << number
        return before

    def unshare(self, before: Mapping[int, dict[str, int] | None]) -> None:
        """Undo a call of ``share``. ``before``: the result of that call."""
        for number, earlier in before.items():
            if earlier is None:
                del self._amounts[number]
                self._shared ^= 1 << number
            else:
                self._amounts[number] = earlier

    def divide_amounts(
        self, slot: Slot, devices: Sequence[int]
    ) -> tuple[dict[str, int], ...] | None:
        """Return the amounts that each device provides, so that the slot gets what it requests.

        The result has one mapping per device, from resource to amount. Return None if too little is
        free on these devices.
        """
        divided: tuple[dict[str, int], ...] = tuple([{} for _ in devices])
        for name, amount in slot.alternative.amounts.items():
            offers = [
                (
                    self._view.blocks(number, name, self._amounts.get(number)),
                    self._block(number, name),
                )
                for number in devices
            ]
            parts = divide(offers, amount)
            if parts is None:
                return None
            for each, part in zip(divided, parts, strict=True):
                each[name] = part
        return divided

    def free_amount(self, number: int, resource: str) -> int:
        """Return the free amount of a device's resource, in nano-units."""
        blocks = self._view.blocks(number, resource, self._amounts.get(number))
        return blocks * self._block(number, resource)

    def _block(self, number: int, resource: str) -> int:
        return self._view.inventory.kind_of[number].capacity[resource].block

    # -- constraints -------------------------------------------------------------------

    def fix_values(self, slot: Slot, number: int) -> list[int]:
        """Set the matched values of a slot's constraints to the values of device ``number``.

        A constraint that already has a matched value keeps it. Later devices must have the matched
        values. Return the indexes of the constraints whose matched value this call has set.
        """
        fixed = [place for place in slot.constraints if not self._agreed[place]]
        for place in fixed:
            self._agreed[place] = self._problem.value_set(place, number)
        return fixed

    def unfix_values(self, constraints: Sequence[int]) -> None:
        """Undo a call of ``fix_values``. ``constraints``: the result of that call."""
        for constraint in constraints:
            self._agreed[constraint] = 0

    def agreeing(self, constraints: Sequence[int], devices: int) -> int:
        """Return the subset of ``devices`` that have the matched values of ``constraints``.

        Each of these constraints must already have a matched value.
        """
        for constraint in constraints:
            devices &= self._agreed[constraint]
        return devices

    # -- what is left ------------------------------------------------------------------

    def available(self, slot: Slot) -> int:
        """Return the set of devices that the slot can still use. Charges are ignored."""
        available = slot.usable & ~self._used[slot.claim]
        if slot.alternative.every:
            return available  # devices with differing values make the slot fail
        for constraint in slot.constraints:
            if self._agreed[constraint]:
                available &= self._agreed[constraint]
        if slot.mode is AccessMode.EXCLUSIVE:
            return available & ~self._exclusive & ~self._shared
        if slot.mode is AccessMode.SHARED:
            return available & ~self._exclusive & ~self._used_up(slot)
        return available

    def _used_up(self, slot: Slot) -> int:
        """Return the set of shared devices that lack a free block of a requested resource."""
        found = 0
        for number, amounts in self._amounts.items():
            blocks = [self._view.blocks(number, name, amounts) for name in slot.alternative.amounts]
            if not all(blocks):
                found |= 1 << number
        return found

    def tiers(self, slot: Slot, available: int) -> list[Tiers]:
        """Return the slot's devices grouped by free amount, for each resource that it requests.

        A group is a pair of a free amount and a set of devices. The largest amount comes first.
        The allocations of this search are already subtracted. ``available``: the set of devices
        that the groups must contain.
        """
        touched = [number for number in self._amounts if available >> number & 1]
        found = []
        for name, tiers in slot.tiers.items():
            if touched:
                changed = [(free, devices & ~self._shared) for free, devices in tiers]
                changed += [(self.free_amount(number, name), 1 << number) for number in touched]
                tiers = sorted(changed, reverse=True)
            found.append(tiers)
        return found

    def interchangeable(self, number: int) -> int:
        """Return the set of devices that lead to no answer if device ``number`` leads to none."""
        touched, low = self._exclusive | self._shared, 1 << number
        return low if touched & low else self._problem.interchangeable(number) & ~touched

    def is_hopeless(self, place: int, current: max_flow.Demand) -> bool:
        """True if it is certain that the search cannot fill all remaining slots.

        ``place``: index of the first slot that is still empty. ``current``: the demand of the
        previous slot for further devices. Its count is 0 if that slot needs no more whole devices.
        """
        if place == len(self._slots):
            return False
        demands = [current] if current[1] else []
        for slot in self._slots[place:]:
            available = self.available(slot)
            if available.bit_count() < slot.least:
                return True
            if slot.mode is AccessMode.EXCLUSIVE:
                demands.append((available, slot.least))
        total = sum([count for _, count in demands])
        # The usual case: every demand has enough devices for all demands together, so no order
        # of serving can fail and the flow need not be computed after every pick.
        if all(devices.bit_count() >= total for devices, _ in demands):
            return False
        return not max_flow.fits(demands, self._problem.steps)


def divide(offers: Sequence[tuple[int, int]], amount: int) -> list[int] | None:
    """Divide an amount of one resource among devices, in whole blocks. Return each device's part.

    ``offers``: for each device, the number of its free blocks (1 or more) and the size of a block.
    Each device provides at least one block, because a chosen device must contribute. For the
    remaining amount, earlier devices provide as much as they can. Return None if the devices offer
    too little.
    """
    parts = [block for _, block in offers]
    missing = amount - sum(parts)
    for place, (blocks, block) in enumerate(offers):
        if missing <= 0:
            break
        more = min(blocks - 1, -(-missing // block))
        parts[place] += more * block
        missing -= more * block
    return parts if missing <= 0 else None
