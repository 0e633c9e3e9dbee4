"""The worst known cases of the search: their outcome, and how many steps they take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import AccessMode, Infeasible, Limits, Solution, Undecided
from devicemanager.claims.core.solve import solve
from tools.bench import claimcases
from tools.bench.claimcases import ClaimCase


@pytest.mark.parametrize(
    ("case", "at_most"),
    [
        (claimcases.one_too_few, 100),
        (claimcases.small_groups, 200),
        (claimcases.alternatives_that_collide, 1_000),
    ],
)
def test_infeasible_worst_cases_take_few_steps(case: Callable[[], ClaimCase], at_most: int) -> None:
    made = case()
    outcome = solve(made.inventory, Ledger(), made.claims)
    assert isinstance(outcome, Infeasible)
    assert outcome.steps <= at_most


@pytest.mark.parametrize(
    ("case", "at_most"),
    [(claimcases.wide_before_narrow, 2_000), (claimcases.staircase, 50_000)],
)
def test_feasible_worst_cases_take_few_steps(case: Callable[[], ClaimCase], at_most: int) -> None:
    made = case()
    outcome = solve(made.inventory, Ledger(), made.claims)
    assert isinstance(outcome, Solution)
    assert outcome.steps <= at_most
    Ledger().commit(made.inventory, outcome.allocations)


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
        assert outcome == Undecided(total)


def test_default_limits_cut_a_search_off() -> None:
    made = claimcases.independent_set()
    assert solve(made.inventory, Ledger(), made.claims) == Undecided(Limits().total)


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
