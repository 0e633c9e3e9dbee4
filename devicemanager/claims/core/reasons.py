"""Explain the outcome of a search: for each device, find the first rule that excludes it.

In:  the arguments of a call of ``solve``; for claims that fit, also their allocations.
Out: if the claims do not fit, ``Rejection`` values for alternatives of their requests; if they
     fit, a ``Leftover`` for each request.

The docstring of the package ``claims.core`` defines alternative, budget and all other terms.
"""

# The rules apply in a fixed order: driver, class and constraints (from the front end), other
# claims, capacity, budgets, matched attributes. Each device counts for one rule only, so the
# numbers of an explanation add up to all devices.
#
# This module spends the steps that the search has left, and those that are reserved for it. The
# cheap rules come first, for all requests: they find what is missing for most rejections. Then
# first fit and the exact decision run again for each request, to distinguish "does not fit" from
# "not with the other requests". What remains when the steps run out is ``Cause.UNEXAMINED``.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import attrs

from devicemanager.claims.core import decide, first_fit
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView, affords
from devicemanager.claims.core.model import (
    AccessMode,
    Allocation,
    Alternative,
    Cause,
    Claim,
    Exclusion,
    Leftover,
    Limits,
    Rejection,
)
from devicemanager.claims.core.problem import Choice, Problem, Slot, largest_amount
from devicemanager.claims.core.step_budget import (
    FirstFitCutOffError,
    OutOfStepsError,
    StepBudget,
)
from devicemanager.core import bitset


def rejections(
    view: LedgerView,
    ledger: Ledger,
    claims: Sequence[Claim],
    limits: Limits,
    steps: StepBudget,
    fits: Callable[[Sequence[Claim]], bool],
) -> tuple[Rejection, ...]:
    """Return the reasons why claims do not fit: a rejection for each alternative of some requests.

    If some requests do not fit even alone, return the rejections of these requests, and also those
    of requests that were not examined because the steps ran out.

    Otherwise, return the rejections of a group of requests that do not fit together. The group fits
    if any one request is removed from it. If the steps ran out, the group can be larger than
    necessary.

    ``fits``: function that returns True if a search finds devices for the given claims. The
    function must count the steps of this search in ``steps``.
    """
    call = _Reasons(view, ledger, claims, limits, steps)
    sieved = [[call.sieve(choice) for choice in choices] for choices in _choices(claims)]
    by_request = [[call.rejection(each) for each in found] for found in sieved]
    alone = [
        found
        for found in by_request
        if all(each.cause not in (Cause.TOGETHER, Cause.UNEXAMINED) for each in found)
    ]
    if alone:
        alone = [
            found
            for found in by_request
            if found in alone or any(each.cause is Cause.UNEXAMINED for each in found)
        ]
        return tuple([rejection for found in alone for rejection in found])
    return tuple(_colliding(by_request, claims, fits))


def _colliding(
    by_request: Sequence[Sequence[Rejection]],
    claims: Sequence[Claim],
    fits: Callable[[Sequence[Claim]], bool],
) -> Iterator[Rejection]:
    """Yield the rejections of requests that do not fit together. Each one names the other
    requests."""
    places = [choices[0][:2] for choices in _choices(claims)]
    kept = dict.fromkeys(places)
    # Leave out one request after another, and keep it left out if the others still collide. If
    # the steps run out, more requests than necessary are named. The others fit without a request
    # if they fit without one that is like it, so such a request needs no search.
    needed: list[tuple[int, int]] = []
    with contextlib.suppress(OutOfStepsError):
        for place in reversed(places):
            if any(_are_interchangeable(claims, place, other) for other in needed):
                continue
            others = kept.keys() - {place}
            if others and not fits(_only(claims, others)):
                del kept[place]
            else:
                needed.append(place)
    named = {place: _request_name(claims, place) for place in kept}
    for place, found in zip(places, by_request, strict=True):
        if place in kept:
            collides = tuple([name for other, name in named.items() if other != place])
            yield from [attrs.evolve(each, collides=collides) for each in found]


