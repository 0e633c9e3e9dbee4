"""Search problem for chosen alternatives: slots to fill and constraints to satisfy.

In:  a ``LedgerView``, the claims, and a ``Choice`` for each request that the problem includes.
Out: a ``Problem``: slots with their usable devices, and constraints with the values of their
     attributes. ``Problem.reduce`` removes devices and values that no answer can contain.

The docstring of the package ``claims.core`` defines slot, answer and all other terms.
"""

# ``reduce`` only counts devices, which is cheap. Until nothing changes, it removes
#
# * from a slot, devices whose combination of matched values too few devices have;
# * from a constraint, values that too few devices have for one of its slots, or for all its
#   slots together.
#
# This decides the two worst cases of a plain search before it begins: one device too few among
# many identical devices (a search would try every subset), and many groups of matching devices
# that are all too small.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import attrs

from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import AccessMode, Alternative, Claim
from devicemanager.claims.core.step_budget import StepBudget

Choice = tuple[int, int, int]
"""Indexes of a claim, of its request, and of the alternative chosen for the request."""

Tiers = Sequence[tuple[int, int]]
"""Free amounts of one resource, largest first, each with the set of devices with this amount."""


@attrs.define(eq=False)
class Constraint:
    """Attribute that must have the same value for all devices of the slots in ``slots``."""

    attribute: str
    slots: tuple[int, ...]
    """Indexes of the slots in the problem."""
    values: Mapping[tuple[Hashable, ...], int]
    """Mapping from each value of the attribute to the set of devices that have this value. Each key
    is a tuple that contains only the value."""
    allowed: int
    """The set of devices that have a value which is still possible in an answer."""


@attrs.define(eq=False)
class Slot:
    """Slot of the search: a request with the alternative chosen for it."""

    claim: int
    request: int
    index: int
    """Index of the alternative in its request."""
    alternative: Alternative
    usable: int
    """The set of devices that an answer can contain for this slot."""
    most: int
    """Maximum number of devices for this slot."""
    tiers: Mapping[str, Tiers]
    """For the mode SHARED: free amounts of the usable devices, by resource."""
    constraints: tuple[int, ...] = ()
    """Indexes of the slot's constraints in its problem."""

    @property
    def least(self) -> int:
        """Minimum number of devices for this slot."""
        return 1 if self.alternative.every else self.alternative.count

    @property
    def mode(self) -> AccessMode:
        """Mode in which the slot uses its devices."""
        return self.alternative.mode

    def devices_over_limit(self) -> int:
        """Return the number of devices that the slot needs, if the limit per claim is too low.

        The limit is the maximum number of devices of a claim. Return 0 if it is high enough, or if
        a higher limit would not help.
        """
        if self.alternative.every:
            count = self.usable.bit_count()
            return count if count > self.most else 0
        if self.most == self.alternative.limit:
            return 0
        everything = self.usable.bit_count()
        for resource, amount in self.alternative.amounts.items():
            tiers = self.tiers[resource]
            if (
                largest_amount(tiers, self.usable, self.most)
                < amount
                <= largest_amount(tiers, self.usable, everything)
            ):
                return next(
                    count
                    for count in range(self.most + 1, everything + 1)
                    if can_reach(tiers, self.usable, count, amount)
                )
        return 0


