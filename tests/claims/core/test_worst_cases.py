"""The worst known cases of the search: their outcome, and how many steps they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.claims.core.inventory import Device, DeviceKey, Inventory, Pool, PoolKey
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import (
    AccessMode,
    Alternative,
    Cause,
    Claim,
    Infeasible,
    Limits,
    Match,
    Request,
    Solution,
    Undecided,
)
from devicemanager.claims.core.packing import Packing
from devicemanager.claims.core.solve import budget_of, solve
from devicemanager.claims.core.step_budget import StepBudget
from tools.bench import claimcases
from tools.bench.claimcases import ClaimCase


def spread() -> ClaimCase:
    """Three pools, each with two devices and a budget for one: only several pools can serve."""
    pools = [
        Pool(
            PoolKey("d", f"p{pool}"),
            [Device(DeviceKey("d", f"p{pool}", name), {}, {"units": 2}) for name in "ab"],
            {"units": 3},
        )
        for pool in range(3)
    ]
    inventory = Inventory.of(pools)
    return ClaimCase("spread", inventory, (claimcases.claim(inventory, 3),))


def crossed_matches() -> ClaimCase:
    """Two requests match ``numa``, each alone matches ``model``; only the last pool can pay."""
    devices = 4
    pools = [
        Pool(
            PoolKey("d", f"numa-{numa}"),
            [
                Device(
                    DeviceKey("d", f"numa-{numa}", f"{model}-{number}"),
                    {"numa": numa, "model": model},
                    {"units": 1},
                )
                for model in range(5)
                for number in range(devices)
            ],
            {"units": devices if numa == 5 else devices - 1},
        )
        for numa in range(6)
    ]
    inventory = Inventory.of(pools)
    everything = inventory.everything
    requests = [
        Request((Alternative(f"claims[{i}]", everything, count=2, match=("model",)),))
        for i in range(2)
    ]
    return ClaimCase("crossed", inventory, (Claim("c", tuple(requests), (Match("numa"),)),))


@pytest.mark.parametrize(
    ("case", "outcome", "steps", "exact_steps"),
    [
        (claimcases.one_too_few, Infeasible, 12, 12),
        (claimcases.small_groups, Infeasible, 143, 143),
        (claimcases.alternatives_that_collide, Infeasible, 357, 357),
        (claimcases.wide_before_narrow, Solution, 905, 175),
        (claimcases.staircase, Solution, 24830, 465),
        (claimcases.full_cards, Solution, 2673, 189),
        (spread, Solution, 9, 16),
        (crossed_matches, Solution, 595, 307),
    ],
)
def test_worst_cases_take_an_exact_number_of_steps(
    case: Callable[[], ClaimCase], outcome: type, steps: int, exact_steps: int
) -> None:
    """With first fit, and with the exact decision alone.

    A changed number is a changed order or cost of the search. Either one changes which
    searches are cut off, so it must be intended.
    """
    made = case()
    for limits, expected in ((Limits(), steps), (Limits(first_fit=0), exact_steps)):
        found = solve(made.inventory, Ledger(), made.claims, limits)
        assert isinstance(found, outcome)
        assert found.steps == expected
        if isinstance(found, Solution):
            Ledger().commit(made.inventory, found.allocations)


@pytest.mark.parametrize("seed", range(10))
def test_three_dimensional_matching_is_decided(seed: int) -> None:
    made = claimcases.matching_of_triples(seed)
    outcome = solve(made.inventory, Ledger(), made.claims)
    assert isinstance(outcome, Solution)
    assert outcome.steps < 2 * Limits().first_fit
    Ledger().commit(made.inventory, outcome.allocations)
    # Without the devices of one budget, too few others remain.
    (claim,) = made.claims
    (found,) = claim.requests[0].alternatives
    without = sum(
        1 << number
        for number, each in enumerate(made.inventory.devices)
        if "0-0" not in each.charge
    )
    fewer = Claim("c", (Request((evolve(found, eligible=without),)),))
    refused = solve(made.inventory, Ledger(), [fewer])
    assert isinstance(refused, Infeasible)


@given(st.data())
def test_packing_agrees_with_trying_everything(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    sets = st.integers(1, (1 << size) - 1)
    budgets = data.draw(st.lists(sets, max_size=6))
    users = data.draw(st.lists(sets, min_size=1, max_size=2))
    wanted = tuple(data.draw(st.integers(0, 3)) for _ in users)
    found = Packing(budgets, users, size, StepBudget(10**6)).find((1 << size) - 1, wanted)
    assert (found is not None) == any(
        _is_packing(picks, budgets, users, wanted)
        for picks in product((None, *range(len(users))), repeat=size)
    )
    if found is not None:
        chosen = dict(found)
        assert len(chosen) == len(found)
        picks = [chosen.get(number) for number in range(size)]
        assert _is_packing(picks, budgets, users, wanted)


def _is_packing(
    picks: Sequence[int | None],
    budgets: Sequence[int],
    users: Sequence[int],
    wanted: Sequence[int],
) -> bool:
    chosen = {number: demand for number, demand in enumerate(picks) if demand is not None}
    return (
        all(users[demand] >> number & 1 for number, demand in chosen.items())
        and all(sum(each >> number & 1 for number in chosen) <= 1 for each in budgets)
        and [*wanted] == [[*chosen.values()].count(demand) for demand in range(len(users))]
    )


def test_admin_access_is_decided_as_exclusive_access() -> None:
    made = claimcases.staircase()
    (claim,) = made.claims
    requests = [
        evolve(each, alternatives=(evolve(each.alternatives[0], mode=AccessMode.ADMIN),))
        for each in claim.requests
    ]
    outcome = solve(made.inventory, Ledger(), [evolve(claim, requests=tuple(requests))])
    assert isinstance(outcome, Solution)
    (allocation,) = outcome.allocations
    assert len({grant.device for grant in allocation.grants}) == len(requests)


@pytest.mark.parametrize("case", [claimcases.independent_set, claimcases.knapsack])
def test_search_is_cut_off_at_the_same_step_every_time(
    case: Callable[[], ClaimCase],
) -> None:
    made = case()
    for total in (5_000, 20_000):
        outcome = solve(made.inventory, Ledger(), made.claims, Limits(total=total))
        assert outcome == Undecided(total, (("default/c", "claims[0]"),))


def test_default_limits_cut_a_search_off() -> None:
    made = claimcases.independent_set()
    outcome = solve(made.inventory, Ledger(), made.claims)
    assert outcome == Undecided(Limits().total, (("default/c", "claims[0]"),))


def test_partitions_fill_a_node_exactly() -> None:
    inventory = claimcases.partitions(4)
    full = claimcases.partition_claim(inventory, {1: 4, 2: 4, 4: 4})
    outcome = solve(inventory, Ledger(), [full])
    assert isinstance(outcome, Solution)
    assert Limits().first_fit < outcome.steps < 2 * Limits().first_fit
    ledger = Ledger()
    ledger.commit(inventory, outcome.allocations)
    assert [ledger.charged(pool.key)["slices"] for pool in inventory.pools] == [7] * 4
    one_more = claimcases.partition_claim(inventory, {1: 5, 2: 4, 4: 4})
    assert isinstance(solve(inventory, Ledger(), [one_more]), Infeasible)


def test_decide_agrees_with_first_fit() -> None:
    """Without first-fit picks, everything is left to max flow and budgets."""
    inventory = claimcases.partitions(2)
    for ones in range(5):
        for twos in range(4):
            wanted = {size: n for size, n in {1: ones, 2: twos, 4: 1}.items() if n}
            claim = claimcases.partition_claim(inventory, wanted)
            searched = solve(inventory, Ledger(), [claim], Limits(first_fit=10**6, total=10**6))
            decided = solve(inventory, Ledger(), [claim], Limits(first_fit=0))
            assert type(searched) is type(decided)
            if isinstance(decided, Solution):
                Ledger().commit(inventory, decided.allocations)


@pytest.mark.parametrize("hard", [1, 4])
def test_the_reasons_of_a_refusal_share_the_steps_of_the_call(hard: int) -> None:
    """Requests that are hard to decide, beside one that no device can serve."""
    made = claimcases.independent_set()
    found = made.claims[0].requests[0].alternatives[0]
    impossible = evolve(found, label="impossible", eligible=0)
    labels = [f"hard-{number}" for number in range(hard)]
    claims = [
        Claim(each.label, (Request((each,)),))
        for each in (*(evolve(found, label=label) for label in labels), impossible)
    ]
    limits = Limits(total=8_000, explanation=2_000)
    steps = budget_of(limits)
    outcome = solve(made.inventory, Ledger(), claims, limits, steps)
    assert isinstance(outcome, Infeasible)
    assert steps.spent == limits.total + limits.explanation
    causes = {each.label: each.cause for each in outcome.reasons}
    assert causes == dict.fromkeys(labels, Cause.UNEXAMINED) | {"impossible": Cause.DEVICES}


def test_a_search_leaves_steps_for_the_reasons_of_its_refusal() -> None:
    limits = Limits(total=12, explanation=100)
    made = claimcases.one_too_few()
    outcome = solve(made.inventory, Ledger(), made.claims, limits)
    assert isinstance(outcome, Infeasible)
    assert outcome.steps == 12
    assert Cause.UNEXAMINED not in {each.cause for each in outcome.reasons}
    without = solve(made.inventory, Ledger(), made.claims, Limits(total=12, explanation=0))
    assert isinstance(without, Infeasible)
    assert {each.cause for each in without.reasons} == {Cause.UNEXAMINED}


def test_reasons_of_like_requests_need_one_more_search() -> None:
    case = claimcases.alternatives_that_collide()
    steps = budget_of(Limits())
    outcome = solve(case.inventory, Ledger(), case.claims, Limits(), steps)
    assert isinstance(outcome, Infeasible)
    assert {len(each.collides) for each in outcome.reasons} == {11}
    # A search for each of the twelve requests would take more than 5,000 steps.
    assert steps.spent < 2_000
