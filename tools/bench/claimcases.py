"""Inputs for the claim allocator: large and hard claims, each with an inventory of devices.

The hard claims are the known worst cases of the allocator's search. Tests check the results and
the number of steps, and benchmarks measure the times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import attrs

from devicemanager.claims.core.inventory import (
    ConsumableCapacity,
    Device,
    DeviceKey,
    Inventory,
    Pool,
    PoolKey,
)
from devicemanager.claims.core.model import AccessMode, Alternative, Claim, Request

DRIVER = "gpu.example.com"


@attrs.frozen(eq=False)
class ClaimCase:
    """Claims to allocate together on an idle node, and the node's devices."""

    what: str
    inventory: Inventory
    claims: tuple[Claim, ...]


def plain_inventory(devices: int, pools: int = 8, groups: int = 16) -> Inventory:
    """Return an inventory of devices without charges. They are spread over pools and over
    ``groups`` values of the attribute ``numa``."""
    return Inventory.of(
        _pool(
            f"node-{number}",
            [_device(f"node-{number}", f"gpu-{i}", i % groups) for i in range(devices // pools)],
        )
        for number in range(pools)
    )


def partitions(cards: int = 4) -> Inventory:
    """Return an inventory of cards with 7 slices each. Each card is advertised as partitions of 1,
    2 and 4 slices."""
    kinds = {1: 4, 2: 2, 4: 2}
    return Inventory.of(
        _pool(
            f"card-{card}",
            [
                _device(f"card-{card}", f"slices-{size}-{number}", size, {"slices": size})
                for size, count in kinds.items()
                for number in range(count)
            ],
            {"slices": 7},
        )
        for card in range(cards)
    )


def of_size(inventory: Inventory, size: int) -> int:
    """Return the partitions that have ``size`` slices, as a bit set of devices."""
    return inventory.partition(["numa"])[(size,)]


def claim(inventory: Inventory, count: int, match: tuple[str, ...] = (), name: str = "c") -> Claim:
    """Return a claim for ``count`` devices of the inventory; any devices match."""
    return _claim(name, [Alternative("claims[0]", inventory.everything, count=count, match=match)])


def partition_claim(inventory: Inventory, wanted: Mapping[int, int]) -> Claim:
    """Return a claim for partitions. ``wanted`` maps a number of slices to the number of
    partitions."""
    return _claim(
        "c",
        *[
            [Alternative(f"claims[{place}]", of_size(inventory, size), count=count)]
            for place, (size, count) in enumerate(wanted.items())
        ],
    )


def matching(devices: int, wanted: int = 8) -> ClaimCase:
    inventory = plain_inventory(devices)
    return ClaimCase(
        f"{wanted} of {devices} devices that match",
        inventory,
        (claim(inventory, wanted, ("numa",)),),
    )


def full_cards(cards: int = 4) -> ClaimCase:
    inventory = partitions(cards)
    return ClaimCase(
        f"all slices of {8 * cards} partitions of 3 kinds",
        inventory,
        (partition_claim(inventory, {1: cards, 2: cards, 4: cards}),),
    )


def one_too_few(devices: int = 24) -> ClaimCase:
    inventory = plain_inventory(devices, 1, 1)
    return ClaimCase(
        f"(a) {devices} identical devices, {devices + 1} wanted",
        inventory,
        (claim(inventory, devices // 2), claim(inventory, devices - devices // 2 + 1, name="d")),
    )


def small_groups(devices: int = 1_000, wanted: int = 8) -> ClaimCase:
    inventory = plain_inventory(devices, 1, devices // (wanted - 1) + 1)
    return ClaimCase(
        f"(b) {wanted} of {devices} devices that match, no {wanted} match",
        inventory,
        (claim(inventory, wanted, ("numa",)),),
    )


def wide_before_narrow(requests: int = 12) -> ClaimCase:
    inventory = plain_inventory(2 * requests, 1, 1)
    narrow = (1 << requests) - 1
    sets = [inventory.everything] * requests + [narrow] * requests
    alternatives = [[Alternative(f"claims[{i}]", each)] for i, each in enumerate(sets)]
    return ClaimCase(
        f"(c) {requests} wide requests before {requests} narrow ones",
        inventory,
        (_claim("c", *alternatives),),
    )


def independent_set(vertices: int = 80, edges: int = 300, wanted: int = 30) -> ClaimCase:
    """Return a case whose devices are the vertices of a graph. Each edge is a budget of one, so
    finding the devices is NP-hard."""
    # Use a fixed seed, so that all runs search in the same graph.
    random = Random(1)
    ends = sorted({tuple(sorted(random.sample(range(vertices), 2))) for _ in range(edges)})
    charges: list[dict[str, int]] = [{} for _ in range(vertices)]
    for number, (one, other) in enumerate(ends):
        charges[one][f"edge-{number}"] = charges[other][f"edge-{number}"] = 1
    budget = {f"edge-{number}": 1 for number in range(len(ends))}
    devices = [_device("graph", f"v-{i}", 0, charge) for i, charge in enumerate(charges)]
    inventory = Inventory.of([_pool("graph", devices, budget)])
    return ClaimCase(
        f"(d) {wanted} devices of a pool with {len(ends)} budgets of one",
        inventory,
        (claim(inventory, wanted),),
    )


def matching_of_triples(seed: int = 1, size: int = 10, devices: int = 40) -> ClaimCase:
    """Return a case of three-dimensional matching: each device charges three budgets of one, and
    the claim needs a device for each budget."""
    random = Random(seed)
    second, third = (random.sample(range(size), size) for _ in range(2))
    triples = list(zip(range(size), second, third, strict=True))  # an answer
    while len(triples) < devices:
        one, two, three = random.choices(range(size), k=3)
        triples.append((one, two, three))
    random.shuffle(triples)
    made = [
        _device("triples", f"t-{number}", 0, {f"{d}-{v}": 1 for d, v in enumerate(triple)})
        for number, triple in enumerate(triples)
    ]
    budget = {f"{d}-{v}": 1 for d in range(3) for v in range(size)}
    inventory = Inventory.of([_pool("triples", made, budget)])
    return ClaimCase(
        f"(g) {size} of {devices} devices, each with three budgets of one",
        inventory,
        (claim(inventory, size),),
    )


def alternatives_that_collide(instances: int = 12) -> ClaimCase:
    """Return a case whose requests have 8 alternatives each. Together, the requests need one device
    more than the node has."""
    inventory = plain_inventory(instances - 1, 1, 1)
    sets = [inventory.everything & ~(1 << i) for i in range(8)]
    requests = [
        [Alternative(f"claims[{i}].oneOf[{j}]", each) for j, each in enumerate(sets)]
        for i in range(instances)
    ]
    return ClaimCase(
        f"(e) oneOf: {instances} instances of 8 alternatives, {instances - 1} devices",
        inventory,
        (_claim("c", *requests),),
    )


def staircase(requests: int = 24) -> ClaimCase:
    """Return a case whose requests have only one solution. A search in order tries this solution
    last."""
    inventory = plain_inventory(requests, 1, 1)
    alternatives = [
        [Alternative(f"claims[{i}]", (1 << (requests - i)) - 1)] for i in range(requests)
    ]
    return ClaimCase(
        f"(f) {requests} requests with one perfect matching",
        inventory,
        (_claim("c", *alternatives),),
    )


def knapsack(devices: int = 40) -> ClaimCase:
    """Return a case with one shared request for two resources. Each device has much of one resource
    and little of the other."""
    random = Random(2)
    made = [
        Device(
            DeviceKey(DRIVER, "links", f"l-{i}"),
            {"numa": 0},
            {},
            {"up": ConsumableCapacity(up, 1), "down": ConsumableCapacity(100 - up, 1)},
        )
        for i, up in enumerate(random.randint(1, 99) for _ in range(devices))
    ]
    inventory = Inventory.of([Pool(PoolKey(DRIVER, "links"), made)])
    # At most 18 devices may be picked. They have 1800 units of both resources together, and the
    # request needs 1802.
    wanted = {"up": 901, "down": 901}
    return ClaimCase(
        f"two resources of {devices} devices to be shared, one unit too much wanted",
        inventory,
        (
            _claim(
                "c",
                [
                    Alternative(
                        "claims[0]",
                        inventory.everything,
                        AccessMode.SHARED,
                        limit=18,
                        amounts=wanted,
                    )
                ],
            ),
        ),
    )


def _claim(name: str, *requests: Sequence[Alternative]) -> Claim:
    return Claim(f"default/{name}", tuple([Request(tuple(each)) for each in requests]))


def _pool(name: str, devices: Sequence[Device], budget: Mapping[str, int] | None = None) -> Pool:
    return Pool(PoolKey(DRIVER, name), devices, budget or {})


def _device(pool: str, name: str, group: int, charge: Mapping[str, int] | None = None) -> Device:
    return Device(DeviceKey(DRIVER, pool, name), {"numa": group}, charge or {})
