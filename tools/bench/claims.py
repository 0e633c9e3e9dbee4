"""Benchmark structured claims: the search compared with a plain search, and whole allocations.

The code never waits, so the times are CPU times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Solution
from devicemanager.claims.core.solve import solve
from tools.bench import claimcases, claimobjects
from tools.bench.backtracking import backtrack
from tools.bench.claimcases import ClaimCase
from tools.bench.clock import computed, in_turns
from tools.bench.memory import resident
from tools.bench.model import Case, Measurement, Scale

_PICKS: Final = 100_000
"""Limit of devices that the plain search tries. The allocator has the same step limit."""
_FEWEST: Final = 200
"""Number of devices on the smallest node, which needs groups of at least 8 matching devices."""
_GOALS: Final[dict[Callable[[], ClaimCase], float]] = {
    claimcases.one_too_few: 10,
    claimcases.small_groups: 10,
    claimcases.wide_before_narrow: 100,
    claimcases.independent_set: 1_000,
    claimcases.matching_of_triples: 25,
    claimcases.alternatives_that_collide: 10,
    claimcases.staircase: 100,
    claimcases.knapsack: 1_000,
}
"""Goals for the medians, in ms."""


def cases(scale: Scale) -> list[Case]:
    """Return the cases: typical, large and hard claims, and the ledger."""
    few = -(-scale.samples // 30)
    devices = max(_FEWEST, min(1_000, scale.devices))
    hard = max(1, few // 3)
    return [
        Case("claim-search", partial(_search, devices, scale.samples)),
        Case("claim-search-many", partial(_search, max(_FEWEST, scale.devices), few)),
        Case("claim-partitions", partial(_compare_searches, claimcases.full_cards, 25, few)),
        *[
            Case(f"claim-worst-{make.__name__}", partial(_compare_searches, make, at_most, hard))
            for make, at_most in _GOALS.items()
        ],
        Case("claims-in-sequence", partial(_sequence, devices, few)),
        Case("claim-ledger", partial(_ledger, devices, scale.samples)),
        Case("claim-memory", partial(_memory, max(_FEWEST, scale.devices))),
    ]


def _search(devices: int, samples: int) -> list[Measurement]:
    """Measure the allocation of a claim for 8 matching devices: with new pools, with known pools,
    and the search alone."""
    at_most = 25 if devices <= 1_000 else 100
    known = claimobjects.allocator(devices)
    known.submit(claimobjects.claim(0, 8))
    fresh, warm = [], []
    for number in range(samples):
        # Alternate the number of devices: republishing an equal pool changes nothing.
        known.store.publish(claimobjects.pool(0, devices // 4 - number % 2))
        fresh.append(computed(partial(_allocate, known)))
        known.release("default/c0")
        warm.append(computed(partial(_allocate, known)))
        known.release("default/c0")
    name = f"claim of 8 that match: {devices} devices"
    return [
        Measurement(f"{name}, a pool just published", fresh, at_most=at_most),
        Measurement(name, warm, at_most=at_most),
        *_compare_searches(partial(claimcases.matching, devices), 5, samples),
    ]


def _allocate(allocator: Allocator) -> None:
    allocator.allocate(["default/c0"], claimobjects.NODE)


def _compare_searches(
    make: Callable[[], ClaimCase], at_most: float, samples: int
) -> list[Measurement]:
    """Run the allocator's search and the plain search alternately on the same input."""
    case = make()
    outcome = solve(case.inventory, Ledger(), case.claims)
    tried = backtrack(case, _PICKS)
    result = type(outcome).__name__.lower().replace("undecided", "cut off")
    against = f"plain search, given up at {_PICKS} picks" if tried.given_up else "plain search"
    times = in_turns(
        samples,
        lambda: solve(case.inventory, Ledger(), case.claims),
        lambda: backtrack(case, _PICKS),
        take=computed,
    )
    name = f"search: {case.what}: {result}"
    return [Measurement(name, times[0], against=against, baseline=times[1], at_most=at_most)]


def _sequence(devices: int, samples: int) -> list[Measurement]:
    """Measure the allocation of 100 claims, one after another."""
    times = []
    for _ in range(samples):
        allocator = claimobjects.allocator(devices)
        count = max(1, devices // 125)
        for number in range(100):
            allocator.submit(claimobjects.claim(number, count))
        times.append(computed(partial(_allocate_each, allocator, 100)))
    return [Measurement(f"100 claims in sequence: {devices} devices", times, at_most=600)]


def _allocate_each(allocator: Allocator, claims: int) -> None:
    for number in range(claims):
        allocator.allocate([f"default/c{number}"], claimobjects.NODE)


def _ledger(devices: int, samples: int) -> list[Measurement]:
    """Measure the release of claims and the restoration of the ledger, with one claim per
    device."""
    inventory = claimcases.plain_inventory(devices)
    ledger = Ledger()
    for number in range(devices):
        claim = claimcases.claim(inventory, 1, name=f"c{number}")
        outcome = solve(inventory, ledger, [claim])
        assert isinstance(outcome, Solution), f"no solution for one claim per device: {outcome}"
        ledger.commit(inventory, outcome.allocations)
    state = ledger.state()
    rebuilt = [computed(partial(Ledger.restore, state)) for _ in range(samples)]
    released = [
        computed(partial(ledger.release, each.claim)) for each in state.allocations[:samples]
    ]
    return [
        Measurement(f"release of a claim, {devices} held", released, at_most=0.2),
        Measurement(f"ledger of {devices} claims rebuilt", rebuilt, at_most=100),
    ]


def _memory(devices: int) -> list[Measurement]:
    """Measure the memory of published pools and the allocator's index, which is built at the first
    claim."""
    before = resident()
    allocator = claimobjects.allocator(devices)
    allocator.submit(claimobjects.claim(0, 1))
    _allocate(allocator)
    added = resident() - before
    return [Measurement("memory per device of a pool", [added / devices / 1000], "kB", at_most=2)]
