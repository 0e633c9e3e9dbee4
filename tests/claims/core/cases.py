"""Strategies for small inventories and claims that conflict often."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from devicemanager.claims.core.inventory import (
    ConsumableCapacity,
    Device,
    DeviceKey,
    Inventory,
    Pool,
    PoolKey,
)
from devicemanager.claims.core.model import AccessMode, Alternative, Claim, Match, Request

ATTRIBUTES = ("model", "numa")


def amounts(names: tuple[str, ...], low: int, high: int) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(names), st.integers(low, high), max_size=len(names))


capacities = st.builds(
    lambda blocks, block: ConsumableCapacity(blocks * block, block),
    st.integers(0, 6),
    st.integers(1, 2),
)


Make = tuple[dict[str, int], dict[str, int], dict[str, ConsumableCapacity]]
"""Attributes, charge and capacity of a device."""

makes: st.SearchStrategy[Make] = st.tuples(
    st.dictionaries(st.sampled_from(ATTRIBUTES), st.integers(0, 1), max_size=2),
    st.just({}) | amounts(("units", "lanes"), 0, 2),
    st.fixed_dictionaries({"mem": capacities, "bw": capacities})
    | st.fixed_dictionaries({"mem": capacities})
    | st.just({}),
)


@st.composite
def inventories(draw: st.DrawFn, most: int = 7) -> Inventory:
    """Draw devices of a few makes, in up to three pools."""
    made = draw(st.lists(makes, min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(made), min_size=2, max_size=most))
    cuts = sorted(draw(st.lists(st.integers(0, len(chosen)), max_size=2)))
    pools = []
    for number, (first, last) in enumerate(pairwise([0, *cuts, len(chosen)])):
        key = PoolKey(draw(st.sampled_from("ab")), f"p{number}")
        devices = [
            Device(DeviceKey(*key, f"d{place}"), *make)
            for place, make in enumerate(chosen[first:last])
        ]
        pools.append(Pool(key, devices, draw(amounts(("units", "lanes"), 1, 5))))
    return Inventory.of(pools)


MODES = (*[AccessMode.EXCLUSIVE] * 3, *[AccessMode.SHARED] * 3, AccessMode.ADMIN)


@st.composite
def alternatives(
    draw: st.DrawFn, inventory: Inventory, label: str, modes: tuple[AccessMode, ...] = MODES
) -> Alternative:
    mode = draw(st.sampled_from(modes))
    eligible = draw(st.just(inventory.everything) | st.integers(0, inventory.everything))
    match = draw(st.sampled_from([(), (), (), ("model",), ("numa",), ATTRIBUTES]))
    count = draw(st.integers(1, 3))
    if mode is AccessMode.SHARED:
        wanted = draw(
            st.dictionaries(st.sampled_from(("mem", "bw")), st.integers(1, 9), min_size=1)
        )
        limit = draw(st.none() | st.integers(count, 4))
        return Alternative(label, eligible, mode, count, limit, wanted, match)
    every = mode is AccessMode.ADMIN and draw(st.booleans())
    return Alternative(label, eligible, mode, 1 if every else count, match=match, every=every)


@st.composite
def shared_calls(draw: st.DrawFn) -> tuple[Inventory, list[Claim]]:
    """Draw claims that compete for the capacity of a few devices."""
    key = PoolKey("a", "p0")
    devices = [
        Device(DeviceKey(*key, f"d{place}"), {}, draw(amounts(("units",), 0, 2)), {"mem": capacity})
        for place, capacity in enumerate(draw(st.lists(capacities, min_size=2, max_size=4)))
    ]
    inventory = Inventory.of([Pool(key, devices, {"units": draw(st.integers(2, 4))})])
    wanted_claims = []
    for name in "xyz"[: draw(st.integers(2, 3))]:
        wanted = {"mem": draw(st.integers(1, 6))}
        limit = draw(st.none() | st.integers(1, 2))
        eligible = draw(st.just(inventory.everything) | st.integers(1, inventory.everything))
        one = Alternative("claims[0]", eligible, AccessMode.SHARED, 1, limit, wanted)
        wanted_claims.append(Claim(f"default/{name}", (Request((one,)),)))
    return inventory, wanted_claims


@st.composite
def claims(draw: st.DrawFn, inventory: Inventory, name: str) -> Claim:
    requests = []
    for number in range(draw(st.integers(1, 2))):
        labels = [f"claims[{number}].oneOf[{i}]" for i in range(draw(st.sampled_from([1, 1, 2])))]
        requests.append(Request(tuple([draw(alternatives(inventory, label)) for label in labels])))
    match = draw(
        st.sampled_from([(), (), (Match("numa"),), (Match("model", frozenset({0})), Match("numa"))])
    )
    return Claim(f"default/{name}", tuple(requests), match)


@st.composite
def calls(draw: st.DrawFn, inventory: Inventory, name: str, most: int = 2) -> list[Claim]:
    count = draw(st.integers(1, most))
    return [draw(claims(inventory, f"{name}{number}")) for number in range(count)]
