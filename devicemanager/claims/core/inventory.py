"""Inventory of one node: its published pools, and sets of devices with equal properties.

The search identifies devices by their numbers, starting with 0. The docstring of the package
``claims.core`` defines budget, charge, block and all other terms.
"""

# The number of a device is its position in the order in which the search considers devices:
# pools by driver and name, devices as published. A lower number always means "considered
# first", so the search usually selects the lowest k devices of a set.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from devicemanager.core import bitset

_FEW = 64

Amounts = Mapping[str, int]
"""Mapping from the name of a budget or resource to an amount in nano-units."""


class PoolKey(NamedTuple):
    """Identity of a pool: driver and name."""

    driver: str
    name: str


class DeviceKey(NamedTuple):
    """Identity of a device; it does not change when its pool is republished."""

    driver: str
    pool: str
    name: str

    @property
    def pool_key(self) -> PoolKey:
        """Identity of the device's pool."""
        return PoolKey(self.driver, self.pool)


@attrs.frozen
class ConsumableCapacity:
    """A device's resource that several claims can share. Amounts are in nano-units."""

    total: int
    """Usable capacity, rounded down to whole blocks."""
    block: int
    """Size of a block, more than 0. Allocated amounts are multiples of this size."""


@attrs.frozen(eq=False)
class Device:
    """Published device.

    To save time and memory, devices with equal attributes should share one mapping object.
    """

    key: DeviceKey
    attributes: Mapping[str, Hashable] = attrs.field(factory=dict)
    """Attributes of the device and of its pool. Attributes without a value are omitted.

    Two values are equal in Python if, and only if, the API treats them as equal.
    """
    charge: Amounts = attrs.field(factory=dict)
    """Amount of each of the pool's budgets that the device consumes while it is in use."""
    capacity: Mapping[str, ConsumableCapacity] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Pool:
    """Published pool of devices with its budgets."""

    key: PoolKey
    devices: Sequence[Device]
    """Devices in the published order; the key of each device names this pool."""
    budget: Amounts = attrs.field(factory=dict)
    """For each budget, the limit for the sum of the charges of all devices in use."""


@attrs.frozen(eq=False)
class DeviceKind:
    """Group of devices in one pool that have the same charge and the same capacity."""

    pool: int
    """Index of the pool in its inventory."""
    charge: Amounts
    """Charge of each device; amounts of 0 are omitted."""
    capacity: Mapping[str, ConsumableCapacity]
    devices: int
    """The set of devices of this kind."""


