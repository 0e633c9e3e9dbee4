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

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from devicemanager.claims.core import flow
from devicemanager.claims.core.fill import fill
from devicemanager.claims.core.ir import Mode
from devicemanager.claims.core.problem import Problem, Slot, Tiers, reach
from devicemanager.claims.core.view import affords
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
        self._problem = problem
        self._view = problem.view
        self._steps = problem.steps
        self._slots = slots
        self._parts: list[Part] = []
        """Of the slots that are filled."""
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

    def run(self) -> list[Part] | None:
        if self._is_hopeless(0, (0, 0)):
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
        available = self._available(slot)
        if slot.alternative.every:
            yield from self._everything(place, slot, available)
            return
        tiers = self._tiers(slot, available)
        for count in range(slot.least, min(slot.most, available.bit_count()) + 1):
            amounts = tuple(slot.alternative.amounts.values())
            if not _can_reach(tiers, available, count, amounts):
                continue
            attempt = _Attempt(place, slot, tiers, sum(map(len, tiers)) // 64)
            for devices in self._view.inventory.pool_sets:
                if (devices & available).bit_count() >= count:
                    self._steps.work(1)
                    yield from self._pick(attempt, count, devices & available, amounts, ANY_POOLS)
            if count > 1:
                yield from self._pick(attempt, count, available, amounts, SEVERAL_POOLS)

    def _everything(self, place: int, slot: Slot, available: int) -> Iterator[bool]:
        """The one way to fill a slot that takes all there is: they must agree as they are."""
        devices = tuple(bitset.numbers(available))
        agreed = self._agree(slot, devices[0]) if 0 < len(devices) <= slot.most else None
        if agreed is None:
            return
        matched = all(not available & ~self._agreed[place] for place in slot.constraints)
        self._used[slot.claim] |= available
        if matched and not self._is_hopeless(place + 1, (0, 0)):
            self._steps.pick()
            yield from self._filled(Part(devices))
        self._used[slot.claim] ^= available
        self._disagree(agreed)

    def _available(self, slot: Slot) -> int:
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

    def _tiers(self, slot: Slot, available: int) -> list[Tiers]:
        touched = [number for number in self._given if available >> number & 1]
        found = []
        for name, tiers in slot.tiers.items():
            if touched:
                changed = [(free, devices & ~self._in_part) for free, devices in tiers]
                changed += [(self._free(number, name), 1 << number) for number in touched]
                tiers = sorted(changed, reverse=True)
            found.append(tiers)
        return found

    def _free(self, number: int, resource: str) -> int:
        """What a device can still give of a resource that it has, in nano units."""
        share = self._view.inventory.kind_of[number].shares[resource]
        return self._view.blocks(number, resource, self._given.get(number)) * share.block

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
            candidates &= ~self._view.inventory.pool_sets[pool]
        while candidates.bit_count() >= need:
            if not _can_reach(attempt.tiers, candidates, need, missing):
                return
            if pool >= 0 and not candidates & ~self._view.inventory.pool_sets[pool]:
                return
            low = candidates & -candidates
            number = low.bit_length() - 1
            self._steps.pick()
            self._steps.work(attempt.extra)
            yield from self._try(attempt, need, number, candidates ^ low, missing, pool)
            candidates &= ~self._alike(number, low)

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
        slot, low = attempt.slot, 1 << number
        kind = self._view.inventory.kind_of[number]
        charged = kind.charge and slot.mode is not Mode.ADMIN and not self._charged & low
        headroom = self._headroom[kind.pool]
        if charged:
            if not affords(headroom, kind.charge):
                return
            for name, amount in kind.charge.items():
                headroom[name] -= amount
            self._charged |= low
        agreed = self._agree(slot, number)
        self._used[slot.claim] |= low
        if slot.mode is Mode.EXCLUSIVE:
            self._whole |= low
        attempt.picked.append(number)
        for constraint in agreed:
            rest &= self._agreed[constraint]
        yield from self._go_on(attempt, need - 1, rest, missing, _next_pool(pool, kind.pool))
        attempt.picked.pop()
        self._used[slot.claim] ^= low
        if slot.mode is Mode.EXCLUSIVE:
            self._whole ^= low
        self._disagree(agreed)
        if charged:
            for name, amount in kind.charge.items():
                headroom[name] += amount
            self._charged ^= low

    def _go_on(
        self, attempt: _Attempt, need: int, rest: int, missing: tuple[int, ...], pool: int
    ) -> Iterator[bool]:
        """After a pick: to the next one, or to the end of the slot."""
        wanted = need if attempt.slot.mode is Mode.EXCLUSIVE else 0
        if self._is_hopeless(attempt.place + 1, (rest, wanted)):
            return
        if need:
            if missing:
                names = attempt.slot.alternative.amounts
                got = [self._free(attempt.picked[-1], name) for name in names]
                missing = tuple([left - free for left, free in zip(missing, got, strict=True)])
            yield from self._pick(attempt, need, rest, missing, pool)
        elif attempt.slot.mode is Mode.SHARED:
            yield from self._share(attempt)
        else:
            yield from self._filled(Part(tuple(attempt.picked)))

    def _share(self, attempt: _Attempt) -> Iterator[bool]:
        """Divide what the slot asks for among the devices picked, if they have it."""
        amounts = self._amounts(attempt)
        if amounts is None:
            return
        before = {number: self._given.get(number) for number in attempt.picked}
        for number, given in zip(attempt.picked, amounts, strict=True):
            have = Counter(before[number] or self._view.given.get(number, {}))
            have.update(given)
            self._given[number] = have
            self._in_part |= 1 << number
        if not self._is_hopeless(attempt.place + 1, (0, 0)):
            yield from self._filled(Part(tuple(attempt.picked), amounts))
        for number, earlier in before.items():
            if earlier is None:
                del self._given[number]
                self._in_part ^= 1 << number
            else:
                self._given[number] = earlier

    def _amounts(self, attempt: _Attempt) -> tuple[dict[str, int], ...] | None:
        amounts: tuple[dict[str, int], ...] = tuple([{} for _ in attempt.picked])
        for name, wanted in attempt.slot.alternative.amounts.items():
            offers = [
                (
                    self._view.blocks(number, name, self._given.get(number)),
                    self._block(number, name),
                )
                for number in attempt.picked
            ]
            given = fill(offers, wanted)
            if given is None:
                return None
            for each, amount in zip(amounts, given, strict=True):
                each[name] = amount
        return amounts

    def _block(self, number: int, resource: str) -> int:
        return self._view.inventory.kind_of[number].shares[resource].block

    def _filled(self, part: Part) -> Iterator[bool]:
        self._parts.append(part)
        yield True
        self._parts.pop()

    def _agree(self, slot: Slot, number: int) -> list[int]:
        """Settle the slot's open constraints on this device's values; gives those it settled."""
        settled = [place for place in slot.constraints if not self._agreed[place]]
        for place in settled:
            self._agreed[place] = self._problem.value_set(place, number)
        return settled

    def _disagree(self, constraints: list[int]) -> None:
        for constraint in constraints:
            self._agreed[constraint] = 0

    def _alike(self, number: int, low: int) -> int:
        """What need not be tried after this device: those like it that are as untouched."""
        touched = self._whole | self._in_part
        return low if touched & low else self._problem.alike(number) & ~touched

    def _is_hopeless(self, place: int, current: flow.Demand) -> bool:
        """Are the devices that the slots from ``place`` want certainly not there?

        ``current``: what the slot before them still wants, if whole devices.
        """
        if place == len(self._slots):
            return False
        demands = [current] if current[1] else []
        for slot in self._slots[place:]:
            available = self._available(slot)
            if available.bit_count() < slot.least:
                return True
            if slot.mode is Mode.EXCLUSIVE:
                demands.append((available, slot.least))
        total = sum([count for _, count in demands])
        if all(devices.bit_count() >= total for devices, _ in demands):
            return False  # nobody can be short, whoever comes first
        return not flow.fits(demands, self._steps)


def _can_reach(tiers: Sequence[Tiers], devices: int, count: int, missing: tuple[int, ...]) -> bool:
    """May ``count`` of the devices give what is missing? True if nothing is."""
    return all(
        reach(each, devices, count) >= amount for each, amount in zip(tiers, missing, strict=True)
    )


def _next_pool(pool: int, picked: int) -> int:
    if pool == SEVERAL_POOLS:
        return picked
    return pool if pool == picked else ANY_POOLS
