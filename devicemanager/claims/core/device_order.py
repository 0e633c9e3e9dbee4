"""First fit in device order: the search for ``resource.k8s.io``.

In:  an ``OrderedProblem``: a ``LedgerView``, the claims to allocate together with their
     options, and the step budget. An option is one alternative of a request, with functions that
     check a device.
Out: an answer: one option and its devices for each request, in the order of the requests; None if
     no answer exists. If a check raises an error, the search ends with this error.

The order of answers. Requests are filled in the order of the claims. For each request, the first
option that leads to an answer is used. An option gets its devices in ascending order of their
numbers: first the device with the lowest number that leads to an answer, then the next such
device, and so on.
"""

# Unlike ``first_fit``, this search checks a device only when it reaches it. An error in a check
# fails the call, so devices after the answer must not be checked (``allocateOne`` of
# structured/internal/incubating, v1.37). In ``first_fit``, the matching devices are known before
# the search, and a request can divide amounts among several devices.
#
# The search runs at most twice:
#
# 1. As upstream, device by device, up to a pick limit. Nearly all calls end here.
# 2. With ``_Pruning``, which checks all devices first. If no check raises an error, the search can
#    skip parts of the tree without an answer: they cannot contain an error either.
#
# The recursion over claims, requests and devices is a stack of generators (``_Search.run``),
# because a pod with many claims exceeds Python's recursion limit. A generator yields the generator
# of the next part, and receives its failure. While a generator is suspended, its pick is in effect.
# When it resumes, it undoes the pick.

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

import attrs

from devicemanager.claims.core import max_flow
from devicemanager.claims.core.compatibility import CommonGroups, Groups
from devicemanager.claims.core.inventory import Amounts
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.step_budget import FirstFitCutOffError, StepBudget
from devicemanager.core import bitset

Values = frozenset[Hashable]
"""Values of an attribute of a device: one, or several for a list."""


class Constraint(Protocol):
    """Rule about the devices of several requests of one claim. Methods add and remove these
    devices.

    ``request`` is the index of a request. ``values`` are a device's values of the attribute that
    the rule compares. A device without this attribute violates the rule.
    """

    def add(self, request: int, values: Values) -> bool:
        """Add a device and return True. If this would violate the rule, only return False."""

    def remove(self, request: int) -> None:
        """Remove the device that was added last. ``request`` must be the request of this device."""


@attrs.define(eq=False)
class Match:
    """Constraint that all devices share a value of an attribute (``matchAttribute``)."""

    common: list[Values] = attrs.field(factory=list)
    """For each added device, the values that it shares with all earlier devices."""

    def add(self, request: int, values: Values) -> bool:
        """Add a device if it shares a value with all devices added so far. Return True if it was
        added."""
        if self.common:
            values &= self.common[-1]
            if not values:
                return False
        self.common.append(values)
        return True

    def remove(self, request: int) -> None:
        """Remove the device that was added last."""
        self.common.pop()


@attrs.define(eq=False)
class Distinct:
    """Constraint that no two devices share a value of an attribute (``distinctAttribute``)."""

    seen: list[Values] = attrs.field(factory=list)
    """Values of each added device."""

    def add(self, request: int, values: Values) -> bool:
        """Add a device if its values differ from those of all devices added so far. Return True if
        the device was added."""
        if not are_distinct(values, self.seen):
            return False
        self.seen.append(values)
        return True

    def remove(self, request: int) -> None:
        """Remove the device that was added last."""
        self.seen.pop()


def are_distinct(values: Values, others: Sequence[Values]) -> bool:
    """True if ``values`` has no value in common with any set in ``others``.

    ``values`` is empty if the attribute is an empty list. Such a list has no known type, so it
    cannot be compared. The result is then True only if ``others`` is empty too.
    """
    return not others or (bool(values) and all(values.isdisjoint(each) for each in others))


class Compared(NamedTuple):
    """Constraint of an option, with a function that reads the compared values of a device."""

    constraint: int
    """Index of the constraint in its claim."""
    values: Callable[[int], Values | None]
    """Function that returns the compared values of a device, given by its number.

    None means that the device lacks the attribute. An error of the function ends the search.
    """