@attrs.frozen(eq=False)
class Inventory:
    """Pools that one node can use. Immutable: a republished pool needs a new inventory."""

    pools: tuple[Pool, ...]
    """Pools in the order in which the search considers them, usually by driver and name."""
    devices: tuple[Device, ...]
    """Devices in the order of their numbers."""
    index: Mapping[DeviceKey, int]
    """Device numbers by key."""
    pool_sets: tuple[int, ...]
    """For each pool in ``pools``, the set of its devices."""
    everything: int
    """The set of all devices."""
    kinds: tuple[DeviceKind, ...]
    """All kinds of devices, in the order of the lowest device number of each kind."""
    kind_of: tuple[DeviceKind, ...]
    """Kind of each device: ``kind_of[N]`` is the kind of device number N."""
    _by_attributes: tuple[tuple[Mapping[str, Hashable], int], ...] = attrs.field(repr=False)
    """Each mapping of attributes with the set of devices that have it, sorted by lowest device
    number."""
    _partitions: dict[tuple[str, ...], Mapping[tuple[Hashable, ...], int]] = attrs.field(
        factory=dict, repr=False
    )

    @classmethod
    def of(cls, pools: Iterable[Pool]) -> Inventory:
        """Return an inventory of ``pools``, sorted by driver and name, with numbered devices.

        Raises ValueError for two devices with the same key.
        """
        return cls.in_order(sorted(pools, key=lambda pool: pool.key))

    @classmethod
    def in_order(cls, pools: Iterable[Pool]) -> Inventory:
        """Return an inventory of ``pools``. A search considers the pools in the given order.

        Raises ValueError for two devices with the same key.
        """
        ordered = tuple(pools)
        devices = tuple([device for pool in ordered for device in pool.devices])
        index = {device.key: number for number, device in enumerate(devices)}
        if len(index) != len(devices):
            twice = next(d.key for n, d in enumerate(devices) if index[d.key] != n)
            raise ValueError(f"duplicate device {'/'.join(twice)}: use each device once")
        sets, first = [], 0
        for pool in ordered:
            sets.append(_span(first, len(pool.devices)))
            first += len(pool.devices)
        everything = _span(0, len(devices))
        by_attributes = _by_attributes(devices)
        return cls(
            ordered, devices, index, tuple(sets), everything, *_kinds(ordered), by_attributes
        )

    def of_driver(self, driver: str) -> int:
        """Return the set of devices of one driver."""
        return bitset.union(
            devices
            for pool, devices in zip(self.pools, self.pool_sets, strict=True)
            if pool.key.driver == driver
        )

    def partition(self, names: Iterable[str]) -> Mapping[tuple[Hashable, ...], int]:
        """Group all devices by the values of the attributes ``names``.

        Return a mapping from attribute values to the set of devices with these values. A key has
        one value per attribute, in the sorted order of ``names``; None stands for an absent
        attribute. Results are cached.

        Thousands of devices usually have only a few combinations of values. So callers evaluate an
        expression once per key, not once per device.
        """
        wanted = tuple(sorted(set(names)))
        found = self._partitions.get(wanted)
        if found is None:
            found = self._partitions[wanted] = self._group_by(wanted)
        return found

    def _group_by(self, names: tuple[str, ...]) -> Mapping[tuple[Hashable, ...], int]:
        if not names:
            return {(): self.everything} if self.everything else {}
        found: dict[tuple[Hashable, ...], int] = {}
        for attributes, devices in self._by_attributes:
            values = tuple([attributes.get(name) for name in names])
            found[values] = found.get(values, 0) | devices
        return found


def _kinds(pools: Sequence[Pool]) -> tuple[tuple[DeviceKind, ...], tuple[DeviceKind, ...]]:
    """Return all kinds, and the kind of each device in the order of device numbers."""
    places: dict[Hashable, int] = {}
    firsts: list[tuple[int, Device]] = []
    members: list[list[int]] = []
    place_of: list[int] = []
    for index, pool in enumerate(pools):
        for device in pool.devices:
            charge = frozenset(device.charge.items()) if device.charge else None
            capacity = frozenset(device.capacity.items()) if device.capacity else None
            place = places.setdefault((index, charge, capacity), len(places))
            if place == len(firsts):
                firsts.append((index, device))
                members.append([])
            members[place].append(len(place_of))
            place_of.append(place)
    kinds = tuple(
        DeviceKind(
            index, {n: a for n, a in sorted(device.charge.items()) if a}, device.capacity, found
        )
        for (index, device), found in zip(firsts, map(_from_sorted, members), strict=True)
    )
    return kinds, tuple([kinds[place] for place in place_of])


def _by_attributes(devices: Sequence[Device]) -> tuple[tuple[Mapping[str, Hashable], int], ...]:
    # Mappings are compared by identity: the front end uses one mapping for all devices with equal
    # attributes, and hashing the attributes of each device would cost more than the search.
    members: dict[int, list[int]] = {}
    for number, device in enumerate(devices):
        members.setdefault(id(device.attributes), []).append(number)
    return tuple(
        [(devices[numbers[0]].attributes, _from_sorted(numbers)) for numbers in members.values()]
    )


def _span(first: int, length: int) -> int:
    return ((1 << length) - 1) << first


def _from_sorted(numbers: Sequence[int]) -> int:
    """Return the set of ascending device numbers, like ``bitset.of`` but in linear time."""
    # Each ``|=`` in ``bitset.of`` copies an integer as long as the set, so flags are cheaper for
    # many members.
    if len(numbers) < _FEW:
        return bitset.of(numbers)
    flags = bytearray(numbers[-1] + 1)
    for number in numbers:
        flags[number] = 1
    return bitset.from_flags([flag == 1 for flag in flags])
