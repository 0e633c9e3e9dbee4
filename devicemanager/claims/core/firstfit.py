"""The documented order of solutions, searched depth first.

Slot after slot: fewer devices before more, one pool before several, then devices in order;
the first full answer wins. Two things keep the tree small and lose no answer:

- Of devices that are alike, the lower is tried first, and if it leads nowhere, so do the
  others: they are skipped together. So the tree branches by likeness, not by device.
- After each pick, the whole devices that are still wanted are counted, and if they are
  scarce, matched (``flow``): a pick that leaves too few of them is taken back at once.

The ways to fill one slot are a generator: what a way takes is taken while the generator is
suspended, and given back when it goes on. So each change stands beside its undoing, and the
slots need no recursion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from devicemanager.claims.core.allocated import Taken
from devicemanager.claims.core.model import Mode
from devicemanager.claims.core.problem import Problem, Slot, Tiers, reach
from devicemanager.core import bitset

ANY_POOLS = -1
"""Where the picks are does not matter (any more)."""
SEVERAL_POOLS = -2
"""The picks must be of several pools, and there is none yet."""


@attrs.frozen
class Part:
    """What one slot gets."""

    devices: tuple[int, ...]
    """By number."""
    amounts: tuple[dict[str, int], ...] = ()
    """SHARED: what each device gives."""


def search(problem: Problem, slots: Sequence[int], picks: int | None) -> dict[int, Part] | None:
    """The first answer for some slots of a problem, by slot; None if there is none.

    Raises ``OrderLostError`` after ``picks`` picks (None: never), ``OutOfStepsError`` when the
    total is spent.
    """
    problem.steps.begin_first_fit(picks)
    found = _Search(problem, [problem.slots[place] for place in slots]).run()
    return None if found is None else dict(zip(slots, found, strict=True))


@attrs.define(eq=False)
class _Attempt:
    """Filling one slot with a number of devices."""

    place: int
    slot: Slot
    tiers: list[Tiers]
    """For each resource of the request, as the search left it."""
    extra: int
    """What a pick costs beside itself, in steps: to look through the tiers."""
    picked: list[int] = attrs.field(factory=list)


class _Search:
    def __init__(self, problem: Problem, slots: list[Slot]) -> None:
        self._inventory = problem.view.inventory
        self._steps = problem.steps
        self._slots = slots
        self._parts: list[Part] = []
        """Of the slots that are filled."""
        self._taken = Taken(problem, slots)

    def run(self) -> list[Part] | None:
        if self._taken.is_hopeless(0, (0, 0)):
            return None
        ways = [self._ways(0)]
        while ways:
            if next(ways[-1], None) is None:
                ways.pop()
            elif len(ways) == len(self._slots):
                return self._parts
            else:
                ways.append(self._ways(len(ways)))
        return None

    def _ways(self, place: int) -> Iterator[bool]:
        """Fill one slot in each way, in order, the slots before it being filled."""
        slot = self._slots[place]
        available = self._taken.available(slot)
        if slot.alternative.every:
            yield from self._everything(place, slot, available)
            return
        tiers = self._taken.tiers(slot, available)
        for count in range(slot.least, min(slot.most, available.bit_count()) + 1):
            amounts = tuple(slot.alternative.amounts.values())
            if not _can_reach(tiers, available, count, amounts):
                continue
            attempt = _Attempt(place, slot, tiers, sum(map(len, tiers)) // 64)
            for devices in self._inventory.pool_sets:
                if (devices & available).bit_count() >= count:
                    self._steps.work(1)
                    yield from self._pick(attempt, count, devices & available, amounts, ANY_POOLS)
            if count > 1:
                yield from self._pick(attempt, count, available, amounts, SEVERAL_POOLS)

    def _everything(self, place: int, slot: Slot, available: int) -> Iterator[bool]:
        """The one way to fill a slot that takes all there is: they must agree as they are."""
        devices = tuple(bitset.numbers(available))
        if not 0 < len(devices) <= slot.most:
            return
        settled = self._taken.settle(slot, devices[0])
        self._taken.use_every(slot, available)
        matched = self._taken.agreeing(slot.constraints, available) == available
        if matched and not self._taken.is_hopeless(place + 1, (0, 0)):
            self._steps.pick()
            yield from self._filled(Part(devices))
        self._taken.use_every(slot, available)
        self._taken.unsettle(settled)

    def _pick(
        self,
        attempt: _Attempt,
        need: int,
        candidates: int,
        missing: tuple[int, ...],
        pool: int,
    ) -> Iterator[bool]:
        """Pick ``need`` more of the candidates for a slot, in each way, in order.

        ``missing``: what the picks must still give of each resource. ``pool``: the pool that
        must not be the only one, or one of the two constants.
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
            self._steps.work(attempt.extra)
            yield from self._try(attempt, need, number, candidates ^ low, missing, pool)
            candidates &= ~self._taken.alike(number)

    def _try(
        self,
        attempt: _Attempt,
        need: int,
        number: int,
        rest: int,
        missing: tuple[int, ...],
        pool: int,
    ) -> Iterator[bool]:
        """All ways that begin with this device."""
        picked = self._taken.pick(attempt.slot, number)
        if picked is None:
            return
        attempt.picked.append(number)
        rest = self._taken.agreeing(picked.settled, rest)
        pool = _next_pool(pool, self._inventory.kind_of[number].pool)
        yield from self._go_on(attempt, need - 1, rest, missing, pool)
        attempt.picked.pop()
        self._taken.put_back(picked)

    def _go_on(
        self, attempt: _Attempt, need: int, rest: int, missing: tuple[int, ...], pool: int
    ) -> Iterator[bool]:
        """After a pick: to the next one, or to the end of the slot."""
        wanted = need if attempt.slot.mode is Mode.EXCLUSIVE else 0
        if self._taken.is_hopeless(attempt.place + 1, (rest, wanted)):
            return
        if need:
            if missing:
                names = attempt.slot.alternative.amounts
                got = [self._taken.free(attempt.picked[-1], name) for name in names]
                missing = tuple([left - free for left, free in zip(missing, got, strict=True)])
            yield from self._pick(attempt, need, rest, missing, pool)
        elif attempt.slot.mode is Mode.SHARED:
            yield from self._share(attempt)
        else:
            yield from self._filled(Part(tuple(attempt.picked)))

    def _share(self, attempt: _Attempt) -> Iterator[bool]:
        """Divide what the slot asks for among the devices picked, if they have it."""
        amounts = self._taken.amounts(attempt.slot, attempt.picked)
        if amounts is None:
            return
        before = self._taken.share(attempt.picked, amounts)
        if not self._taken.is_hopeless(attempt.place + 1, (0, 0)):
            yield from self._filled(Part(tuple(attempt.picked), amounts))
        self._taken.unshare(before)

    def _filled(self, part: Part) -> Iterator[bool]:
        self._parts.append(part)
        yield True
        self._parts.pop()


def _can_reach(tiers: Sequence[Tiers], devices: int, count: int, missing: tuple[int, ...]) -> bool:
    """May ``count`` of the devices give what is missing? True if nothing is."""
    return all(
        reach(each, devices, count) >= amount for each, amount in zip(tiers, missing, strict=True)
    )


def _next_pool(pool: int, picked: int) -> int:
    if pool == SEVERAL_POOLS:
        return picked
    return pool if pool == picked else ANY_POOLS