def _are_interchangeable(
    claims: Sequence[Claim], one: tuple[int, int], other: tuple[int, int]
) -> bool:
    """True if two requests of a claim are alike, and the claim fits in any order of them."""
    claim = claims[one[0]]
    return (
        one[0] == other[0]
        and claim.requests[one[1]].is_like(claim.requests[other[1]])
        and all(
            each.requests is None or (one[1] in each.requests) == (other[1] in each.requests)
            for each in claim.match
        )
        # A request for every device gets those that no earlier request got.
        and not any(each.every for request in claim.requests for each in request.alternatives)
    )


def _request_name(claims: Sequence[Claim], place: tuple[int, int]) -> tuple[str, str]:
    claim = claims[place[0]]
    # All alternatives have the position of their request at the start of their labels.
    return claim.id, claim.requests[place[1]].alternatives[0].label.partition(".")[0]


def _only(claims: Sequence[Claim], kept: Collection[tuple[int, int]]) -> list[Claim]:
    """Return the claims with only the requests in ``kept``. Claims without such a request are
    omitted. ``kept``: pairs of the index of a claim and the index of a request in this claim."""
    found = []
    for place, claim in enumerate(claims):
        old = [number for number in range(len(claim.requests)) if (place, number) in kept]
        new = {number: index for index, number in enumerate(old)}
        match = [
            each
            if each.requests is None
            else attrs.evolve(
                each, requests=frozenset(new[number] for number in each.requests if number in new)
            )
            for each in claim.match
        ]
        requests = tuple([claim.requests[number] for number in old])
        found.append(attrs.evolve(claim, requests=requests, match=tuple(match)))
    return [claim for claim in found if claim.requests]


def _choices(claims: Sequence[Claim]) -> Iterator[list[Choice]]:
    """Yield, for each request of all claims, a list with a choice for each of its alternatives."""
    for place, claim in enumerate(claims):
        for number, request in enumerate(claim.requests):
            yield [(place, number, index) for index in range(len(request.alternatives))]


@attrs.frozen(eq=False)
class _Sieved:
    """Alternative to which the cheap rules were applied. These rules only count devices."""

    problem: Problem
    rejection: Rejection
    """Rejection of the alternative. Its cause is UNEXAMINED if the cheap rules did not find it."""
    is_examined: bool
    """True if all cheap rules were applied; False if the steps ran out first."""


@attrs.frozen(eq=False)
class _Reasons:
    """Search for the reasons of one rejection."""

    view: LedgerView
    ledger: Ledger
    claims: Sequence[Claim]
    limits: Limits
    steps: StepBudget

    def sieve(self, choice: Choice) -> _Sieved:
        """Apply the rules that only count devices to an alternative."""
        claim = self.claims[choice[0]]
        alternative = claim.requests[choice[1]].alternatives[choice[2]]
        problem = Problem.of(self.view, self.claims, [choice], self.limits.devices, self.steps)
        slot = problem.slots[0]
        rejection = Rejection(
            claim.id, alternative.label, Cause.UNEXAMINED, slot.least, slot.usable, ()
        )
        sieve = _Sieve(self.view, alternative)
        try:
            self.steps.spend(4 + _size(self.view, alternative))
            sieve.exclude_unavailable(self.ledger)
            sieve.exclude_unmatched(problem, slot, _most_useful(problem, slot))
        except OutOfStepsError:
            return _Sieved(problem, rejection, False)
        reachable = {
            name: largest_amount(tiers, sieve.rest, slot.most) for name, tiers in slot.tiers.items()
        }
        slot.usable = sieve.rest
        rejection = attrs.evolve(
            rejection,
            cause=_cheap_cause(slot, reachable),
            usable=sieve.rest,
            exclusions=tuple(sieve.exclusions),
            reachable=reachable,
        )
        if rejection.cause is Cause.AMOUNTS:
            rejection = attrs.evolve(rejection, short=_offering(self.view, slot, reachable))
        return _Sieved(problem, rejection, True)

    def rejection(self, sieved: _Sieved) -> Rejection:
        """Return the rejection of an alternative. Its cause is UNEXAMINED if the steps run out."""
        found = sieved.rejection
        if found.cause is not Cause.UNEXAMINED or not sieved.is_examined:
            return found
        try:
            cause = _cause(sieved.problem, self.limits)
        except OutOfStepsError:
            return found
        if cause is not Cause.BUDGET:
            return attrs.evolve(found, cause=cause)
        return attrs.evolve(found, cause=cause, short=_short(self.view, found.usable))


