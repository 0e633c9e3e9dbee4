"""What one search has taken so far, and what that leaves for the next slots.

Every change has its undoing: ``pick`` and ``put_back``, ``share`` and ``unshare``, ``settle``
and ``unsettle``. They are undone in the opposite order, so nothing has to be copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from devicemanager.claims.core import max_flow
from devicemanager.claims.core.fill import fill
from devicemanager.claims.core.model import Mode
from devicemanager.claims.core.problem import Problem, Slot, Tiers
from devicemanager.claims.core.view import affords

__all__ = ["Picked", "Taken"]


@attrs.frozen
class Picked:
    """A device that was picked for a slot, with what ``put_back`` has to undo."""

    slot: Slot
    number: int
    charged: bool
    """Whether its pool's counters pay for it since this pick."""
    settled: list[int]
    """The constraints that this pick settled."""


class Taken:
    """The devices, shares and counters that a search uses, and the values it settled on."""

    def __init__(self, problem: Problem, slots: Sequence[Slot]) -> None:
        self._problem = problem
        self._view = problem.view
        self._slots = slots
        self._whole = 0
        """Devices that this search took whole."""
        self._in_part = 0
        """Devices of which this search took a share."""
        self._given: dict[int, dict[str, int]] = {}
        """For each of these, all that is given of it, to other claims too."""
        self._used = {slot.claim: 0 for slot in slots}
        """By claim: the devices that it has in this search, admin access included."""
        self._charged = problem.view.in_use
        self._headroom = [dict(headroom) for headroom in problem.view.headroom]
        self._agreed = [0] * len(problem.constraints)
        """For each constraint, the devices with the value settled on; 0 while it is open."""

    # -- whole devices -----------------------------------------------------------------

    def pick(self, slot: Slot, number: int) -> Picked | None:
        """Take a device for a slot; None, and nothing is taken, if its pool's counters do
        not allow it."""
        low = 1 << number
        kind = self._view.inventory.kind_of[number]
        charged = bool(kind.charge) and slot.mode is not Mode.ADMIN and not self._charged & low
        if charged:
            headroom = self._headroom[kind.pool]
            if not affords(headroom, kind.charge):
                return None
            for name, amount in kind.charge.items():
                headroom[name] -= amount
            self._charged |= low
        settled = self.settle(slot, number)
        self._used[slot.claim] |= low
        if slot.mode is Mode.EXCLUSIVE:
            self._whole |= low
        return Picked(slot, number, charged, settled)

    def put_back(self, picked: Picked) -> None:
        """Undo a pick."""
        slot, low = picked.slot, 1 << picked.number
        self._used[slot.claim] ^= low
        if slot.mode is Mode.EXCLUSIVE:
            self._whole ^= low
        self.unsettle(picked.settled)
        if picked.charged:
            kind = self._view.inventory.kind_of[picked.number]
            headroom = self._headroom[kind.pool]
            for name, amount in kind.charge.items():
                headroom[name] += amount
            self._charged ^= low

    def use_every(self, slot: Slot, devices: int) -> None:
        """Let the slot's claim use these devices, or undo that."""
        self._used[slot.claim] ^= devices

    # -- shares ------------------------------------------------------------------------

    def share(
        self, devices: Sequence[int], amounts: Sequence[Mapping[str, int]]
    ) -> dict[int, dict[str, int] | None]:
        """Take these amounts of the devices. Returns what ``unshare`` needs."""
        before = {number: self._given.get(number) for number in devices}
        for number, given in zip(devices, amounts, strict=True):
            have = Counter(before[number] or self._view.given.get(number, {}))
            have.update(given)
            self._given[number] = have
            self._in_part |= 1 << number
        return before

    def unshare(self, before: Mapping[int, dict[str, int] | None]) -> None:
        """Undo ``share``."""
        for number, earlier in before.items():
            if earlier is None:
                del self._given[number]
                self._in_part ^= 1 << number
            else:
                self._given[number] = earlier

    def amounts(self, slot: Slot, devices: Sequence[int]) -> tuple[dict[str, int], ...] | None:
        """How the devices share what the slot asks for; None if they have too little."""
        amounts: tuple[dict[str, int], ...] = tuple([{} for _ in devices])
        for name, wanted in slot.alternative.amounts.items():
            offers = [
                (
                    self._view.blocks(number, name, self._given.get(number)),
                    self._block(number, name),
                )
                for number in devices
            ]
            given = fill(offers, wanted)
            if given is None:
                return None
            for each, amount in zip(amounts, given, strict=True):
                each[name] = amount
        return amounts

    def free(self, number: int, resource: str) -> int:
        """What a device can still give of a resource that it has, in nano units."""
        blocks = self._view.blocks(number, resource, self._given.get(number))
        return blocks * self._block(number, resource)

    def _block(self, number: int, resource: str) -> int:
        return self._view.inventory.kind_of[number].shares[resource].block

    # -- constraints -------------------------------------------------------------------

    def settle(self, slot: Slot, number: int) -> list[int]:
        """Settle the slot's open constraints on this device's values, and return those."""
        settled = [place for place in slot.constraints if not self._agreed[place]]
        for place in settled:
            self._agreed[place] = self._problem.value_set(place, number)
        return settled

    def unsettle(self, constraints: Sequence[int]) -> None:
        """Undo ``settle``."""
        for constraint in constraints:
            self._agreed[constraint] = 0

    def agreeing(self, constraints: Sequence[int], devices: int) -> int:
        """Those of the devices that have the values these constraints are settled on."""
        for constraint in constraints:
            devices &= self._agreed[constraint]
        return devices

    # -- what is left ------------------------------------------------------------------

    def available(self, slot: Slot) -> int:
        """What the slot may still use, whatever it costs."""
        available = slot.usable & ~self._used[slot.claim]
        if slot.alternative.every:
            return available
        for constraint in slot.constraints:
            if self._agreed[constraint]:
                available &= self._agreed[constraint]
        if slot.mode is Mode.EXCLUSIVE:
            return available & ~self._whole & ~self._in_part
        if slot.mode is Mode.SHARED:
            return available & ~self._whole & ~self._used_up(slot)
        return available

    def _used_up(self, slot: Slot) -> int:
        """The devices that this search left without a block of what the slot asks for."""
        found = 0
        for number, given in self._given.items():
            blocks = [self._view.blocks(number, name, given) for name in slot.alternative.amounts]
            if not all(blocks):
                found |= 1 << number
        return found

    def tiers(self, slot: Slot, available: int) -> list[Tiers]:
        """For each resource of the slot, the devices by what they have free, as of now."""
        touched = [number for number in self._given if available >> number & 1]
        found = []
        for name, tiers in slot.tiers.items():
            if touched:
                changed = [(free, devices & ~self._in_part) for free, devices in tiers]
                changed += [(self.free(number, name), 1 << number) for number in touched]
                tiers = sorted(changed, reverse=True)
            found.append(tiers)
        return found

    def alike(self, number: int) -> int:
        """What need not be tried after this device: those like it that are as untouched."""
        touched, low = self._whole | self._in_part, 1 << number
        return low if touched & low else self._problem.alike(number) & ~touched

    def is_hopeless(self, place: int, current: max_flow.Demand) -> bool:
        """Are the devices that the slots from ``place`` want certainly not there?

        ``current``: what the slot before them still wants, if whole devices.
        """
        if place == len(self._slots):
            return False
        demands = [current] if current[1] else []
        for slot in self._slots[place:]:
            available = self.available(slot)
            if available.bit_count() < slot.least:
                return True
            if slot.mode is Mode.EXCLUSIVE:
                demands.append((available, slot.least))
        total = sum([count for _, count in demands])
        if all(devices.bit_count() >= total for devices, _ in demands):
            return False  # nobody can be short, whoever comes first
        return not max_flow.fits(demands, self._problem.steps)