@attrs.define(eq=False)
class Problem:
    """Search problem: the slots and constraints for chosen alternatives."""

    view: LedgerView
    slots: list[Slot]
    constraints: list[Constraint]
    steps: StepBudget
    _is_allowed: bool
    """True if no claim needs more devices than the limit per claim."""
    _interchangeable: dict[int, int] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        view: LedgerView,
        claims: Sequence[Claim],
        choices: Iterable[Choice],
        most: int,
        steps: StepBudget,
    ) -> Problem:
        """Create the problem for ``choices``, which are in the order of claims and requests.

        ``most``: the maximum number of devices per claim.
        """
        chosen = [(choice, _alternative(claims, choice)) for choice in choices]
        # A slot can use the claim's limit minus the minimum counts of the claim's other slots.
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
        problem._add_constraints(claims)
        return problem

    def _add_constraints(self, claims: Sequence[Claim]) -> None:
        for number, claim in enumerate(claims):
            own = [place for place, slot in enumerate(self.slots) if slot.claim == number]
            for match in claim.match:
                scope = match.requests
                self._add_constraint(
                    match.attribute,
                    [p for p in own if scope is None or self.slots[p].request in scope],
                )
            for place in own:
                for attribute in self.slots[place].alternative.match:
                    self._add_constraint(attribute, [place])

    def _add_constraint(self, attribute: str, slots: list[int]) -> None:
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
        """Return the set of devices that have the same value of the constraint's attribute as
        device ``number``. ``constraint``: index of the constraint."""
        found = self.constraints[constraint]
        device = self.view.inventory.devices[number]
        return found.values[(device.attributes[found.attribute],)]

    def cells(self, slot: Slot) -> Iterator[int]:
        """Group the slot's usable devices by matched values, and yield the set of each group."""
        rest = slot.usable
        while rest:
            number = (rest & -rest).bit_length() - 1
            cell = rest
            for constraint in slot.constraints:
                cell &= self.value_set(constraint, number)
            rest ^= cell
            yield cell

    def reduce(self) -> bool:
        """Remove devices and values that no answer can contain.

        Return False if this shows that no answer exists.
        """
        changed = self._is_allowed
        # Repeat until nothing changes: fewer devices in one slot can make a value too rare for
        # another slot.
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
        """Remove devices from the slot if too few of its devices have the same matched values.

        Return False if the remaining devices are too few for the slot.
        """
        # A request for all matching devices must not lose devices: it would become another
        # request, and differing values must be reported as a conflict.
        if slot.alternative.every:
            return slot.usable != 0
        if slot.constraints:
            kept = 0
            for cell in self.cells(slot):
                self.steps.spend(1)
                if self.suffices(slot, cell):
                    kept |= cell
            slot.usable = kept
        return self.suffices(slot, slot.usable)

    def suffices(self, slot: Slot, devices: int) -> bool:
        """True if the set ``devices`` is enough to fill the slot; charges are ignored."""
        if devices.bit_count() < slot.least:
            return False
        return all(
            can_reach(slot.tiers[resource], devices, slot.most, amount)
            for resource, amount in slot.alternative.amounts.items()
        )

    def _reduce_values(self, constraint: Constraint) -> bool:
        """Remove each value whose devices are too few for the constraint's slots.

        Return True if a value was removed.
        """
        slots = [self.slots[place] for place in constraint.slots]
        kept = 0
        for devices in constraint.values.values():
            devices &= constraint.allowed
            if not devices:
                continue
            self.steps.spend(1)
            if _can_supply(slots, devices):
                kept |= devices
        if kept == constraint.allowed:
            return False
        constraint.allowed = kept
        for slot in slots:
            if not slot.alternative.every:
                slot.usable &= kept
        return True

    def interchangeable(self, number: int) -> int:
        """Return the set of devices that the search can exchange for device ``number``.

        The set includes device ``number``. If claims share this device, the set contains no other
        device. Otherwise, all devices of the set are of one kind, have the same matched values, and
        are usable for the same slots. Either none of them is in use, or all of them are allocated
        exclusively.
        """
        found = self._interchangeable.get(number)
        if found is None:
            found = self._interchangeable[number] = self._find_interchangeable(number)
        return found

    def _find_interchangeable(self, number: int) -> int:
        view, bit = self.view, 1 << number
        if number in view.allocated:
            return bit
        devices = view.inventory.kind_of[number].devices
        devices &= view.exclusive if view.exclusive & bit else ~view.in_use
        for slot in self.slots:
            devices &= slot.usable if slot.usable & bit else ~slot.usable
        for place, constraint in enumerate(self.constraints):
            if constraint.allowed & bit:
                devices &= self.value_set(place, number)
            else:
                devices &= ~constraint.allowed
        return devices


def largest_amount(tiers: Tiers, devices: int, most: int) -> int:
    """Return the largest total free amount of up to ``most`` devices from the set ``devices``.

    ``tiers``: pairs of a free amount and the set of devices that have it, largest amount first.
    """
    total = 0
    for free, members in tiers:
        count = min(most, (members & devices).bit_count())
        total += count * free
        most -= count
        if not most:
            break
    return total


def can_reach(tiers: Tiers, devices: int, most: int, amount: int) -> bool:
    """True if up to ``most`` devices from the set ``devices`` together have ``amount`` free.

    ``tiers``: pairs of a free amount and the set of devices that have it, largest amount first.
    """
    missing = amount
    for free, members in tiers:
        if free * most < missing:
            return False  # the next tiers have smaller amounts
        count = min(most, (members & devices).bit_count())
        missing -= count * free
        if missing <= 0:
            return True
        most -= count
    return missing <= 0


def _can_supply(slots: Sequence[Slot], devices: int) -> bool:
    """True if the devices are enough for each slot, and for all exclusive slots together."""
    together = demand = 0
    for slot in slots:
        usable = slot.usable & devices
        if usable.bit_count() < slot.least:
            return False
        if slot.mode is AccessMode.EXCLUSIVE:
            together |= usable
            demand += slot.least
    return together.bit_count() >= demand


def _alternative(claims: Sequence[Claim], choice: Choice) -> Alternative:
    claim, request, index = choice
    return claims[claim].requests[request].alternatives[index]


def _most(alternative: Alternative, room: int) -> int:
    """Return the maximum number of devices for a slot.

    ``room``: the claim's limit minus the minimum counts of the claim's other slots.
    """
    if alternative.every:
        return room
    if alternative.mode is not AccessMode.SHARED:
        return alternative.count
    return room if alternative.limit is None else min(room, alternative.limit)