def _offering(
    view: LedgerView, slot: Slot, reachable: Mapping[str, int]
) -> tuple[tuple[str, str], ...]:
    """Return pairs of a pool and a resource of which the request could not get enough.

    Each of these resources is paired with each pool that has usable devices. ``reachable``: the
    largest amount of each resource that the request could get.
    """
    pools = sorted({kind.pool for kind in view.inventory.kinds if kind.devices & slot.usable})
    return tuple(
        [
            (view.inventory.pools[pool].key.name, name)
            for name, amount in sorted(slot.alternative.amounts.items())
            if reachable[name] < amount
            for pool in pools
        ]
    )


def _short(view: LedgerView, usable: int) -> tuple[tuple[str, str], ...]:
    """Return pool and name of each budget that cannot pay for all usable devices."""
    wanted: dict[tuple[int, str], int] = {}
    for kind in view.inventory.kinds:
        count = (kind.devices & usable).bit_count()
        for name, amount in kind.charge.items():
            wanted[kind.pool, name] = wanted.get((kind.pool, name), 0) + count * amount
    return tuple(
        [
            (view.inventory.pools[pool].key.name, name)
            for (pool, name), amount in sorted(wanted.items())
            if amount > view.headroom[pool].get(name, 0)
        ]
    )


def _size(view: LedgerView, alternative: Alternative) -> int:
    """Return the number of steps that ``sieve`` costs for an alternative."""
    in_use = (alternative.eligible & view.in_use).bit_count()
    return (in_use + len(view.inventory.kinds) * (1 + len(alternative.amounts))) // 8


def _most_useful(problem: Problem, slot: Slot) -> int:
    """Return the set of devices whose matched values occur in enough devices to fill the slot.

    If there are no such values, return the devices with the most frequent matched values.
    """
    if slot.alternative.every or not slot.constraints:
        return slot.usable
    cells = list(problem.cells(slot))
    enough = bitset.union(cell for cell in cells if problem.suffices(slot, cell))
    return enough or max(cells, key=int.bit_count, default=0)


def _cheap_cause(slot: Slot, reachable: Mapping[str, int]) -> Cause:
    if slot.usable.bit_count() < slot.least:
        return Cause.DEVICES
    if any(reachable[name] < amount for name, amount in slot.alternative.amounts.items()):
        return Cause.AMOUNTS
    return Cause.UNEXAMINED


def _cause(problem: Problem, limits: Limits) -> Cause:
    if _fits_alone(problem, limits):
        return Cause.TOGETHER
    return Cause.MATCH if problem.slots[0].alternative.every else Cause.BUDGET


def _fits_alone(problem: Problem, limits: Limits) -> bool:
    if not decide.is_decidable(problem, [0]):
        return first_fit.search(problem, [0], None) is not None
    try:
        return first_fit.search(problem, [0], limits.first_fit) is not None
    except FirstFitCutOffError:
        return decide.decide(problem, [0]) is not None


def leftovers(
    view: LedgerView, ledger: Ledger, claims: Sequence[Claim], allocations: Sequence[Allocation]
) -> tuple[Leftover, ...]:
    """Return a ``Leftover`` for each request of claims that fit.

    ``allocations``: the allocations of the claims. ``view`` and ``ledger`` must not contain these
    allocations yet.
    """
    numbers = view.inventory.index
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    for place, allocation in enumerate(allocations):
        for grant in allocation.grants:
            _, devices = taken.get((place, grant.request), (0, 0))
            if grant.device in numbers:  # else the pool was republished without this device
                devices |= 1 << numbers[grant.device]
            taken[place, grant.request] = grant.alternative, devices
    return tuple(
        _leftover(view, ledger, claims, (place, request, alternative), taken)
        for (place, request), (alternative, _) in sorted(taken.items())
    )