@attrs.frozen(eq=False)
class Option:
    """One alternative of a request."""

    count: int
    """Number of devices that the option needs."""
    accepts: Callable[[int], bool]
    """Function that returns True if a device, given by its number, is a candidate. An error of the
    function ends the search."""
    permits: Callable[[int], bool]
    """Function that returns True if the option may use a candidate, given by its number. For
    example, the candidate's taints must be tolerated."""
    consumes: Callable[[int], Amounts]
    """Function that returns the amounts that the option consumes of a device, given by its number.

    The keys of the result are the names of capacities.
    """
    constraints: tuple[Compared, ...] = ()
    every: tuple[int, ...] | None = None
    """Numbers of all devices that the option needs, for ``allocationMode: All``.

    The search does not call ``accepts`` for these devices. None means that the option needs any
    ``count`` accepted devices.
    """
    is_admin: bool = False
    """True for admin access: the option can use devices that other claims use."""


@attrs.frozen(eq=False)
class OrderedClaim:
    """Claim as input of the search: its requests with their options, and its constraints."""

    requests: tuple[tuple[Option, ...], ...]
    """The options of each request, in order of preference."""
    constraints: tuple[Callable[[], Constraint], ...] = ()
    """Functions that create the constraints of the claim. Each search creates new constraints."""


@attrs.frozen(eq=False)
class OrderedProblem:
    """Claims that a search must satisfy together, with the devices and limits of the search."""

    view: LedgerView
    claims: tuple[OrderedClaim, ...]
    steps: StepBudget
    limit: int
    """Maximum number of devices per claim."""
    shareable: int = 0
    """The set of devices that any number of claims can share."""
    shared: int = 0
    """The set of shareable devices that were in use before the search. Their counters are already
    charged."""
    totals: Callable[[int], Amounts] = lambda number: {}
    """Function that returns the capacities of a device, given by its number.

    The result maps the name of each capacity to its total amount in nano-units.
    """
    budget_of: Callable[[int], Hashable] = lambda pool: pool
    """Function that returns a key for the budgets of a pool, given the index of the pool.

    Pools with equal keys share their budgets. By default, each pool has its own budgets.
    """
    keeps_reservations: bool = False
    """True to reproduce a bug of the scheduler: the counters of a rejected device stay reserved. So
    do the counters of a shareable device whose pick is undone."""
    groups: Groups = attrs.field(factory=Groups)
    """Compatibility groups of the devices. By default, all devices are compatible."""

    def answer(self, picks: int) -> list[list[Pick]] | None:
        """Return the picked devices of each claim; None if no answer exists.

        The first search can make at most ``picks`` picks. If it reaches this limit, a second search
        starts from the beginning. The second search has no limit, and skips combinations of devices
        that cannot be an answer. If ``keeps_reservations`` is True, the first search has no limit.

        Raises OutOfStepsError if the step budget is spent. Raises EveryError if a constraint
        excludes a device of an option with ``allocationMode: All``.
        """
        self.steps.begin_first_fit(None if self.keeps_reservations else picks)
        try:
            return _Search(self, None).run()
        except FirstFitCutOffError:
            self.steps.begin_first_fit(None)
        pruning = _Pruning.of(self)
        if pruning is not None and len(self.claims) > 1:
            numbers = range(len(self.claims))
            pruning.impossible.update(each for each in numbers if not self._fits_alone(each))
        return _Search(self, pruning).run()

    def _fits_alone(self, claim: int) -> bool:
        """True if the claim fits without the other claims. If not, the claims do not fit
        together."""
        alone = attrs.evolve(self, claims=self.claims[claim : claim + 1])
        try:
            return _Search(alone, _Pruning.of(alone)).run() is not None
        except EveryError:
            return True  # the search must find this error, or an earlier one


