"""Convert published pools into the search's inventory, and allocations into a claim's status."""

# Only this module rounds amounts to whole blocks: charges up, budgets and capacity down. So the
# search never overcommits a device, and compares integers only.

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
    """Converter from pools to the inventory of a search. Converts an unchanged pool only once."""

    def __init__(self) -> None:
        self._converted: dict[str, tuple[api.DevicePool, core.Pool]] = {}

    def inventory_of(self, pools: Iterable[api.DevicePool], node: str) -> core.Inventory:
        """Return the inventory of the pools of ``node`` and of the pools without a node."""
        usable = (pool for pool in pools if pool.node_name in ("", node))
        return core.Inventory.of(map(self._pool, usable))

    def forget(self, pool: str) -> None:
        """Remove a withdrawn pool from the cache."""
        self._converted.pop(pool, None)

    def _pool(self, pool: api.DevicePool) -> core.Pool:
        # Compare by identity: the store has the same object until the pool is republished.
        found = self._converted.get(pool.name)
        if found is None or found[0] is not pool:
            found = self._converted[pool.name] = pool, _pool(pool)
        return found[1]


def _pool(pool: api.DevicePool) -> core.Pool:
    common = _attributes(pool.attributes)
    blocks = {resource.name: resource.block_size.nanos for resource in pool.resources}
    budget = {
        resource.name: round_down(resource.capacity.nanos, resource.block_size.nanos)
        for resource in pool.resources
    }
    mappings = _Mappings()
    devices = tuple([_device(pool, device, common, blocks, mappings) for device in pool.devices])
    return core.Pool(core.PoolKey(pool.driver, pool.name), devices, budget)


_T = TypeVar("_T")


class _Mappings:
    """Cache that returns one object for equal mappings: most devices of a pool are alike."""

    def __init__(self) -> None:
        self._unique: dict[object, Any] = {}

    def unique(self, mapping: Mapping[str, _T]) -> Mapping[str, _T]:
        found: Mapping[str, _T] = self._unique.setdefault(frozenset(mapping.items()), mapping)
        return found


def _device(
    pool: api.DevicePool,
    device: api.Device,
    common: Attributes,
    blocks: Mapping[str, int],
    mappings: _Mappings,
) -> core.Device:
    charge = {
        name: round_up(amount.nanos, blocks[name]) for name, amount in device.requests.items()
    }
    capacity = {resource.name: _capacity(resource) for resource in device.resources}
    return core.Device(
        core.DeviceKey(pool.driver, pool.name, device.name),
        mappings.unique({**common, **_attributes(device.attributes)}),
        # Charges of 0 are left out, so that devices with and without them are interchangeable.
        mappings.unique({name: amount for name, amount in charge.items() if amount}),
        mappings.unique(capacity),
    )


def _attributes(attributes: Iterable[api.Attribute]) -> dict[str, AttributeValue]:
    # Validation ensures that each attribute has one value.
    return {attribute.name: attribute.values()[0] for attribute in attributes}


def _capacity(resource: api.ResourceCapacity) -> core.ConsumableCapacity:
    block = resource.block_size.nanos
    return core.ConsumableCapacity(round_down(resource.capacity.nanos, block), block)


def allocations_of(allocation: Allocation, pools: Pools) -> tuple[api.DeviceAllocation, ...]:
    """Convert an allocation into ``status.allocations`` of a claim.

    Amounts have the quantity format of the pools' capacities.
    """
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