def _leftover(
    view: LedgerView,
    ledger: Ledger,
    claims: Sequence[Claim],
    choice: Choice,
    taken: dict[tuple[int, int], tuple[int, int]],
) -> Leftover:
    claim = claims[choice[0]]
    alternative = claim.requests[choice[1]].alternatives[choice[2]]
    own = taken[choice[:2]][1]
    problem = Problem.of(view, claims, [choice], 0, StepBudget(0))
    sieve = _Sieve(view, alternative, own)
    sieve.exclude_unavailable(ledger)
    sieve.exclude_unmatched(problem, problem.slots[0], _agreeing(problem, own))
    for (place, request), (index, devices) in sorted(taken.items()):
        other = claims[place].requests[request].alternatives[index]
        if place == choice[0]:
            sieve.exclude(f"taken by {other.label}", devices)
        elif AccessMode.EXCLUSIVE in (other.mode, alternative.mode) and AccessMode.ADMIN not in (
            other.mode,
            alternative.mode,
        ):
            sieve.exclude(f"taken by claim {claims[place].id}", devices)
    sieve.exclude("not needed", sieve.rest)
    return Leftover(claim.id, alternative.label, own, tuple(sieve.exclusions))


def _agreeing(problem: Problem, taken: int) -> int:
    """Return the set of devices that have the same matched values as the ``taken`` devices.

    Ignore an attribute that the taken devices have lost because their pool was republished.
    """
    found = problem.slots[0].usable | taken
    for place in problem.slots[0].constraints:
        with_value = taken & problem.constraints[place].allowed
        if with_value:
            found &= problem.value_set(place, (with_value & -with_value).bit_length() - 1)
    return found


class _Sieve:
    """Devices that no rule has excluded yet, and the exclusions so far."""

    def __init__(self, view: LedgerView, alternative: Alternative, taken: int = 0) -> None:
        self.exclusions = list(alternative.exclusions)
        self.rest = alternative.eligible & ~taken
        self._view = view
        self._alternative = alternative

    def exclude(self, rule: str, devices: int) -> None:
        """Record ``rule`` as the reason for those devices that no earlier rule excluded."""
        found = self.rest & devices
        if found:
            self.exclusions.append(Exclusion(rule, found))
            self.rest ^= found

    def exclude_unavailable(self, ledger: Ledger) -> None:
        """Exclude devices that other claims use, then devices with too little capacity or
        budget."""
        if self._alternative.mode is AccessMode.ADMIN:
            return
        self._other_claims(ledger)
        for resource in self._alternative.amounts:
            self._capacity(resource)
        self._budgets()

    def _other_claims(self, ledger: Ledger) -> None:
        view = self._view
        sharing = self._alternative.mode is AccessMode.SHARED
        found: dict[str, int] = {}
        for number in bitset.numbers(self.rest & (view.exclusive if sharing else view.in_use)):
            claims = ", ".join(ledger.claims_using(view.inventory.devices[number].key))
            part = "" if view.exclusive >> number & 1 else "partly "
            rule = f"{part}allocated to claim {claims}"
            found[rule] = found.get(rule, 0) | 1 << number
        for rule, devices in found.items():
            self.exclude(rule, devices)

    def _capacity(self, resource: str) -> None:
        view = self._view
        offering = bitset.union(
            kind.devices for kind in view.inventory.kinds if resource in kind.capacity
        )
        self.exclude(f"offers no {resource}", ~offering)
        only = Alternative("", self.rest, AccessMode.SHARED, amounts={resource: 1})
        self.exclude(f"has no {resource} left", self.rest & ~view.shareable(only, self.rest))

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
        """Merge exclusions by the same rule: one rule can exclude several kinds of devices."""
        found: dict[str, int] = {}
        for each in self.exclusions:
            found[each.rule] = found.get(each.rule, 0) | each.devices
        self.exclusions = [Exclusion(rule, devices) for rule, devices in found.items()]

    def exclude_unmatched(self, problem: Problem, slot: Slot, agreeing: int) -> None:
        """Exclude devices without a matched attribute, then devices with a different value.

        The values to compare with are those of the ``agreeing`` devices.
        """
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
