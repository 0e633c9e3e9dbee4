"""First fit in device order: the same answers as trying everything, and no wrong refusals."""

from __future__ import annotations

from itertools import combinations, product

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.claims.core.compatibility import Groups, groups_of
from devicemanager.claims.core.device_order import (
    Compared,
    Distinct,
    EveryError,
    Match,
    Option,
    OrderedClaim,
    OrderedProblem,
    Pick,
)
from devicemanager.claims.core.inventory import (
    Device,
    DeviceKey,
    Inventory,
    Pool,
    PoolKey,
)
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import AccessMode, Allocation, Grant
from devicemanager.claims.core.step_budget import OutOfStepsError, StepBudget

PLAIN, PRUNED = 10**6, 0
"""Picks after which the search prunes: never, and at once."""


@attrs.frozen
class Case:
    """A problem as plain data, which brute force reads."""

    charges: tuple[int, ...]
    """By device: what it consumes of the only counter."""
    shareable: tuple[bool, ...]
    values: tuple[str | None, ...]
    """By device: the value of the only attribute."""
    budget: int
    in_use: frozenset[int]
    claims: tuple[tuple[tuple[tuple[int, frozenset[int], int], ...], ...], ...]
    """By claim and request: options of count, accepted devices, and consumed capacity."""
    constraints: tuple[type[Match] | type[Distinct] | None, ...]
    """By claim."""
    groups: tuple[str, ...] = ()
    """By device: its compatibility groups, one letter each. Empty means that no device matters."""
    total: int = 3
    """Capacity of each shareable device."""

    def problem(self) -> OrderedProblem:
        pool = PoolKey("d", "p")
        devices = [
            Device(
                DeviceKey(*pool, f"d{number}"),
                {},
                {"c": charge} if charge else {},
            )
            for number, charge in enumerate(self.charges)
        ]
        inventory = Inventory.in_order([Pool(pool, devices, {"c": self.budget})])
        ledger = Ledger()
        ledger.commit(
            inventory,
            [
                Allocation(f"x{n}", (Grant(devices[n].key, 0, 0, "", AccessMode.EXCLUSIVE),))
                for n in self.in_use
            ],
        )
        claims = tuple(map(self.ordered, range(len(self.claims))))
        shareable = sum(1 << n for n, shares in enumerate(self.shareable) if shares)
        steps = StepBudget(10**6)
        view = LedgerView.of(inventory, ledger)
        declared = {
            n: (("set", groups_of(own)),) for n, own in enumerate(self.groups) if self.charges[n]
        }
        groups = Groups.of(declared, [declared[n] for n in self.in_use if n in declared])
        totals = {"m": self.total}
        return OrderedProblem(
            view, claims, steps, 4, shareable, totals=lambda number: totals, groups=groups
        )

    def ordered(self, claim: int) -> OrderedClaim:
        constraint = self.constraints[claim]
        known = () if constraint is None else (Compared(0, self.values_of),)
        requests = tuple(
            tuple(self.option(*each, known) for each in request) for request in self.claims[claim]
        )
        return OrderedClaim(requests, () if constraint is None else (constraint,))

    def option(self, count, accepted, amount, known) -> Option:
        return Option(
            count,
            accepted.__contains__,
            lambda number: True,
            lambda number: {"m": amount} if self.shareable[number] else {},
            known,
        )

    def values_of(self, number: int) -> frozenset[str] | None:
        value = self.values[number]
        return None if value is None else frozenset({value})

    def first_answer(self) -> list[list[Pick]] | None:
        """Try everything, in the documented order."""
        requests = [(c, r) for c, claim in enumerate(self.claims) for r in range(len(claim))]
        ways = [
            [
                (option, devices)
                for option, (count, accepted, _) in enumerate(self.claims[c][r])
                for devices in combinations(range(len(self.charges)), count)
                if accepted.issuperset(devices)
            ]
            for c, r in requests
        ]
        for chosen in product(*ways):
            picks = [
                (c, Pick(r, option, number))
                for (c, r), (option, devices) in zip(requests, chosen, strict=True)
                for number in devices
            ]
            if self.is_valid(picks):
                return [[pick for c, pick in picks if c == n] for n in range(len(self.claims))]
        return None

    def is_valid(self, picks: list[tuple[int, Pick]]) -> bool:
        numbers = [pick.number for _, pick in picks]
        for number in set(numbers):
            amounts = [
                self.claims[c][pick.request][pick.option][2]
                for c, pick in picks
                if pick.number == number
            ]
            if number in self.in_use:
                return False
            if len(amounts) > 1 and not self.shareable[number]:
                return False
            if self.shareable[number] and sum(amounts) > self.total:
                return False
        used = sum(self.charges[n] for n in self.in_use)
        charged = sum(self.charges[n] for n in set(numbers))
        if used + charged > self.budget and any(self.charges[n] for n in numbers):
            return False
        if not self.are_compatible({n for n in {*numbers, *self.in_use} if self.charges[n]}):
            return False
        for c in range(len(self.claims)):
            own = [pick.number for claim, pick in picks if claim == c]
            values = [self.values[n] for n in own]
            constraint = self.constraints[c]
            if len(own) > 4 or (constraint is not None and None in values):
                return False
            if constraint is Match and len(set(values)) > 1:
                return False
            if constraint is Distinct and len(set(values)) < len(values):
                return False
        return True

    def are_compatible(self, charging: set[int]) -> bool:
        """True if the devices that charge the counter have a common group, or none has groups."""
        own = [set(self.groups[n]) for n in charging if self.groups]
        return not any(own) or bool(set.intersection(*own))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 5))

    def per_device(values):
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    charges = per_device(st.sampled_from((0, 1, 1, 2)) if draw(st.booleans()) else st.just(0))
    shareable = per_device(st.sampled_from((False, False, True)))
    everything = st.just(frozenset(range(count)))
    accepted = st.one_of(everything, everything, st.frozensets(st.integers(0, count - 1)))
    options = st.tuples(st.sampled_from((1, 2, 2, 3, 0)), accepted, st.integers(0, 3))
    requests = st.lists(options, min_size=1, max_size=2).map(tuple)
    claims = tuple(
        draw(
            st.lists(st.lists(requests, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2)
        )
    )
    exclusive = [n for n in range(count) if not shareable[n]]
    in_use = frozenset(draw(st.sets(st.sampled_from(exclusive), max_size=1)) if exclusive else ())
    budget = draw(st.integers(sum(charges[n] for n in in_use), 6))
    constraints = tuple(draw(st.sampled_from((None, Match, Match, Distinct))) for _ in claims)
    # Few values and groups: a search must often undo its first devices.
    values = per_device(st.sampled_from(("a", "b", "b", "b", None)))
    groups = per_device(st.sampled_from(("", "f", "h", "fh"))) if draw(st.booleans()) else ()
    return Case(charges, shareable, values, budget, in_use, claims, constraints, groups)


@pytest.mark.parametrize("picks", [PLAIN, PRUNED])
@given(case=cases())
def test_the_first_answer_is_found_and_refusals_are_true(case, picks):
    assert case.problem().answer(picks) == case.first_answer()


def simple(*claims, constraints=None, values=None, count=4, **others) -> Case:
    return Case(
        (0,) * count,
        (False,) * count,
        values or (None,) * count,
        0,
        frozenset(),
        claims,
        constraints or (None,) * len(claims),
        **others,
    )


def want(count, devices="0123") -> tuple[int, frozenset[int], int]:
    return count, frozenset(map(int, devices)), 0


def numbers(found) -> list[list[int]]:
    return [[pick.number for pick in claim] for claim in found]


@pytest.mark.parametrize("picks", [PLAIN, PRUNED])
def test_an_earlier_request_gives_way_to_a_later_one(picks):
    case = simple(((want(1),), (want(1, "0"),)))
    assert numbers(case.problem().answer(picks)) == [[1, 0]]


@pytest.mark.parametrize("picks", [PLAIN, PRUNED])
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (simple(((want(2),),), constraints=(Match,), values=("a", "b", "b", None)), [[1, 2]]),
        (
            simple(
                ((want(1),), (want(1, "0"),)),
                constraints=(Distinct,),
                values=("a", "a", "b", None),
            ),
            [[2, 0]],
        ),
        (
            attrs.evolve(
                simple(((want(2),),), count=4),
                charges=(1,) * 4,
                budget=4,
                groups=("f", "h", "h", ""),
            ),
            [[1, 2]],
        ),
        (
            attrs.evolve(simple(((want(1),), (want(1, "0"),))), charges=(2,) * 4, budget=4),
            [[1, 0]],
        ),
        (
            attrs.evolve(
                simple((((1, frozenset({0, 1}), 2),), ((1, frozenset({0}), 2),))),
                shareable=(True,) * 4,
            ),
            [[1, 0]],
        ),
    ],
    ids=["match", "distinct", "groups", "counters", "capacity"],
)
def test_devices_that_the_search_gives_back_leave_nothing_behind(case, expected, picks):
    assert numbers(case.problem().answer(picks)) == expected
    assert numbers(case.first_answer()) == expected


