"""Published pools into the allocator's inventory, and its answers into a claim's status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from devicemanager.claims.attributes import AttributeValue
from devicemanager.claims.core import inventory as core
from devicemanager.claims.core.model import Allocation, Grant
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.quantity import Format, Quantity, round_down, round_up

Attributes = Mapping[str, AttributeValue]


class Converter:
    """Makes inventories of pools; a pool that stays the same is converted once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[api.DevicePool, core.Pool]] = {}

    def inventory_of(self, pools: Iterable[api.DevicePool], node: str) -> core.Inventory:
        """The devices that claims on ``node`` can get: of its pools and of pools without node."""
        usable = (pool for pool in pools if pool.node_name in ("", node))
        return core.Inventory.of(map(self._pool, usable))

    def forget(self, pool: str) -> None:
        """The pool is gone."""
        self._known.pop(pool, None)

    def _pool(self, pool: api.DevicePool) -> core.Pool:
        known = self._known.get(pool.name)
        if known is None or known[0] is not pool:
            known = self._known[pool.name] = pool, _pool(pool)
        return known[1]


def _pool(pool: api.DevicePool) -> core.Pool:
    common = _attributes(pool.attributes)
    blocks = {resource.name: resource.block_size.nanos for resource in pool.resources}
    budget = {
        resource.name: round_down(resource.capacity.nanos, resource.block_size.nanos)
        for resource in pool.resources
    }
    shared = _Shared()
    devices = tuple([_device(pool, device, common, blocks, shared) for device in pool.devices])
    return core.Pool(core.PoolKey(pool.driver, pool.name), devices, budget)


_T = TypeVar("_T")


class _Shared:
    """Hands out one mapping for all equal ones: most devices of a pool are alike."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}

    def one(self, mapping: Mapping[str, _T]) -> Mapping[str, _T]:
        found: Mapping[str, _T] = self._known.setdefault(frozenset(mapping.items()), mapping)
        return found


def _device(
    pool: api.DevicePool,
    device: api.Device,
    common: Attributes,
    blocks: Mapping[str, int],
    shared: _Shared,
) -> core.Device:
    charge = {
        name: round_up(amount.nanos, blocks[name]) for name, amount in device.requests.items()
    }
    shares = {resource.name: _share(resource) for resource in device.resources}
    return core.Device(
        core.DeviceKey(pool.driver, pool.name, device.name),
        shared.one({**common, **_attributes(device.attributes)}),
        shared.one({name: amount for name, amount in charge.items() if amount}),
        shared.one(shares),
    )


def _attributes(attributes: Iterable[api.Attribute]) -> dict[str, AttributeValue]:
    return {attribute.name: attribute.values()[0] for attribute in attributes}


def _share(resource: api.ResourceCapacity) -> core.ConsumableCapacity:
    block = resource.block_size.nanos
    return core.ConsumableCapacity(round_down(resource.capacity.nanos, block), block)


def allocations_of(allocation: Allocation, pools: Pools) -> tuple[api.DeviceAllocation, ...]:
    """``status.allocations``; amounts are written the way the pools write the capacities."""
    return tuple([_entry(grant, pools) for grant in allocation.grants])


Pools = Mapping[str, api.DevicePool]


def _entry(grant: Grant, pools: Pools) -> api.DeviceAllocation:
    formats = _formats(grant, pools)
    amounts = tuple(
        [
            api.ResourceAllocation(name, Quantity(nanos, formats.get(name, "DecimalSI")))
            for name, nanos in sorted(grant.amounts.items())
        ]
    )
    return api.DeviceAllocation(grant.device.pool, grant.device.name, amounts)


def _formats(grant: Grant, pools: Pools) -> Mapping[str, Format]:
    if not grant.amounts:
        return {}
    pool = pools.get(grant.device.pool)
    for device in pool.devices if pool else ():
        if device.name == grant.device.name:
            return {resource.name: resource.capacity.format for resource in device.resources}
    return {}
