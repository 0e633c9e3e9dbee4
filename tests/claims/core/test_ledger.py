"""The ledger: what commit rejects, release restores, and a republished pool leaves."""

from __future__ import annotations

from collections import Counter

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
from devicemanager.claims.core.ledger import Ledger, LedgerError
from devicemanager.claims.core.model import (
    AccessMode,
    Allocation,
    Alternative,
    Claim,
    Grant,
    Infeasible,
    LedgerState,
    Request,
    Solution,
)
from devicemanager.claims.core.solve import solve
from tests.claims.core import cases

POOL = PoolKey("gpu.example.com", "card")


def pool(*devices: Device, **budget: int) -> Inventory:
    return Inventory.of([Pool(POOL, devices, budget)])


def device(name: str, memory: int = 0, **charge: int) -> Device:
    capacity = {"memory": ConsumableCapacity(memory, 1)} if memory else {}
    return Device(DeviceKey(*POOL, name), charge=charge, capacity=capacity)


def allocation(claim: str, *names: str, **amounts: int) -> Allocation:
    mode = AccessMode.SHARED if amounts else AccessMode.EXCLUSIVE
    keys = [DeviceKey(*POOL, name) for name in names]
    return Allocation(claim, tuple([Grant(k, 0, 0, "claims[0]", mode, amounts) for k in keys]))


def claim(name: str, inventory: Inventory, **amounts: int) -> Claim:
    mode = AccessMode.SHARED if amounts else AccessMode.EXCLUSIVE
    alternative = Alternative("claims[0]", inventory.everything, mode, amounts=amounts)
    return Claim(name, (Request((alternative,)),))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Inventory, list[list[Claim]], list[int]]:
    inventory = draw(cases.inventories())
    calls = [draw(cases.calls(inventory, f"c{number}-")) for number in range(4)]
    return inventory, calls, draw(st.lists(st.integers(0, 3), max_size=3))


@given(histories())
def test_no_history_allocates_twice_or_exceeds_a_limit(
    history: tuple[Inventory, list[list[Claim]], list[int]],
) -> None:
    inventory, calls, released = history
    ledger = Ledger()
    for number, claims in enumerate(calls):
        before = ledger.state()
        outcome = solve(inventory, ledger, claims)
        if isinstance(outcome, Solution):
            ledger.commit(inventory, outcome.allocations)
            check(inventory, ledger)
            ledger.release(*[each.id for each in claims])
            assert ledger.state() == before
            ledger.commit(inventory, outcome.allocations)
        if number in released:
            ledger.release(*[each.id for each in claims])
        ledger.self_check()
        assert Ledger.restore(ledger.state()).state() == ledger.state()
    ledger.release(*ledger.claims())
    assert ledger.state() == LedgerState((), {})


def check(inventory: Inventory, ledger: Ledger) -> None:
    """Recount everything from the allocations alone."""
    exclusive: Counter[DeviceKey] = Counter()
    allocated: Counter[tuple[DeviceKey, str]] = Counter()
    in_use: set[DeviceKey] = set()
    for grant in [grant for each in ledger.state().allocations for grant in each.grants]:
        if grant.mode is AccessMode.ADMIN:
            continue
        exclusive[grant.device] += grant.mode is AccessMode.EXCLUSIVE
        in_use.add(grant.device)
        for name, amount in grant.amounts.items():
            allocated[grant.device, name] += amount
    assert max(exclusive.values(), default=0) <= 1
    assert not {key for key, count in exclusive.items() if count} & {k for k, _ in allocated}
    for (key, name), amount in allocated.items():
        assert amount <= inventory.devices[inventory.index[key]].capacity[name].total
    charges: Counter[tuple[PoolKey, str]] = Counter()
    for key in in_use:
        for name, amount in inventory.devices[inventory.index[key]].charge.items():
            charges[key.pool_key, name] += amount
    budgets = {(pool.key, name): b for pool in inventory.pools for name, b in pool.budget.items()}
    assert all(amount <= budgets.get(where, 0) for where, amount in charges.items())


