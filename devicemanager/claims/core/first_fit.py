"""First fit: the documented order of answers, searched depth first.

In:  the slots of a ``Problem`` that can interfere with each other, and a limit of picks.
Out: the first answer in the documented order, or None if the slots cannot be filled.
"""

# The order is part of the API: a user who knows it can predict which device a claim gets, and
# ``explain`` shows the same device that an admission then allocates. Slot after slot:
#
# 1. fewer devices before more (only shared requests have a choice);
# 2. devices of one pool, pool by pool, before devices of several pools;
# 3. devices by number.
#
# The search is depth first because the order is lexicographic: a slot's choice matters more
# than all choices of the slots after it. So the first complete answer on the way down is the
# wanted one, and a search for the best of all answers is not needed.
#
# Depth first alone is exponential. Two rules prune the tree without losing an answer:
#
# * Interchangeable devices (``Problem.interchangeable``) are tried once: if the lowest leads to
#   no answer, the others do not either. The tree branches by kind of device, not by device.
# * After each pick, ``is_hopeless`` counts what later slots need, and matches it by
#   ``max_flow`` if devices are scarce. A pick that takes a device that a later slot cannot do
#   without is undone at once, not after all combinations of the slots in between.
#
# What remains hard are charges, shared capacity and matched values across slots. If the search
# reaches its limit of picks, ``decide`` answers for exclusive requests. Shared requests have no
# such limit: their search continues until the step budget of the call is spent.
#
# Each way to fill a slot is one step of a generator: while it is suspended, its picks are
# made; when it resumes, they are undone. So every change stands next to its inverse, and
# ``_Search.run`` keeps a list of generators, one per slot, instead of recursing over slots.

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.core.partial_allocation import PartialAllocation
from devicemanager.claims.core.problem import Problem, Slot, Tiers, largest_amount
from devicemanager.core import bitset

# A pool index, or one of these, says where the picks of a slot must be.
ANY_POOLS = -1
"""Anywhere."""
SEVERAL_POOLS = -2
"""In several pools; nothing is picked yet."""


@attrs.frozen
class SlotDevices:
    """What one slot gets."""

    devices: tuple[int, ...]
    """By number."""
    amounts: tuple[dict[str, int], ...] = ()
    """SHARED: the amounts of each device."""


def search(
    problem: Problem, slots: Sequence[int], picks: int | None
) -> dict[int, SlotDevices] | None:
    """Return the first answer for some slots of a problem, by slot; None if there is none.

    Raises FirstFitCutOffError after ``picks`` picks (None: no limit), and OutOfStepsError
    when the step budget of the call is spent.
    """
    problem.steps.begin_first_fit(picks)
    found = _Search(problem, [problem.slots[place] for place in slots]).run()
    return None if found is None else dict(zip(slots, found, strict=True))


@attrs.define(eq=False)
class _Attempt:
    """An attempt to fill one slot with a certain number of devices."""

    place: int
    slot: Slot
    tiers: list[Tiers]
    """For each resource of the request, as the search left it."""
    extra: int
    """Additional cost of a pick in steps: reading the tiers."""
    picked: list[int] = attrs.field(factory=list)


