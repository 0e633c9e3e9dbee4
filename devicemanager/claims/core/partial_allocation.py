"""What a search has allocated so far, and what that leaves for the next slots."""

# Every change has an inverse: ``pick`` and ``put_back``, ``share`` and ``unshare``, ``settle``
# and ``unsettle``. The search undoes changes in reverse order, so nothing is copied: a search
# makes up to thousands of picks, and a copy of the state for each would cost most of its time.

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
    """A device picked for a slot, with what ``put_back`` needs."""

    slot: Slot
    number: int
    is_charged: bool
    """True if this pick charged the device to its pool."""
    settled: list[int]
    """The constraints that this pick settled."""


class PartialAllocation:
    """The devices, capacity and budgets that a search uses, and the matched values."""

    def __init__(self, problem: Problem, slots: Sequence[Slot]) -> None:
        self._problem = problem
        self._view = problem.view
        self._slots = slots
        # All sets below are of this search alone, except ``_charged``.
        self._exclusive = 0
        self._shared = 0
        # By device in ``_shared``: the allocated amounts, with those of other claims.
        self._amounts: dict[int, dict[str, int]] = {}
        # By claim: its devices in this search, also with admin access.
        self._used = {slot.claim: 0 for slot in slots}
        self._charged = problem.view.in_use
        self._headroom = [dict(headroom) for headroom in problem.view.headroom]
        # By constraint: the devices with the settled value; 0 while it is open.
        self._agreed = [0] * len(problem.constraints)

    # -- whole devices -----------------------------------------------------------------

    def pick(self, slot: Slot, number: int) -> Pick | None:
        """Use a device for a slot; None, without a change, if its charge is too large."""
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
        settled = self.settle(slot, number)
        self._used[slot.claim] |= low
        if slot.mode is AccessMode.EXCLUSIVE:
            self._exclusive |= low
        return Pick(slot, number, is_charged, settled)

    def put_back(self, pick: Pick) -> None:
        """Undo a pick."""
        slot, low = pick.slot, 1 << pick.number
        self._used[slot.claim] ^= low
        if slot.mode is AccessMode.EXCLUSIVE:
            self._exclusive ^= low
        self.unsettle(pick.settled)
        if pick.is_charged:
            kind = self._view.inventory.kind_of[pick.number]
            headroom = self._headroom[kind.pool]
            for name, amount in kind.charge.items():
                headroom[name] += amount
            self._charged ^= low

    def toggle_used(self, slot: Slot, devices: int) -> None:
        """Let the slot's claim use these devices, or undo that."""
        self._used[slot.claim] ^= devices

    # -- shared capacity ---------------------------------------------------------------

    def share(
        self, devices: Sequence[int], amounts: Sequence[Mapping[str, int]]
    ) -> dict[int, dict[str, int] | None]:
        """Allocate these amounts of the devices and return what ``unshare`` needs."""
        before = {number: self._amounts.get(number) for number in devices}
        for number, more in zip(devices, amounts, strict=True):
            total = Counter(before[number] or self._view.allocated.get(number, {}))
            total.update(more)
            self._amounts[number] = total
            self._shared |= 1 << number
        return before

    def unshare(self, before: Mapping[int, dict[str, int] | None]) -> None:
        """Undo ``share``."""
        for number, earlier in before.items():
            if earlier is None:
                del self._amounts[number]
                self._shared ^= 1 << number
            else:
                self._amounts[number] = earlier

    def divide_amounts(
        self, slot: Slot, devices: Sequence[int]
    ) -> tuple[dict[str, int], ...] | None:
        """Divide what the slot requests among the devices; None if they have too little."""
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
        """Return what a device has free of one of its resources, in nano-units."""
        blocks = self._view.blocks(number, resource, self._amounts.get(number))
        return blocks * self._block(number, resource)

    def _block(self, number: int, resource: str) -> int:
        return self._view.inventory.kind_of[number].capacity[resource].block

    # -- constraints -------------------------------------------------------------------

    def settle(self, slot: Slot, number: int) -> list[int]:
        """Settle the slot's open constraints on this device's values, and return them."""
        settled = [place for place in slot.constraints if not self._agreed[place]]
        for place in settled:
            self._agreed[place] = self._problem.value_set(place, number)
        return settled

    def unsettle(self, constraints: Sequence[int]) -> None:
        """Undo ``settle``."""
        for constraint in constraints:
            self._agreed[constraint] = 0

    def agreeing(self, constraints: Sequence[int], devices: int) -> int:
        """Return those of the devices that have the values of settled constraints."""
        for constraint in constraints:
            devices &= self._agreed[constraint]
        return devices

    # -- what is left ------------------------------------------------------------------

    def available(self, slot: Slot) -> int:
        """Return the devices that the slot can still use, not counting charges."""
        available = slot.usable & ~self._used[slot.claim]
        if slot.alternative.every:
            return available  # differing values must be reported, not avoided
        for constraint in slot.constraints:
            if self._agreed[constraint]:
                available &= self._agreed[constraint]
        if slot.mode is AccessMode.EXCLUSIVE:
            return available & ~self._exclusive & ~self._shared
        if slot.mode is AccessMode.SHARED:
            return available & ~self._exclusive & ~self._used_up(slot)
        return available

    def _used_up(self, slot: Slot) -> int:
        """Return shared devices without a free block of something that the slot requests."""
        found = 0
        for number, amounts in self._amounts.items():
            blocks = [self._view.blocks(number, name, amounts) for name in slot.alternative.amounts]
            if not all(blocks):
                found |= 1 << number
        return found

    def tiers(self, slot: Slot, available: int) -> list[Tiers]:
        """Return the slot's tiers, one per resource, as this search changed them."""
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
        """Return the devices that need not be tried once this device has failed."""
        touched, low = self._exclusive | self._shared, 1 << number
        return low if touched & low else self._problem.interchangeable(number) & ~touched

    def is_hopeless(self, place: int, current: max_flow.Demand) -> bool:
        """True if the slots from ``place`` on certainly cannot all be filled any more.

        ``current``: what the slot before them still needs of whole devices.
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
        # The usual case: every demand alone has enough devices for all of them, so no order of
        # serving can fail and the flow need not be computed after every pick.
        if all(devices.bit_count() >= total for devices, _ in demands):
            return False
        return not max_flow.fits(demands, self._problem.steps)


def divide(offers: Sequence[tuple[int, int]], amount: int) -> list[int] | None:
    """Divide an amount of one resource among devices, in whole blocks.

    ``offers``: for each device in order, its free blocks (1 or more) and the size of a block.
    Each device provides one block, because a chosen device must contribute. The rest is
    filled in device order. None if all together is too little.
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