def test_device_is_charged_once_from_first_claim_to_last() -> None:
    inventory = pool(device("a", 10, units=2), units=3)
    ledger = Ledger()
    for name in ("x", "y"):
        ledger.commit(inventory, [allocation(name, "a", memory=1)])
    assert ledger.charged(POOL) == {"units": 2}
    ledger.release("x")
    assert ledger.charged(POOL) == {"units": 2}
    assert ledger.release("y", "y", "unknown") == ("y",)
    assert ledger.charged(POOL) == {}


@pytest.mark.parametrize(
    ("new", "error"),
    [
        ([allocation("new", "a")], "card/a is already allocated"),
        ([allocation("new", "a", memory=1)], "card/a is already allocated"),
        ([allocation("new", "b"), allocation("other", "b")], "card/b is already allocated"),
        ([allocation("old", "b")], "claim old is already allocated"),
        ([allocation("new", "b"), allocation("new", "c")], "claim new is already allocated"),
        ([allocation("new", "b", "b")], "claim new names a device twice"),
        ([allocation("new", "c", memory=5)], "card/c has too little memory left"),
        ([allocation("new", "b", "c")], "pool card has too little units left"),
        ([allocation("new", "gone")], "card/gone is not published"),
        ([allocation("new", "e")], "pool card has too little other left"),
    ],
)
def test_commit_rejects_contradictions_without_changes(new: list[Allocation], error: str) -> None:
    inventory = pool(
        device("a"),
        device("b", units=1),
        device("c", 4, units=1),
        device("d", 4),
        device("e", other=1),
        units=1,
    )
    ledger = Ledger()
    ledger.commit(inventory, [allocation("old", "a")])
    before = ledger.state()
    with pytest.raises(LedgerError, match=error):
        ledger.commit(inventory, [allocation("fine", "d", memory=1), *new])
    assert ledger.state() == before
    ledger.self_check()


def test_device_in_use_stays_shareable_when_its_pool_shrinks() -> None:
    ledger = Ledger()
    before = pool(device("a", 10, units=2), device("b", 10, units=2), units=4)
    ledger.commit(before, [allocation("x", "a", memory=4)])
    after = pool(device("a", 6, units=9), device("b", 10, units=2), units=1)
    outcome = solve(after, ledger, [claim("y", after, memory=2)])
    assert isinstance(outcome, Solution)
    assert outcome.allocations == (allocation("y", "a", memory=2),)
    ledger.commit(after, outcome.allocations)
    assert ledger.charged(POOL) == {"units": 2}
    assert isinstance(solve(after, ledger, [claim("z", after, memory=1)]), Infeasible)


def test_republished_device_still_belongs_to_its_claim() -> None:
    ledger = Ledger()
    full = pool(device("a"), device("b"))
    ledger.commit(full, [allocation("x", "a")])
    without = pool(device("b"))
    assert isinstance(solve(without, ledger, [claim("y", without)]), Solution)
    outcome = solve(full, ledger, [claim("y", full)])
    assert isinstance(outcome, Solution)
    assert outcome.allocations == (allocation("y", "b"),)


def test_charges_of_withdrawn_devices_still_count() -> None:
    ledger = Ledger()
    ledger.commit(pool(device("a", units=2), units=3), [allocation("x", "a")])
    after = pool(device("b", units=2), units=3)
    assert isinstance(solve(after, ledger, [claim("y", after)]), Infeasible)
    ledger.release("x")
    assert isinstance(solve(after, ledger, [claim("y", after)]), Solution)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (LedgerState((allocation("x", "a"), allocation("y", "a")), {}), "is already allocated"),
        (LedgerState((allocation("x", "a"),), {}), "must have both an allocation and a charge"),
        (LedgerState((), {DeviceKey(*POOL, "a"): {}}), "must have both an allocation and a charge"),
        (LedgerState((allocation("x", "a"), allocation("x", "b")), {}), "already allocated"),
    ],
)
def test_restore_rejects_impossible_states(state: LedgerState, error: str) -> None:
    with pytest.raises(LedgerError, match=error):
        Ledger.restore(state)