class Pick(NamedTuple):
    """Device that the search picks for a request."""

    request: int
    """Index of the request in its claim."""
    option: int
    """Index of the option in its request."""
    number: int
    """Number of the device in the inventory."""


class EveryError(Exception):
    """Error if a constraint excludes a device of an option with ``allocationMode: All``."""

    def __init__(self, claim: int, request: int, option: int, number: int) -> None:
        super().__init__(claim, request, option, number)
        self.claim, self.request, self.option, self.number = claim, request, option, number


class _Failure(enum.Enum):
    """Reason why a part of the search has no answer."""

    NONE_LEFT = enum.auto()
    """No devices are left to try."""
    TOO_MANY = enum.auto()
    """The claim would get too many devices, whichever devices its earlier requests get."""


_Part = Generator["_Part | None", _Failure | None, _Failure]
"""Part of the search. It yields the next part, or None if the answer is complete."""


@attrs.frozen(eq=False)
class _Taken:
    """Device that the search has picked, with the changes to undo."""

    number: int
    constraints: int
    """Number of constraints to which the device was added."""
    charges: bool
    """True if the device's counters are reserved."""
    amounts: Amounts
    """Amounts of the device's capacities that the pick consumes."""


class _Search:
    """Depth-first search over claims, requests, options and devices."""

    def __init__(self, problem: OrderedProblem, pruning: _Pruning | None) -> None:
        self._problem = problem
        self._claims = problem.claims
        self._view = problem.view
        self._devices = problem.view.inventory.devices
        self._kinds = problem.view.inventory.kind_of
        self._pruning = pruning
        self._constraints = [[make() for make in claim.constraints] for claim in problem.claims]
        self._picks: list[list[Pick]] = [[] for _ in problem.claims]
        self._taken = [0] * len(problem.claims)
        self._taken_by_any = 0
        # Amounts that each shareable device has given to picks, one mapping per pick.
        self._shares: dict[int, list[Amounts]] = {}
        self._budgets: dict[Hashable, dict[str, int] | None] = {}
        self._groups = CommonGroups(problem.groups)

    def run(self) -> list[list[Pick]] | None:
        stack = [self._claim(0)]
        failure: _Failure | None = None
        while stack:
            try:
                part = stack[-1].send(failure)
            except StopIteration as end:
                failure = end.value
                stack.pop()
                continue
            if part is None:
                return self._picks
            stack.append(part)
            failure = None
        return None

    def _claim(self, claim: int) -> _Part:
        """Fill a claim and all later claims."""
        yield self._request(claim, 0) if claim < len(self._claims) else None
        # The claim has too many devices. With other options in earlier claims, it can have fewer.
        return _Failure.NONE_LEFT

    def _request(self, claim: int, request: int) -> _Part:
        """Fill a request of a claim, and all later requests."""
        requests = self._claims[claim].requests
        if request == len(requests):
            return (yield self._claim(claim + 1)) or _Failure.NONE_LEFT
        result = _Failure.TOO_MANY
        for index in range(len(requests[request])):
            failure = yield self._option(claim, request, index)
            if failure is not _Failure.TOO_MANY:
                result = _Failure.NONE_LEFT
        return result

    def _option(self, claim: int, request: int, index: int) -> _Part:
        option = self._claims[claim].requests[request][index]
        if self._pruning is not None and self._pruning.is_hopeless(
            claim, request, index, self._blocked()
        ):
            return _fail()
        if option.every is None:
            return self._some(claim, request, index, option.count, 0)
        if not option.every:
            return _fail()
        return self._every(claim, request, index, 0)

    def _some(self, claim: int, request: int, index: int, count: int, start: int) -> _Part:
        """Pick ``count`` more devices with numbers from ``start`` on."""
        if not count:
            return (yield self._request(claim, request + 1)) or _Failure.NONE_LEFT
        if count > self._problem.limit - len(self._picks[claim]):
            return _Failure.TOO_MANY
        option = self._claims[claim].requests[request][index]
        tried: set[int] = set()
        for number in self._candidates(claim, request, index, count, start):
            if self._is_like(number, tried) or not option.accepts(number):
                continue
            taken = self._take(claim, request, index, number)
            if taken is not None:
                failure = yield self._some(claim, request, index, count - 1, number + 1)
                self._undo(claim, request, index, taken)
                if failure is _Failure.TOO_MANY:
                    return failure
            self._note(number, tried)
        return _Failure.NONE_LEFT

    def _every(self, claim: int, request: int, index: int, place: int) -> _Part:
        """Pick all devices of an option that needs all of them, from index ``place`` on."""
        every = self._claims[claim].requests[request][index].every or ()
        if place == len(every):
            return (yield self._request(claim, request + 1)) or _Failure.NONE_LEFT
        if len(every) - place > self._problem.limit - len(self._picks[claim]):
            return _Failure.TOO_MANY
        taken = self._take(claim, request, index, every[place])
        if taken is None:
            return _Failure.NONE_LEFT
        failure = yield self._every(claim, request, index, place + 1)
        self._undo(claim, request, index, taken)
        return failure or _Failure.NONE_LEFT

    def _blocked(self) -> int:
        """Return the set of devices that are allocated or that this search has picked."""
        return self._view.exclusive | self._taken_by_any

    def _candidates(
        self, claim: int, request: int, index: int, count: int, start: int
    ) -> Iterator[int]:
        option = self._claims[claim].requests[request][index]
        devices = self._view.inventory.everything
        if self._pruning is not None:
            devices = self._pruning.accepted[claim][request][index]
        blocked = self._taken[claim] if option.is_admin else self._blocked()
        rest = (devices & ~blocked) >> start << start
        if self._pruning is not None and rest.bit_count() < count:
            return
        while rest:
            low = rest & -rest
            yield low.bit_length() - 1
            rest ^= low

    def _is_like(self, number: int, tried: set[int]) -> bool:
        """True if an interchangeable device has already failed."""
        return (
            self._pruning is not None
            and self._pruning.kind_of[number] in tried
            and self._is_untouched(number)
        )

    def _note(self, number: int, tried: set[int]) -> None:
        if self._pruning is not None and self._is_untouched(number):
            tried.add(self._pruning.kind_of[number])

    def _is_untouched(self, number: int) -> bool:
        return not self._taken_by_any >> number & 1 and number not in self._shares

    def _take(self, claim: int, request: int, index: int, number: int) -> _Taken | None:
        """Pick a device. Return None, without a change, if that is impossible. Raises EveryError if
        the option needs the device but a constraint excludes it."""
        problem, option = self._problem, self._claims[claim].requests[request][index]
        problem.steps.pick()
        bit = 1 << number
        if bit & (self._taken[claim] if option.is_admin else self._blocked()):
            return None
        amounts = option.consumes(number)
        if option.every is None and not self._has_room(number, amounts):
            return None
        shares = bool(problem.shareable & bit)
        charges = bool(self._devices[number].charge) and not (
            shares and (bit & problem.shared or number in self._shares)
        )
        if charges and not self._reserve(number):
            return None
        known = 0
        if option.permits(number):
            known = self._add(claim, request, option, number)
            if known == len(option.constraints) and self._has_room(number, amounts):
                self._mark(claim, request, index, number, shares, amounts)
                return _Taken(number, known, charges, amounts)
            self._remove(claim, request, option, known)
            if option.every is not None and known < len(option.constraints):
                raise EveryError(claim, request, index, number)
        if charges:
            self._release(number, problem.keeps_reservations)
        return None

    def _add(self, claim: int, request: int, option: Option, number: int) -> int:
        """Add a device to the constraints, up to the first violation. Return the number of
        additions."""
        own = self._constraints[claim]
        for place, (constraint, values_of) in enumerate(option.constraints):
            values = values_of(number)
            if values is None or not own[constraint].add(request, values):
                return place
        return len(option.constraints)

    def _remove(self, claim: int, request: int, option: Option, count: int) -> None:
        for constraint, _ in reversed(option.constraints[:count]):
            self._constraints[claim][constraint].remove(request)

    def _mark(
        self, claim: int, request: int, index: int, number: int, shares: bool, amounts: Amounts
    ) -> None:
        if shares:
            self._shares.setdefault(number, []).append(amounts)
        else:
            self._taken[claim] |= 1 << number
            self._taken_by_any |= 1 << number
        self._picks[claim].append(Pick(request, index, number))

    def _undo(self, claim: int, request: int, index: int, taken: _Taken) -> None:
        number, option = taken.number, self._claims[claim].requests[request][index]
        self._picks[claim].pop()
        shares = number in self._shares
        if shares:
            self._shares[number].pop()
            if not self._shares[number]:
                del self._shares[number]
        else:
            self._taken[claim] ^= 1 << number
            self._taken_by_any = bitset.union(self._taken)
        self._remove(claim, request, option, taken.constraints)
        if taken.charges:
            self._release(number, shares and self._problem.keeps_reservations)

    def _has_room(self, number: int, amounts: Amounts) -> bool:
        """True if a device has these amounts of capacity left."""
        if not amounts:
            return True
        used = [self._view.allocated.get(number, {}), *self._shares.get(number, ())]
        totals = self._problem.totals(number)
        return all(
            amount + sum(each.get(name, 0) for each in used) <= totals[name]
            for name, amount in amounts.items()
        )

    def _reserve(self, number: int) -> bool:
        """Charge a device to its budget.

        Return False if the budget is too small, or if the device is incompatible with another
        device that charges the same budget.
        """
        budget = self._budget(number)
        charge = self._devices[number].charge
        # An overdrawn budget blocks all devices that charge it.
        if budget is None or any(
            budget.get(name, amount) < amount for name, amount in charge.items()
        ):
            return False
        if not self._groups.add(number):
            return False
        for name, amount in charge.items():
            if name in budget:
                budget[name] -= amount
        return True

    def _release(self, number: int, keeps_counters: bool) -> None:
        self._groups.remove(number)
        budget = self._budget(number)
        if budget is not None and not keeps_counters:
            for name, amount in self._devices[number].charge.items():
                if name in budget:
                    budget[name] += amount

    def _budget(self, number: int) -> dict[str, int] | None:
        """Return the headroom of a device's budget by counter name; None if a counter of the budget
        is already overdrawn."""
        pool = self._kinds[number].pool
        key = self._problem.budget_of(pool)
        if key not in self._budgets:
            left = dict(self._view.headroom[pool])
            self._budgets[key] = None if any(each < 0 for each in left.values()) else left
        return self._budgets[key]