def test_a_device_behind_the_answer_is_not_checked():
    seen = []
    case = simple(((want(1),),))
    problem = case.problem()
    option = attrs.evolve(
        problem.claims[0].requests[0][0], accepts=lambda number: not seen.append(number)
    )
    problem = attrs.evolve(problem, claims=(OrderedClaim(((option,),)),))
    assert numbers(problem.answer(PLAIN)) == [[0]]
    assert seen == [0]


@pytest.mark.parametrize("picks", [PLAIN, PRUNED])
def test_an_error_of_a_check_ends_the_search(picks):
    def accepts(number):
        if number == 2:
            raise LookupError
        return number == 0

    problem = simple(((want(2),),)).problem()
    option = attrs.evolve(problem.claims[0].requests[0][0], accepts=accepts)
    problem = attrs.evolve(problem, claims=(OrderedClaim(((option,),)),))
    with pytest.raises(LookupError):
        problem.answer(picks)


@pytest.mark.parametrize("picks", [PLAIN, PRUNED])
def test_an_option_that_needs_every_device_raises_for_a_constraint(picks):
    case = simple(((want(1),), (want(1),)), constraints=(Match,), values=("a", "a", "b", "b"))
    problem = case.problem()
    exact = attrs.evolve(problem.claims[0].requests[1][0], every=(1, 2), count=2)
    claim = attrs.evolve(problem.claims[0], requests=(problem.claims[0].requests[0], (exact,)))
    with pytest.raises(EveryError) as raised:
        attrs.evolve(problem, claims=(claim,)).answer(picks)
    assert (raised.value.claim, raised.value.request, raised.value.number) == (0, 1, 2)


