"""First fit: a depth-first search through the answers in their documented order.

In:  slots of a ``Problem``, usually those that can affect each other, and a limit of picks.
Out: the first answer in the documented order; None means that no answer exists.

The documented order. The devices of an earlier slot matter more than those of all later slots.
For one slot, these rules apply one after another:

1. Fewer devices come before more. Only the number of devices of a SHARED slot can vary.
2. Devices of one pool come before devices of several pools; pools are in their sorted order.
3. Devices with lower numbers come first.

The docstring of the package ``claims.core`` defines slot, answer and all other terms.
"""

# The order is part of the API: a user who knows it can predict which device a claim gets, and
# ``explain`` shows the same device that an admission allocates later.
#
# The search is depth first because the order is lexicographic: a slot's choice matters more
# than all choices of the slots after it. So the first complete answer is the first answer in
# the documented order, and the search need not compare answers.
#
# Depth first alone is exponential. Two rules prune the tree without losing an answer:
#
# * Of interchangeable devices (``Problem.interchangeable``), only the lowest is tried: if it
#   leads to no answer, no other one does. The tree branches by kind of device, not by device.
# * After each pick, ``is_hopeless`` counts the devices that later slots need, and uses
#   ``max_flow`` if devices are scarce. A pick of a device that a later slot requires is undone
#   immediately, not after all combinations of the slots in between.
#
# Charges, shared capacity and matched values across slots remain hard. If the search reaches
# its pick limit, ``decide`` answers for exclusive requests. Shared requests have no limit of
# picks: their search continues until the step budget of the call is spent.
#
# Each way to fill a slot is one step of a generator: while the generator is suspended, its
# picks are in effect; when it resumes, it undoes them. So the code of every change is next to
# the code that undoes it. ``_Search.run`` has a list of generators, one per slot, instead of
# recursing over slots.

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.core.partial_allocation import PartialAllocation
from devicemanager.claims.core.problem import Problem, Slot, Tiers, can_reach
from devicemanager.core import bitset

# Values for the argument ``pool`` of ``_Search._pick``, which can also be a pool index.
ANY_POOLS = -1
"""Special pool index: the remaining devices of a slot can come from any pool."""
SEVERAL_POOLS = -2
"""Special pool index: no device of a slot is picked yet, and the devices must come from at least
two pools."""


@attrs.frozen
class SlotDevices:
    """Devices that the search found for one slot."""

    devices: tuple[int, ...]
    """Numbers of the devices in the inventory."""
    amounts: tuple[dict[str, int], ...] = ()
    """For a shared request: for each device, the allocated amount of each resource in
    nano-units."""


def search(
    problem: Problem, slots: Sequence[int], picks: int | None
) -> dict[int, SlotDevices] | None:
    """Return the devices for each slot, by index of the slot; None if no answer exists.

    ``slots``: the indexes of the slots to fill. The result is the first answer in the documented
    order. Raises FirstFitCutOffError after ``picks`` picks (None: no limit), and OutOfStepsError
    when the step budget is spent.
    """
    problem.steps.begin_first_fit(picks)
    found = _Search(problem, [problem.slots[place] for place in slots]).run()
    return None if found is None else dict(zip(slots, found, strict=True))


@attrs.define(eq=False)
class _Attempt:
    """Attempt to fill one slot with a fixed number of devices."""

    place: int
    slot: Slot
    tiers: list[Tiers]
    """For each requested resource, the devices grouped by free amount. The allocations of this
    search are already subtracted."""
    extra: int
    """Number of additional steps that each pick costs, because it reads ``tiers``."""
    picked: list[int] = attrs.field(factory=list)


class _Search:
    """Depth-first search that fills one slot after another."""

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
                ways.pop()  # no way left: the previous slot tries its next way
            elif len(ways) == len(self._slots):
                return self._filled
            else:
                ways.append(self._ways(len(ways)))
        return None

    def _ways(self, place: int) -> Iterator[bool]:
        """Fill one slot with each possible set of devices, in the documented order.

        Yield while the slot is filled with a set. Each ``Iterator[bool]`` below works the same
        way: it undoes its changes when it resumes.
        """
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
        """Put all ``available`` devices into a slot that requests all matching devices.

        Do nothing if these devices differ in a matched value.
        """
        devices = tuple(bitset.numbers(available))
        if not 0 < len(devices) <= slot.most:
            return
        fixed = self._partial.fix_values(slot, devices[0])
        self._partial.toggle_used(slot, available)
        matched = self._partial.agreeing(slot.constraints, available) == available
        if matched and not self._partial.is_hopeless(place + 1, (0, 0)):
            self._steps.pick()
            yield from self._fill(SlotDevices(devices))
        self._partial.toggle_used(slot, available)
        self._partial.unfix_values(fixed)

    def _pick(
        self,
        attempt: _Attempt,
        need: int,
        candidates: int,
        missing: tuple[int, ...],
        pool: int,
    ) -> Iterator[bool]:
        """Fill the slot with its picks so far and each possible set of ``need`` more candidates.

        ``missing``: the amount of each resource that the further picks must provide together.
        ``pool``: ANY_POOLS, SEVERAL_POOLS or the index of a pool. An index means that all picks
        so far belong to this pool, and at least one further pick must belong to another pool.
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
        """Fill the slot with its picks so far, device ``number``, and further picks from ``rest``.

        Do nothing if the headroom of the device's pool is too small.
        """
        pick = self._partial.pick(attempt.slot, number)
        if pick is None:
            return
        attempt.picked.append(number)
        rest = self._partial.agreeing(pick.fixed, rest)
        pool = _next_pool(pool, self._inventory.kind_of[number].pool)
        yield from self._continue(attempt, need - 1, rest, missing, pool)
        attempt.picked.pop()
        self._partial.put_back(pick)

    def _continue(
        self, attempt: _Attempt, need: int, rest: int, missing: tuple[int, ...], pool: int
    ) -> Iterator[bool]:
        """Fill the slot with its picks so far and ``need`` further picks from ``rest``.

        Do nothing if too few devices would remain for later slots.
        """
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
        """Fill a shared slot with its picks, and divide the requested amounts among them.

        Do nothing if the free amounts of the picks are too small.
        """
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
    """True if, for each resource, some ``count`` of the devices have the missing amount free."""
    return all(
        can_reach(each, devices, count, amount) for each, amount in zip(tiers, missing, strict=True)
    )


def _next_pool(pool: int, picked: int) -> int:
    if pool == SEVERAL_POOLS:
        return picked
    return pool if pool == picked else ANY_POOLS