class _Search:
    def __init__(self, problem: Problem, slots: list[Slot]) -> None:
        self._inventory = problem.view.inventory
        self._steps = problem.steps
        self._slots = slots
        self._filled: list[SlotDevices] = []
        self._partial = PartialAllocation(problem, slots)

    def run(self) -> list[SlotDevices] | None:
        if self._partial.is_hopeless(0, (0, 0)):
            return None
        ways = [self._ways(0)]
        while ways:
            if next(ways[-1], None) is None:
                ways.pop()  # no way left: back to the slot before, which tries its next way
            elif len(ways) == len(self._slots):
                return self._filled
            else:
                ways.append(self._ways(len(ways)))
        return None

    def _ways(self, place: int) -> Iterator[bool]:
        """Fill one slot in each way, in order, while the slots before it are filled."""
        slot = self._slots[place]
        available = self._partial.available(slot)
        if slot.alternative.every:
            yield from self._everything(place, slot, available)
            return
        tiers = self._partial.tiers(slot, available)
        for count in range(slot.least, min(slot.most, available.bit_count()) + 1):
            amounts = tuple(slot.alternative.amounts.values())
            if not _can_reach(tiers, available, count, amounts):
                continue
            attempt = _Attempt(place, slot, tiers, sum(map(len, tiers)) // 64)
            for devices in self._inventory.pool_sets:
                if (devices & available).bit_count() >= count:
                    self._steps.spend(1)
                    yield from self._pick(attempt, count, devices & available, amounts, ANY_POOLS)
            if count > 1:
                yield from self._pick(attempt, count, available, amounts, SEVERAL_POOLS)

    def _everything(self, place: int, slot: Slot, available: int) -> Iterator[bool]:
        """Fill a slot that gets all matching devices: the only way, if they agree."""
        devices = tuple(bitset.numbers(available))
        if not 0 < len(devices) <= slot.most:
            return
        settled = self._partial.settle(slot, devices[0])
        self._partial.toggle_used(slot, available)
        matched = self._partial.agreeing(slot.constraints, available) == available
        if matched and not self._partial.is_hopeless(place + 1, (0, 0)):
            self._steps.pick()
            yield from self._fill(SlotDevices(devices))
        self._partial.toggle_used(slot, available)
        self._partial.unsettle(settled)

    def _pick(
        self,
        attempt: _Attempt,
        need: int,
        candidates: int,
        missing: tuple[int, ...],
        pool: int,
    ) -> Iterator[bool]:
        """Pick ``need`` more of the candidates for a slot, in each way, in order.

        ``missing``: what the picks must still provide of each resource. ``pool``: the pool
        of all picks so far, to which at least one more pick must not belong; or ANY_POOLS or
        SEVERAL_POOLS.
        """
        if pool >= 0 and need == 1:
            candidates &= ~self._inventory.pool_sets[pool]
        while candidates.bit_count() >= need:
            if not _can_reach(attempt.tiers, candidates, need, missing):
                return
            if pool >= 0 and not candidates & ~self._inventory.pool_sets[pool]:
                return
            low = candidates & -candidates
            number = low.bit_length() - 1
            self._steps.pick()
            self._steps.spend(attempt.extra)
            yield from self._try(attempt, need, number, candidates ^ low, missing, pool)
            candidates &= ~self._partial.interchangeable(number)

    def _try(
        self,
        attempt: _Attempt,
        need: int,
        number: int,
        rest: int,
        missing: tuple[int, ...],
        pool: int,
    ) -> Iterator[bool]:
        """Go through all ways whose next pick is this device."""
        pick = self._partial.pick(attempt.slot, number)
        if pick is None:
            return
        attempt.picked.append(number)
        rest = self._partial.agreeing(pick.settled, rest)
        pool = _next_pool(pool, self._inventory.kind_of[number].pool)
        yield from self._continue(attempt, need - 1, rest, missing, pool)
        attempt.picked.pop()
        self._partial.put_back(pick)

    def _continue(
        self, attempt: _Attempt, need: int, rest: int, missing: tuple[int, ...], pool: int
    ) -> Iterator[bool]:
        """After a pick: make the next one, or finish the slot."""
        wanted = need if attempt.slot.mode is AccessMode.EXCLUSIVE else 0
        if self._partial.is_hopeless(attempt.place + 1, (rest, wanted)):
            return
        if need:
            if missing:
                names = attempt.slot.alternative.amounts
                got = [self._partial.free_amount(attempt.picked[-1], name) for name in names]
                missing = tuple([left - free for left, free in zip(missing, got, strict=True)])
            yield from self._pick(attempt, need, rest, missing, pool)
        elif attempt.slot.mode is AccessMode.SHARED:
            yield from self._share(attempt)
        else:
            yield from self._fill(SlotDevices(tuple(attempt.picked)))

    def _share(self, attempt: _Attempt) -> Iterator[bool]:
        """Divide what the slot requests among the picked devices, if they have it free."""
        amounts = self._partial.divide_amounts(attempt.slot, attempt.picked)
        if amounts is None:
            return
        before = self._partial.share(attempt.picked, amounts)
        if not self._partial.is_hopeless(attempt.place + 1, (0, 0)):
            yield from self._fill(SlotDevices(tuple(attempt.picked), amounts))
        self._partial.unshare(before)

    def _fill(self, devices: SlotDevices) -> Iterator[bool]:
        self._filled.append(devices)
        yield True
        self._filled.pop()


def _can_reach(tiers: Sequence[Tiers], devices: int, count: int, missing: tuple[int, ...]) -> bool:
    """True if ``count`` of the devices may provide what is missing, or nothing is."""
    return all(
        largest_amount(each, devices, count) >= amount
        for each, amount in zip(tiers, missing, strict=True)
    )


def _next_pool(pool: int, picked: int) -> int:
    if pool == SEVERAL_POOLS:
        return picked
    return pool if pool == picked else ANY_POOLS
