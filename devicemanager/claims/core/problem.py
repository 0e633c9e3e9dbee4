"""One vector of alternatives as a search problem: slots to fill, values to agree on.

A slot is a request with the alternative chosen for it. ``Problem.reduce`` discards what
cannot be part of any answer, by counting alone: devices without a matched attribute, values
that too few devices have. An empty supply found here ends the search before it starts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import attrs

from devicemanager.claims.core.model import Alternative, Claim, Mode
from devicemanager.claims.core.step_budget import Steps
from devicemanager.claims.core.view import View

Choice = tuple[int, int, int]
"""Indexes of claim, request and alternative."""

Tiers = Sequence[tuple[int, int]]
"""Free amounts of one resource, largest first, each with the devices that have so much."""


@attrs.define(eq=False)
class Constraint:
    """An attribute of which some slots must agree on one value."""

    attribute: str
    slots: tuple[int, ...]
    values: Mapping[tuple[Hashable, ...], int]
    """Value to the devices that have it; devices without the attribute are in none."""
    allowed: int
    """The devices with a value that is still possible."""


@attrs.define(eq=False)
class Slot:
    claim: int
    request: int
    index: int
    """Of the alternative."""
    alternative: Alternative
    usable: int
    """The devices that may be part of an answer."""
    most: int
    """At most this many devices."""
    tiers: Mapping[str, Tiers]
    """SHARED: what the usable devices can still give of each resource."""
    constraints: tuple[int, ...] = ()
    """Indexes of what it must agree on."""

    @property
    def least(self) -> int:
        return 1 if self.alternative.every else self.alternative.count

    @property
    def mode(self) -> Mode:
        return self.alternative.mode

    def exceeds(self) -> int:
        """The devices it needs, if that is more than its claim may have; else 0."""
        if self.alternative.every:
            count = self.usable.bit_count()
            return count if count > self.most else 0
        if self.most == self.alternative.limit:
            return 0
        everything = self.usable.bit_count()
        for resource, amount in self.alternative.amounts.items():
            tiers = self.tiers[resource]
            if (
                reach(tiers, self.usable, self.most)
                < amount
                <= reach(tiers, self.usable, everything)
            ):
                return next(
                    count
                    for count in range(self.most + 1, everything + 1)
                    if reach(tiers, self.usable, count) >= amount
                )
        return 0


@attrs.define(eq=False)
class Problem:
    view: View
    slots: list[Slot]
    constraints: list[Constraint]
    steps: Steps
    _is_allowed: bool
    """No claim asks for more devices than a claim may have."""
    _alike: dict[int, int] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        view: View,
        claims: Sequence[Claim],
        choices: Iterable[Choice],
        most: int,
        steps: Steps,
    ) -> Problem:
        """``choices`` in the order of claims and requests; ``most`` devices for each claim."""
        chosen = [(choice, _alternative(claims, choice)) for choice in choices]
        least = [0] * len(claims)
        for (claim, _, _), alternative in chosen:
            least[claim] += alternative.count
        slots = []
        for (claim, request, index), alternative in chosen:
            usable = view.usable(alternative)
            tiers = {name: view.tiers(name, usable) for name in alternative.amounts}
            room = _most(alternative, most - least[claim] + alternative.count)
            slots.append(Slot(claim, request, index, alternative, usable, room, tiers))
        problem = cls(view, slots, [], steps, max(least, default=0) <= most)
        problem._constrain(claims)
        return problem

    def _constrain(self, claims: Sequence[Claim]) -> None:
        for number, claim in enumerate(claims):
            own = [place for place, slot in enumerate(self.slots) if slot.claim == number]
            for match in claim.match:
                scope = match.requests
                self._agree(
                    match.attribute,
                    [p for p in own if scope is None or self.slots[p].request in scope],
                )
            for place in own:
                for attribute in self.slots[place].alternative.match:
                    self._agree(attribute, [place])

    def _agree(self, attribute: str, slots: list[int]) -> None:
        if not slots:
            return
        values = {
            value: devices
            for value, devices in self.view.inventory.partition((attribute,)).items()
            if value != (None,)
        }
        allowed = 0
        for devices in values.values():
            allowed |= devices
        for place in slots:
            self.slots[place].usable &= allowed
            self.slots[place].constraints += (len(self.constraints),)
        self.constraints.append(Constraint(attribute, tuple(slots), values, allowed))

    def value_set(self, constraint: int, number: int) -> int:
        """The devices that have the same value of the constraint's attribute as this one."""
        found = self.constraints[constraint]
        device = self.view.inventory.devices[number]
        return found.values[(device.attributes[found.attribute],)]

    def cells(self, slot: Slot) -> Iterator[int]:
        """The usable devices of a slot, by the values of all that it must agree on."""
        rest = slot.usable
        while rest:
            number = (rest & -rest).bit_length() - 1
            cell = rest
            for constraint in slot.constraints:
                cell &= self.value_set(constraint, number)
            rest ^= cell
            yield cell

    def reduce(self) -> bool:
        """Discard what cannot be part of an answer; False if nothing is left for a slot."""
        changed = self._is_allowed
        while changed:
            changed = False
            for slot in self.slots:
                if not self._reduce_slot(slot):
                    return False
            for constraint in self.constraints:
                if len(constraint.slots) > 1 and self._reduce_values(constraint):
                    changed = True
        return self._is_allowed

    def _reduce_slot(self, slot: Slot) -> bool:
        """Keep the cells that have enough devices."""
        if slot.alternative.every:  # takes what is there: nothing of it may be left out
            return slot.usable != 0
        if slot.constraints:
            kept = 0
            for cell in self.cells(slot):
                self.steps.work(1)
                if self.suffices(slot, cell):
                    kept |= cell
            slot.usable = kept
        return self.suffices(slot, slot.usable)

    def suffices(self, slot: Slot, devices: int) -> bool:
        """Can the devices alone serve the slot, charges aside?"""
        if devices.bit_count() < slot.least:
            return False
        return all(
            reach(slot.tiers[resource], devices, slot.most) >= amount
            for resource, amount in slot.alternative.amounts.items()
        )

    def _reduce_values(self, constraint: Constraint) -> bool:
        """Keep the values of which every slot that must agree has enough devices."""
        slots = [self.slots[place] for place in constraint.slots]
        kept = 0
        for devices in constraint.values.values():
            devices &= constraint.allowed
            if not devices:
                continue
            self.steps.work(1)
            if _supply(slots, devices):
                kept |= devices
        if kept == constraint.allowed:
            return False
        constraint.allowed = kept
        for slot in slots:
            if not slot.alternative.every:
                slot.usable &= kept
        return True

    def alike(self, number: int) -> int:
        """The devices that the search need not tell from this one, itself among them.

        They are of one kind and untouched (or whole in use, for admin access), every slot may
        use all of them or none, and they agree in all matched values.
        """
        found = self._alike.get(number)
        if found is None:
            found = self._alike[number] = self._find_alike(number)
        return found

    def _find_alike(self, number: int) -> int:
        view, bit = self.view, 1 << number
        if number in view.given:
            return bit
        alike = view.inventory.kind_of[number].devices
        alike &= view.whole if view.whole & bit else ~view.in_use
        for slot in self.slots:
            alike &= slot.usable if slot.usable & bit else ~slot.usable
        for place, constraint in enumerate(self.constraints):
            if constraint.allowed & bit:
                alike &= self.value_set(place, number)
            else:
                alike &= ~constraint.allowed
        return alike


def reach(tiers: Tiers, devices: int, most: int) -> int:
    """The most that ``most`` of the devices can give together."""
    total = 0
    for free, members in tiers:
        count = min(most, (members & devices).bit_count())
        total += count * free
        most -= count
        if not most:
            break
    return total


def _supply(slots: Sequence[Slot], devices: int) -> bool:
    together = demand = 0
    for slot in slots:
        mine = slot.usable & devices
        if mine.bit_count() < slot.least:
            return False
        if slot.mode is Mode.EXCLUSIVE:
            together |= mine
            demand += slot.least
    return together.bit_count() >= demand


def _alternative(claims: Sequence[Claim], choice: Choice) -> Alternative:
    claim, request, index = choice
    return claims[claim].requests[request].alternatives[index]


def _most(alternative: Alternative, room: int) -> int:
    """The most devices a slot may take, so that its claim's other slots keep their least."""
    if alternative.every:
        return room
    if alternative.mode is not Mode.SHARED:
        return alternative.count
    return room if alternative.limit is None else min(room, alternative.limit)
