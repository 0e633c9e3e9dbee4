"""Why devices were not taken: for each, the first rule that excluded it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from devicemanager.claims.core import decide, firstfit
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import (
    Allocation,
    Alternative,
    Cause,
    Claim,
    Exclusion,
    Leftover,
    Limits,
    Mode,
    Rejection,
)
from devicemanager.claims.core.problem import Choice, Problem, Slot, reach
from devicemanager.claims.core.step_budget import OrderLostError, OutOfStepsError, Steps
from devicemanager.claims.core.view import View, affords
from devicemanager.core import bitset


def rejections(
    view: View, ledger: Ledger, claims: Sequence[Claim], limits: Limits
) -> tuple[Rejection, ...]:
    """Of the requests that could not be served even alone; of all requests, if each could."""
    by_request = [
        [_rejection(view, ledger, claims, choice, limits) for choice in choices]
        for choices in _choices(claims)
    ]
    alone = [
        found for found in by_request if all(each.cause is not Cause.TOGETHER for each in found)
    ]
    return tuple([rejection for found in alone or by_request for rejection in found])


def _choices(claims: Sequence[Claim]) -> Iterator[list[Choice]]:
    """For each request, the choices there are."""
    for place, claim in enumerate(claims):
        for number, request in enumerate(claim.requests):
            yield [(place, number, index) for index in range(len(request.alternatives))]


def _rejection(
    view: View, ledger: Ledger, claims: Sequence[Claim], choice: Choice, limits: Limits
) -> Rejection:
    claim = claims[choice[0]]
    alternative = claim.requests[choice[1]].alternatives[choice[2]]
    # Of its own, so that what the search spent does not cut the explanation off.
    problem = Problem.of(view, claims, [choice], limits.devices, Steps(limits.total))
    slot = problem.slots[0]
    sieve = _Sieve(view, alternative)
    sieve.use(ledger)
    sieve.match(problem, slot, _most_useful(problem, slot))
    reachable = {name: reach(tiers, sieve.rest, slot.most) for name, tiers in slot.tiers.items()}
    slot.usable = sieve.rest
    cause = _cause(problem, slot, reachable, limits)
    return Rejection(
        claim.id,
        alternative.label,
        cause,
        slot.least,
        sieve.rest,
        tuple(sieve.exclusions),
        reachable,
    )


def _most_useful(problem: Problem, slot: Slot) -> int:
    """Of the devices that agree in all matched values, those that suffice, or else the most."""
    if slot.alternative.every or not slot.constraints:
        return slot.usable
    cells = list(problem.cells(slot))
    enough = bitset.union(cell for cell in cells if problem.suffices(slot, cell))
    return enough or max(cells, key=int.bit_count, default=0)


def _cause(problem: Problem, slot: Slot, reachable: dict[str, int], limits: Limits) -> Cause:
    if slot.usable.bit_count() < slot.least:
        return Cause.DEVICES
    if any(reachable[name] < amount for name, amount in slot.alternative.amounts.items()):
        return Cause.AMOUNTS
    if _fits_alone(problem, limits):
        return Cause.TOGETHER
    return Cause.MATCH if slot.alternative.every else Cause.BUDGET


def _fits_alone(problem: Problem, limits: Limits) -> bool:
    try:
        return firstfit.search(problem, [0], limits.first_fit) is not None
    except OrderLostError:
        pass
    try:
        return not decide.is_decidable(problem, [0]) or decide.decide(problem, [0]) is not None
    except OutOfStepsError:
        return True


def leftovers(
    view: View, ledger: Ledger, claims: Sequence[Claim], allocations: Sequence[Allocation]
) -> tuple[Leftover, ...]:
    """What an answer did not take, for each request. ``view`` and ``ledger`` as before it."""
    numbers = view.inventory.index
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    for place, allocation in enumerate(allocations):
        for grant in allocation.grants:
            _, devices = taken.get((place, grant.request), (0, 0))
            if grant.device in numbers:  # it may have gone since
                devices |= 1 << numbers[grant.device]
            taken[place, grant.request] = grant.alternative, devices
    return tuple(
        _leftover(view, ledger, claims, (place, request, alternative), taken)
        for (place, request), (alternative, _) in sorted(taken.items())
    )


def _leftover(
    view: View,
    ledger: Ledger,
    claims: Sequence[Claim],
    choice: Choice,
    taken: dict[tuple[int, int], tuple[int, int]],
) -> Leftover:
    claim = claims[choice[0]]
    alternative = claim.requests[choice[1]].alternatives[choice[2]]
    mine = taken[choice[:2]][1]
    problem = Problem.of(view, claims, [choice], 0, Steps(0))
    sieve = _Sieve(view, alternative, mine)
    sieve.use(ledger)
    sieve.match(problem, problem.slots[0], _agreeing(problem, mine))
    for (place, request), (index, devices) in sorted(taken.items()):
        other = claims[place].requests[request].alternatives[index]
        if place == choice[0]:
            sieve.exclude(f"taken by {other.label}", devices)
        elif Mode.EXCLUSIVE in (other.mode, alternative.mode) and Mode.ADMIN not in (
            other.mode,
            alternative.mode,
        ):
            sieve.exclude(f"taken by claim {claims[place].id}", devices)
    sieve.exclude("not needed", sieve.rest)
    return Leftover(claim.id, alternative.label, mine, tuple(sieve.exclusions))


def _agreeing(problem: Problem, taken: int) -> int:
    """The devices with the matched values of those taken, as far as these still have them."""
    found = problem.slots[0].usable | taken
    for place in problem.slots[0].constraints:
        with_value = taken & problem.constraints[place].allowed
        if with_value:
            found &= problem.value_set(place, (with_value & -with_value).bit_length() - 1)
    return found


class _Sieve:
    """The devices that no rule has excluded so far."""

    def __init__(self, view: View, alternative: Alternative, taken: int = 0) -> None:
        self.exclusions = list(alternative.exclusions)
        self.rest = alternative.eligible & ~taken
        self._view = view
        self._alternative = alternative

    def exclude(self, rule: str, devices: int) -> None:
        found = self.rest & devices
        if found:
            self.exclusions.append(Exclusion(rule, found))
            self.rest ^= found

    def use(self, ledger: Ledger) -> None:
        """What holders, shares and budgets exclude."""
        if self._alternative.mode is Mode.ADMIN:
            return
        self._holders(ledger)
        for resource in self._alternative.amounts:
            self._share(resource)
        self._budgets()

    def _holders(self, ledger: Ledger) -> None:
        view = self._view
        sharing = self._alternative.mode is Mode.SHARED
        found: dict[str, int] = {}
        for number in bitset.numbers(self.rest & (view.whole if sharing else view.in_use)):
            holders = ", ".join(ledger.holders(view.inventory.devices[number].key))
            part = "" if view.whole >> number & 1 else " in part"
            rule = f"held{part} by claim {holders}"
            found[rule] = found.get(rule, 0) | 1 << number
        for rule, devices in found.items():
            self.exclude(rule, devices)

    def _share(self, resource: str) -> None:
        view = self._view
        offering = bitset.union(
            kind.devices for kind in view.inventory.kinds if resource in kind.shares
        )
        self.exclude(f"offers no {resource}", ~offering)
        only = Alternative("", self.rest, Mode.SHARED, amounts={resource: 1})
        self.exclude(f"has no {resource} left", self.rest & ~view.sharing(only, self.rest))

    def _budgets(self) -> None:
        view = self._view
        for kind in view.inventory.kinds:
            for name, amount in kind.charge.items():
                if not affords(view.headroom[kind.pool], {name: amount}):
                    pool = view.inventory.pools[kind.pool].key.name
                    rule = f"pool {pool} has too little {name} left"
                    self.exclude(rule, kind.devices & view.unaffordable)
        self._merge()

    def _merge(self) -> None:
        """One entry for each rule."""
        found: dict[str, int] = {}
        for each in self.exclusions:
            found[each.rule] = found.get(each.rule, 0) | each.devices
        self.exclusions = [Exclusion(rule, devices) for rule, devices in found.items()]

    def match(self, problem: Problem, slot: Slot, agreeing: int) -> None:
        """What lacks a matched attribute, and what differs from the ``agreeing`` devices."""
        for place in slot.constraints:
            constraint = problem.constraints[place]
            having = bitset.union(constraint.values.values())
            self.exclude(f"has no attribute {constraint.attribute}", ~having)
        for place in slot.constraints:
            with_value = agreeing & problem.constraints[place].allowed
            if with_value:
                same = problem.value_set(place, (with_value & -with_value).bit_length() - 1)
                rule = f"attribute {problem.constraints[place].attribute} differs"
                self.exclude(f"{rule} from the others chosen", ~same & ~agreeing)