def test_pruning_does_not_hide_an_error_of_an_option_that_needs_every_device():
    # The last claim can never fit, but the search reaches the error first.
    case = simple(
        ((want(1),), (want(1),)),
        ((want(1, ""),),),
        constraints=(Match, None),
        values=("a", "a", "b", "b"),
    )
    problem = case.problem()
    exact = attrs.evolve(problem.claims[0].requests[1][0], every=(1, 2), count=2)
    claim = attrs.evolve(problem.claims[0], requests=(problem.claims[0].requests[0], (exact,)))
    with pytest.raises(EveryError):
        attrs.evolve(problem, claims=(claim, problem.claims[1])).answer(PRUNED)


def test_too_many_devices_lead_to_an_option_with_fewer():
    case = simple(((want(3),), (want(2), want(1, "3"))), ((want(1, ""), want(0)),))
    found = case.problem().answer(PLAIN)
    assert numbers(found) == [[0, 1, 2, 3], []]
    assert found[0][-1].option == 1


def test_pruning_decides_what_trying_everything_cannot():
    """20 equal devices for 3 requests of 5, and a claim that never fits: 10^11 ways."""
    everything = frozenset(range(20))
    requests = (((5, everything, 0),),) * 3
    case = simple(requests, (((2, frozenset({7}), 0),),), count=20)
    problem = attrs.evolve(case.problem(), steps=StepBudget(20_000), limit=32)
    assert problem.answer(2_000) is None


def test_a_claim_that_never_fits_ends_the_search_for_all():
    """The last claim has enough devices, but no two with one value."""
    everything = frozenset(range(20))
    values = tuple(f"v{n}" for n in range(20))
    requests = (((5, everything, 0),),) * 3
    constraints = (None, Match)
    case = simple(
        requests, (((2, everything, 0),),), constraints=constraints, values=values, count=20
    )
    problem = attrs.evolve(case.problem(), steps=StepBudget(20_000), limit=32)
    assert problem.answer(2_000) is None


def test_a_spent_budget_is_not_a_refusal():
    everything = frozenset(range(20))
    values = tuple(f"v{n % 10}" for n in range(20))
    case = simple((((11, everything, 0),),), constraints=(Distinct,), values=values, count=20)
    problem = attrs.evolve(case.problem(), steps=StepBudget(3_000), limit=32)
    with pytest.raises(OutOfStepsError):
        problem.answer(1_000)


def test_many_claims_do_not_exceed_the_recursion_limit():
    everything = frozenset(range(1500))
    case = simple(*([(((25, everything, 0),),)] * 60), count=1500)
    problem = attrs.evolve(case.problem(), steps=StepBudget(10**6), limit=32)
    assert [len(picks) for picks in problem.answer(10**6)] == [25] * 60
