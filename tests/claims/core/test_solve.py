"""``solve`` against brute force, and what must be true of every outcome."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.claims.core.inventory import (
    ConsumableCapacity,
    Device,
    DeviceKey,
    Inventory,
    Pool,
    PoolKey,
)
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import (
    AccessMode,
    Alternative,
    Cause,
    Claim,
    Error,
    Exclusion,
    Infeasible,
    Limits,
    Match,
    Request,
    Solution,
)
from devicemanager.claims.core.problem import can_reach, largest_amount
from devicemanager.claims.core.reasons import leftovers
from devicemanager.claims.core.solve import solve
from tests.claims.core import cases
from tests.claims.core.brute_force import first_answer


@st.composite
def situations(draw: st.DrawFn) -> tuple[Inventory, Ledger, list[Claim]]:
    """Draw a node with earlier claims, and the claims of one call."""
    inventory = draw(cases.inventories())
    ledger = Ledger()
    for number in range(draw(st.integers(0, 2))):
        outcome = solve(inventory, ledger, draw(cases.calls(inventory, f"before{number}-", 1)))
        if isinstance(outcome, Solution):
            ledger.commit(inventory, outcome.allocations)
    return inventory, ledger, draw(cases.calls(inventory, "new"))


@given(situations())
def test_solve_agrees_with_brute_force(
    situation: tuple[Inventory, Ledger, list[Claim]],
) -> None:
    inventory, ledger, claims = situation
    expected = first_answer(inventory, ledger, claims)
    outcome = solve(inventory, ledger, claims)
    if expected is None:
        assert isinstance(outcome, Infeasible)
    else:
        assert isinstance(outcome, Solution)
        assert outcome.allocations == expected


@given(cases.shared_calls())
def test_shared_requests_agree_with_brute_force(call: tuple[Inventory, list[Claim]]) -> None:
    inventory, claims = call
    outcome = solve(inventory, Ledger(), claims)
    found = outcome.allocations if isinstance(outcome, Solution) else None
    assert found == first_answer(inventory, Ledger(), claims)


@given(situations(), st.randoms(use_true_random=False))
def test_order_of_claims_does_not_change_feasibility(
    situation: tuple[Inventory, Ledger, list[Claim]], random: Random
) -> None:
    inventory, ledger, claims = situation
    shuffled = random.sample(claims, len(claims))
    fits = isinstance(solve(inventory, ledger, claims), Solution)
    assert isinstance(solve(inventory, ledger, shuffled), Solution) == fits


@given(situations())
def test_decide_agrees_with_brute_force_on_feasibility(
    situation: tuple[Inventory, Ledger, list[Claim]],
) -> None:
    """Without first-fit picks, ``decide`` answers all that it can."""
    inventory, ledger, claims = situation
    outcome = solve(inventory, ledger, claims, Limits(first_fit=0))
    if first_answer(inventory, ledger, claims) is None:
        assert isinstance(outcome, Infeasible)
    else:
        assert isinstance(outcome, Solution)
        ledger.commit(inventory, outcome.allocations)
        ledger.self_check()


@given(situations())
def test_rejection_counts_every_device_once(
    situation: tuple[Inventory, Ledger, list[Claim]],
) -> None:
    inventory, ledger, claims = situation
    outcome = solve(inventory, ledger, claims)
    if not isinstance(outcome, Infeasible):
        return
    assert outcome.reasons
    alternatives = {
        (claim.id, each.label): each
        for claim in claims
        for request in claim.requests
        for each in request.alternatives
    }
    for rejection in outcome.reasons:
        parts = [rejection.usable, *[each.devices for each in rejection.exclusions]]
        assert sum(parts) == alternatives[rejection.claim, rejection.label].eligible
        assert sum(map(int.bit_count, parts)) == sum(parts).bit_count()
        assert len({each.rule for each in rejection.exclusions}) == len(rejection.exclusions)
        assert (rejection.cause is Cause.DEVICES) == (
            rejection.usable.bit_count() < rejection.count
        )


POOL = PoolKey("gpu.example.com", "card")


def node(**devices: dict[str, int]) -> Inventory:
    """Return devices with attributes, in one pool."""
    made = [Device(DeviceKey(*POOL, name), values) for name, values in devices.items()]
    return Inventory.of([Pool(POOL, made)])


def claim(name: str, *alternatives: Alternative, match: tuple[Match, ...] = ()) -> Claim:
    return Claim(f"default/{name}", tuple([Request((each,)) for each in alternatives]), match)


def rejection_rules(inventory: Inventory, ledger: Ledger, wanted: Claim) -> list[tuple[str, int]]:
    outcome = solve(inventory, ledger, [wanted])
    assert isinstance(outcome, Infeasible)
    (rejection,) = outcome.reasons
    return [(each.rule, each.devices.bit_count()) for each in rejection.exclusions]


def test_rejection_names_the_first_rule_for_each_device() -> None:
    inventory = node(a={"numa": 0}, b={"numa": 0}, c={"numa": 1}, d={}, e={"numa": 0})
    ledger = Ledger()
    earlier = solve(inventory, ledger, [claim("train", Alternative("claims[0]", 0b1))])
    assert isinstance(earlier, Solution)
    ledger.commit(inventory, earlier.allocations)
    rule = "device.memory >= '40Gi' is false"
    wanted = Alternative(
        "claims[0]", 0b01111, count=2, match=("numa",), exclusions=(Exclusion(rule, 0b10000),)
    )
    assert rejection_rules(inventory, ledger, claim("new", wanted)) == [
        (rule, 1),
        ("allocated to claim default/train", 1),
        ("has no attribute numa", 1),
        ("attribute numa differs from the others chosen", 1),
    ]


def test_rejection_names_budgets_and_capacity() -> None:
    capacity = {"memory": ConsumableCapacity(4, 1)}
    inventory = Inventory.of(
        [
            Pool(
                POOL,
                [
                    Device(DeviceKey(*POOL, "a"), {}, {"slices": 2}, capacity),
                    Device(DeviceKey(*POOL, "b"), {}, {"slices": 2}, capacity),
                    Device(DeviceKey(*POOL, "c")),
                ],
                {"slices": 3},
            )
        ]
    )
    shared = Alternative("claims[0]", 0b111, AccessMode.SHARED, amounts={"memory": 4})
    ledger = Ledger()
    first = solve(inventory, ledger, [claim("first", shared)])
    assert isinstance(first, Solution)
    ledger.commit(inventory, first.allocations)
    assert rejection_rules(inventory, ledger, claim("second", shared)) == [
        ("offers no memory", 1),
        ("has no memory left", 1),
        ("pool card has too little slices left", 1),
    ]
    whole = Alternative("claims[0]", 0b011)
    assert rejection_rules(inventory, ledger, claim("third", whole)) == [
        ("partly allocated to claim default/first", 1),
        ("pool card has too little slices left", 1),
    ]


@pytest.mark.parametrize(
    ("alternative", "cause"),
    [
        (Alternative("r", 0b11, count=3), Cause.DEVICES),
        (Alternative("r", 0b11, AccessMode.SHARED, amounts={"memory": 9}), Cause.AMOUNTS),
        (Alternative("r", 0b11, count=2), Cause.BUDGET),
        (Alternative("r", 0b111, AccessMode.ADMIN, every=True, match=("numa",)), Cause.MATCH),
    ],
)
def test_rejection_has_its_cause(alternative: Alternative, cause: Cause) -> None:
    capacity = {"memory": ConsumableCapacity(4, 1)}
    devices = [
        Device(DeviceKey(*POOL, name), {"numa": numa}, {"slices": 2}, capacity)
        for name, numa in (("a", 0), ("b", 0), ("c", 1))
    ]
    inventory = Inventory.of([Pool(POOL, devices, {"slices": 3})])
    outcome = solve(inventory, Ledger(), [claim("c", alternative)])
    assert isinstance(outcome, Infeasible)
    assert [each.cause for each in outcome.reasons] == [cause]


def test_rejection_names_all_requests_that_only_conflict() -> None:
    inventory = node(a={}, b={})
    both = Alternative("claims[0]", 0b11, count=2)
    outcome = solve(inventory, Ledger(), [claim("x", both), claim("y", both)])
    assert isinstance(outcome, Infeasible)
    found = [(each.claim, each.cause) for each in outcome.reasons]
    assert found == [("default/x", Cause.TOGETHER), ("default/y", Cause.TOGETHER)]


def many(count: int) -> Inventory:
    return node(**{f"d{number:02}": {"numa": number % 2} for number in range(count)})


@pytest.mark.parametrize(
    ("alternative", "count"),
    [
        (Alternative("claims[0]", (1 << 40) - 1, count=33), 33),
        (Alternative("claims[0]", (1 << 40) - 1, AccessMode.ADMIN, every=True), 40),
    ],
)
def test_claim_of_more_than_32_devices_is_an_error(alternative: Alternative, count: int) -> None:
    outcome = solve(many(40), Ledger(), [claim("c", alternative)])
    message = f"needs {count} devices; a claim can have at most 32"
    assert outcome == Error("default/c", message)


def test_capacity_of_more_than_32_devices_is_an_error() -> None:
    devices = [
        Device(DeviceKey(*POOL, f"d{i:02}"), capacity={"bw": ConsumableCapacity(1, 1)})
        for i in range(40)
    ]
    inventory = Inventory.of([Pool(POOL, devices)])
    for amount in (33, 40):
        outcome = solve(inventory, Ledger(), [claim("c", shared(inventory.everything, amount))])
        message = f"needs {amount} devices; a claim can have at most 32"
        assert outcome == Error("default/c", message)
    none = solve(inventory, Ledger(), [claim("c", shared(inventory.everything, 41))])
    assert isinstance(none, Infeasible)


def test_alternative_with_too_many_devices_is_skipped() -> None:
    inventory = many(40)
    request = Request(
        (
            Alternative("claims[0].oneOf[0]", inventory.everything, count=33),
            Alternative("claims[0].oneOf[1]", inventory.everything, count=2),
        )
    )
    outcome = solve(inventory, Ledger(), [Claim("default/c", (request,))])
    assert isinstance(outcome, Solution)
    (allocation,) = outcome.allocations
    assert [grant.device.name for grant in allocation.grants] == ["d00", "d01"]


def test_earlier_requests_keep_their_preference() -> None:
    """The first request with a choice is not the first request, and all first choices conflict."""
    inventory = node(a={}, b={}, c={}, d={})
    requests = [
        [Alternative("claims[0]", 0b0001)],
        [Alternative("claims[1].oneOf[0]", 0b0010), Alternative("claims[1].oneOf[1]", 0b0100)],
        [Alternative("claims[2].oneOf[0]", 0b0010), Alternative("claims[2].oneOf[1]", 0b1000)],
        [Alternative("claims[3].oneOf[0]", 0b0110, count=2), Alternative("claims[3].oneOf[1]", 4)],
    ]
    wanted = Claim("default/c", tuple([Request(tuple(each)) for each in requests]))
    outcome = solve(inventory, Ledger(), [wanted])
    assert isinstance(outcome, Solution)
    grants = outcome.allocations[0].grants
    assert [(each.request, each.label, each.device.name) for each in grants] == [
        (0, "claims[0]", "a"),
        (1, "claims[1].oneOf[0]", "b"),
        (2, "claims[2].oneOf[1]", "d"),
        (3, "claims[3].oneOf[1]", "c"),
    ]


def test_leftovers_explain_every_other_device() -> None:
    inventory = node(a={"numa": 0}, b={"numa": 1}, c={"numa": 0}, d={"numa": 0})
    wanted = claim("c", Alternative("claims[0]", 0b1111), match=(Match("numa"),))
    other = claim("o", Alternative("claims[0]", 0b0100))
    outcome = solve(inventory, Ledger(), [wanted, other])
    assert isinstance(outcome, Solution)
    view = LedgerView.of(inventory, Ledger())
    first, _ = leftovers(view, Ledger(), [wanted, other], outcome.allocations)
    assert first.taken == 0b0001
    assert [(each.rule, each.devices) for each in first.exclusions] == [
        ("attribute numa differs from the others chosen", 0b0010),
        ("taken by claim default/o", 0b0100),
        ("not needed", 0b1000),
    ]


def test_matched_value_with_exactly_enough_devices_is_used() -> None:
    inventory = node(a={"numa": 0}, b={"numa": 1}, c={"numa": 0}, d={"numa": 1}, e={"numa": 0})
    two, three = (Alternative(f"claims[{i}]", 0b11111, count=i + 1) for i in (0, 1))
    outcome = solve(inventory, Ledger(), [claim("c", two, three, match=(Match("numa"),))])
    assert isinstance(outcome, Solution)
    assert [grant.device.name for grant in outcome.allocations[0].grants] == ["a", "c", "e"]
    more = claim("c", two, three, two, match=(Match("numa"),))
    assert isinstance(solve(inventory, Ledger(), [more]), Infeasible)


def test_rejection_shows_the_largest_group_of_matching_devices() -> None:
    inventory = node(a={"numa": 0}, b={"numa": 1}, c={"numa": 1}, d={"numa": 2})
    wanted = claim("c", Alternative("claims[0]", 0b1111, count=3, match=("numa",)))
    outcome = solve(inventory, Ledger(), [wanted])
    assert isinstance(outcome, Infeasible)
    assert [each.usable for each in outcome.reasons] == [0b0110]


def shared_node(*capacities: int) -> Inventory:
    devices = [
        Device(DeviceKey(*POOL, f"d{place:02}"), capacity={"bw": ConsumableCapacity(capacity, 1)})
        for place, capacity in enumerate(capacities)
    ]
    return Inventory.of([Pool(POOL, devices)])


def shared(eligible: int, amount: int, limit: int | None = None) -> Alternative:
    return Alternative("claims[0]", eligible, AccessMode.SHARED, 1, limit, {"bw": amount})


def test_rejection_has_the_largest_reachable_amount() -> None:
    inventory, ledger = shared_node(5, 4, 3), Ledger()
    first = solve(inventory, ledger, [claim("first", shared(0b001, 2))])
    assert isinstance(first, Solution)
    ledger.commit(inventory, first.allocations)
    for eligible, limit, reachable in ((0b110, None, 7), (0b111, None, 10), (0b111, 2, 7)):
        outcome = solve(inventory, ledger, [claim("c", shared(eligible, 11, limit))])
        assert isinstance(outcome, Infeasible)
        assert [each.reachable for each in outcome.reasons] == [{"bw": reachable}]


def test_limit_of_devices_is_for_all_requests_of_a_claim() -> None:
    inventory = shared_node(*[1] * 40)
    two = Alternative("claims[0]", inventory.everything, count=2)
    outcome = solve(inventory, Ledger(), [claim("c", two, shared(inventory.everything, 31))])
    message = "needs 33 devices; a claim can have at most 32"
    assert outcome == Error("default/c", message)


@pytest.mark.parametrize("first_fit", [0, 2_000])
def test_cause_does_not_depend_on_the_layer_that_decided(first_fit: int) -> None:
    devices = [Device(DeviceKey(*POOL, name), {}, {"slices": 2}) for name in "abc"]
    inventory = Inventory.of([Pool(POOL, devices, {"slices": 5})])
    limits = Limits(first_fit=first_fit)

    def causes(*counts: int) -> list[Cause]:
        wanted = [Alternative(f"claims[{i}]", 0b111, count=n) for i, n in enumerate(counts)]
        outcome = solve(inventory, Ledger(), [claim("c", *wanted)], limits)
        assert isinstance(outcome, Infeasible)
        return [each.cause for each in outcome.reasons]

    assert causes(3) == [Cause.BUDGET]
    assert causes(1, 2) == [Cause.TOGETHER, Cause.TOGETHER]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 255)), max_size=4),
    st.integers(0, 255),
    st.integers(0, 8),
    st.integers(-1, 40),
)
def test_reachable_amount_is_at_most_the_largest(
    tiers: list[tuple[int, int]], devices: int, most: int, amount: int
) -> None:
    tiers.sort(reverse=True)
    assert can_reach(tiers, devices, most, amount) == (
        largest_amount(tiers, devices, most) >= amount
    )
