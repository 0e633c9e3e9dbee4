"""The documented order of answers by brute force: every alternative, every set of devices.

Written from the specification with plain lists, so that it shares no idea with the search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations, product

import attrs

from devicemanager.claims.core.inventory import Device, DeviceKey, Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import AccessMode, Allocation, Alternative, Claim, Grant

Chosen = tuple[int, int, Alternative]
"""Claim, request, alternative."""


@attrs.define
class State:
    """What is allocated while the slots are filled."""

    whole: set[DeviceKey]
    shared: dict[DeviceKey, dict[str, int]]
    spent: dict[tuple[str, str], dict[str, int]]
    mine: dict[int, set[DeviceKey]]
    """By claim: its devices so far."""
    values: dict[tuple[int, str, object], Hashable]
    """By claim, attribute and scope: the fixed value."""

    def copy(self) -> State:
        return State(
            set(self.whole),
            {key: dict(given) for key, given in self.shared.items()},
            {key: dict(spent) for key, spent in self.spent.items()},
            {claim: set(keys) for claim, keys in self.mine.items()},
            dict(self.values),
        )


def first_answer(
    inventory: Inventory, ledger: Ledger, claims: Sequence[Claim]
) -> tuple[Allocation, ...] | None:
    requests = [(c, r) for c, claim in enumerate(claims) for r in range(len(claim.requests))]
    options = [range(len(claims[c].requests[r].alternatives)) for c, r in requests]
    for vector in product(*options):
        chosen = [
            (c, r, claims[c].requests[r].alternatives[index])
            for (c, r), index in zip(requests, vector, strict=True)
        ]
        found = _fill(inventory, claims, chosen, _start(ledger, inventory))
        if found is not None:
            grants: list[list[Grant]] = [[] for _ in claims]
            for (c, r, alternative), index, devices in zip(chosen, vector, found, strict=True):
                for key, amounts in devices:
                    mode, label = alternative.mode, alternative.label
                    grants[c].append(Grant(key, r, index, label, mode, amounts))
            return tuple(
                Allocation(claim.id, tuple(own)) for claim, own in zip(claims, grants, strict=True)
            )
    return None


def _start(ledger: Ledger, inventory: Inventory) -> State:
    state = State(set(), {}, {}, {}, {})
    for device in inventory.devices:
        if ledger.claims_using(device.key):
            if ledger.is_exclusive(device.key):
                state.whole.add(device.key)
            else:
                state.shared[device.key] = dict(ledger.allocated_amounts(device.key))
    for pool in inventory.pools:
        state.spent[pool.key] = dict(ledger.charged(pool.key))
    return state


Devices = list[tuple[DeviceKey, dict[str, int]]]


def _fill(
    inventory: Inventory, claims: Sequence[Claim], slots: Sequence[Chosen], state: State
) -> list[Devices] | None:
    if not slots:
        return []
    for devices in _sets(inventory, claims[slots[0][0]], slots[0], state):
        after = state.copy()
        taken = _take(inventory, claims[slots[0][0]], slots[0], devices, after)
        if taken is None:
            continue
        rest = _fill(inventory, claims, slots[1:], after)
        if rest is not None:
            return [taken, *rest]
    return None


def _sets(
    inventory: Inventory, of: Claim, slot: Chosen, state: State
) -> Iterator[tuple[Device, ...]]:
    claim, _, alternative = slot
    eligible = [
        device
        for number, device in enumerate(inventory.devices)
        if alternative.eligible >> number & 1 and device.key not in state.mine.get(claim, set())
    ]
    if alternative.every:
        names = [name for name, _ in _scopes(of, slot)]
        eligible = [d for d in eligible if all(name in d.attributes for name in names)]
        yield tuple(eligible)
        return
    most = alternative.count
    if alternative.mode is AccessMode.SHARED:
        most = alternative.limit if alternative.limit is not None else len(eligible)
    for count in range(alternative.count, most + 1):
        several = []
        for devices in combinations(eligible, count):
            if len({device.key.pool_key for device in devices}) == 1:
                yield devices
            else:
                several.append(devices)
        yield from several


def _scopes(claim: Claim, slot: Chosen) -> list[tuple[str, object]]:
    """Return the attributes that must be equal, each with the scope of that rule."""
    _, request, alternative = slot
    scopes: list[tuple[str, object]] = [(name, request) for name in alternative.match]
    for match in claim.match:
        if match.requests is None or request in match.requests:
            scopes.append((match.attribute, ("claim", match.requests)))
    return scopes


def _take(
    inventory: Inventory,
    claim: Claim,
    slot: Chosen,
    devices: Sequence[Device],
    state: State,
) -> Devices | None:
    """Allocate devices in the state; None if they are not available."""
    number, _, alternative = slot
    scopes = _scopes(claim, slot)
    if not devices:
        return None
    for device in devices:
        for name, scope in scopes:
            if name not in device.attributes:
                return None
            value = device.attributes[name]
            if state.values.setdefault((number, name, scope), value) != value:
                return None
    state.mine.setdefault(number, set()).update(device.key for device in devices)
    if alternative.mode is AccessMode.ADMIN:
        return [(device.key, {}) for device in devices]
    for device in devices:
        if not _hold(inventory, device, alternative.mode, state):
            return None
    if alternative.mode is AccessMode.EXCLUSIVE:
        return [(device.key, {}) for device in devices]
    return _share(devices, alternative.amounts, state)


def _hold(inventory: Inventory, device: Device, mode: AccessMode, state: State) -> bool:
    if device.key in state.whole or (mode is AccessMode.EXCLUSIVE and device.key in state.shared):
        return False
    if device.key not in state.shared:
        budget = next(p.budget for p in inventory.pools if p.key == device.key.pool_key)
        spent = state.spent.setdefault(device.key.pool_key, {})
        for name, amount in device.charge.items():
            if amount:
                spent[name] = spent.get(name, 0) + amount
                if spent[name] > budget.get(name, 0):
                    return False
    if mode is AccessMode.EXCLUSIVE:
        state.whole.add(device.key)
    else:
        state.shared.setdefault(device.key, {})
    return True


def _share(devices: Sequence[Device], amounts: Mapping[str, int], state: State) -> Devices | None:
    taken: Devices = [(device.key, {}) for device in devices]
    for name, wanted in amounts.items():
        have = 0
        for device, (_, got) in zip(devices, taken, strict=True):
            share = device.capacity.get(name)
            given = state.shared[device.key].get(name, 0)
            if share is None or share.total - given < share.block:
                return None
            got[name] = share.block
            have += share.block
        for device, (_, got) in zip(devices, taken, strict=True):
            share = device.capacity[name]
            given = state.shared[device.key].get(name, 0)
            while have < wanted and given + got[name] + share.block <= share.total:
                got[name] += share.block
                have += share.block
        if have < wanted:
            return None
    for key, got in taken:
        for name, amount in got.items():
            state.shared[key][name] = state.shared[key].get(name, 0) + amount
    return taken