def _fail() -> _Part:
    return _Failure.NONE_LEFT
    yield None


@attrs.frozen(eq=False)
class _Pruning:
    """Facts by which the search skips parts that contain neither an answer nor an error."""

    problem: OrderedProblem
    accepted: tuple[tuple[tuple[int, ...], ...], ...]
    """The set of candidates that each option may use, indexed by claim, request and option."""
    kind_of: Sequence[int]
    """Kind of each device. Devices of one kind are interchangeable for every option."""
    last_error: tuple[int, int]
    """Last request that can cause an EveryError: index of its claim, and its index in this claim.

    (-1, -1) if no request can cause this error.
    """
    impossible: set[int] = attrs.field(factory=set)
    """Indexes of the claims that have no answer even without the other claims."""

    @classmethod
    def of(cls, problem: OrderedProblem) -> _Pruning | None:
        """Check all devices for all options. Return None if a check raises an error."""
        options = [
            [[cls._accepted(problem, option) for option in request] for request in claim.requests]
            for claim in problem.claims
        ]
        if any(each is None for claim in options for request in claim for each in request):
            return None
        accepted = tuple(
            tuple(tuple(each or 0 for each in request) for request in claim) for claim in options
        )
        errors = [
            (place, number)
            for place, claim in enumerate(problem.claims)
            for number, request in enumerate(claim.requests)
            if any(_can_fail(option) for option in request)
        ]
        return cls(problem, accepted, _kinds(problem, accepted), max(errors, default=(-1, -1)))

    @staticmethod
    def _accepted(problem: OrderedProblem, option: Option) -> int | None:
        count = len(problem.view.inventory.devices)
        problem.steps.spend(count // 8)
        try:
            if option.every is not None:
                found = bitset.of(option.every)
            else:
                found = bitset.from_flags(
                    [option.accepts(each) and option.permits(each) for each in range(count)]
                )
            for compared in option.constraints:
                for number in bitset.numbers(found):
                    compared.values(number)
        except Exception:
            # The search must find the error itself, or an answer before it.
            return None
        return found

    def is_hopeless(self, claim: int, request: int, index: int, blocked: int) -> bool:
        """True if an option leads neither to an answer nor to an error.

        ``blocked``: the set of devices that are already picked.
        """
        option = self.problem.claims[claim].requests[request][index]
        if (claim, request) < self.last_error or _can_fail(option):
            return False
        if any(each >= claim for each in self.impossible):
            return True
        demands = []
        for place in range(claim, len(self.problem.claims)):
            first = request if place == claim else 0
            for number in range(first, len(self.accepted[place])):
                only = index if (place, number) == (claim, request) else None
                demand = self._demand(place, number, only, blocked)
                if demand is None:
                    return True
                # A shareable device can serve several requests.
                if not demand[0] & self.problem.shareable:
                    demands.append(demand)
        total = sum(count for _, count in demands)
        if all(devices.bit_count() >= total for devices, _ in demands):
            return False
        return not max_flow.fits(demands, self.problem.steps)

    def _demand(
        self, claim: int, request: int, only: int | None, blocked: int
    ) -> max_flow.Demand | None:
        """Return the devices that a request can use, and the minimum number that it needs.

        ``only``: index of the option to consider; None means all. Return None if no option has
        enough devices.
        """
        options = self.problem.claims[claim].requests[request]
        devices, counts = 0, list[int]()
        for number, option in enumerate(options):
            if only not in (None, number):
                continue
            accepted = self.accepted[claim][request][number]
            usable = accepted if option.is_admin else accepted & ~blocked
            if usable.bit_count() < option.count or (option.every is not None and not accepted):
                continue
            devices |= usable
            # Admin access does not use up a device.
            counts.append(0 if option.is_admin else option.count)
        return (devices, min(counts)) if counts else None


def _can_fail(option: Option) -> bool:
    """True if an option needs all its devices and a constraint can exclude one of them."""
    return option.every is not None and bool(option.constraints)


def _kinds(problem: OrderedProblem, accepted: tuple[tuple[tuple[int, ...], ...], ...]) -> list[int]:
    """Return the kind of each device. Interchangeable devices have the same kind."""
    inventory, view = problem.view.inventory, problem.view
    flat = [
        (each, option)
        for claim, requests in zip(accepted, problem.claims, strict=True)
        for group, options in zip(claim, requests.requests, strict=True)
        for each, option in zip(group, options, strict=True)
    ]
    compared: dict[Callable[[int], Values | None], int] = {}
    for each, option in flat:
        for _, values in option.constraints:
            compared[values] = compared.get(values, 0) | each
    own = bitset.union(each for each, option in flat if option.every is not None)
    numbers: dict[Hashable, int] = {}
    found = []
    for number, kind in enumerate(inventory.kind_of):
        key = (
            id(kind),
            problem.shareable >> number & 1,
            problem.shared >> number & 1,
            view.exclusive >> number & 1,
            # Devices of an option that needs all of them are not interchangeable.
            number if own >> number & 1 or number in view.allocated else -1,
            tuple([each >> number & 1 for each, _ in flat]),
            frozenset(problem.totals(number).items()),
            tuple([frozenset(option.consumes(number).items()) for _, option in flat]),
            tuple([each >> number & 1 and values(number) for values, each in compared.items()]),
            problem.groups.declared.get(number),
        )
        found.append(numbers.setdefault(key, len(numbers)))
    problem.steps.spend(len(found) // 8)
    return found
