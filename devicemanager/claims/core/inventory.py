"""Published pools as the search sees them: numbered devices, grouped by what they are like."""

# A device's number is its place in the order of consideration: pools by driver and name,
# devices as published. A lower number always means "considered first", so "the lowest k of a
# set" is the answer to most questions of order.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from devicemanager.core import bitset

_FEW = 64

Amounts = Mapping[str, int]
"""Resource name to an amount in nano-units."""


class PoolKey(NamedTuple):
    """Identity of a pool."""

    driver: str
    name: str


class DeviceKey(NamedTuple):
    """Identity of a device; it does not change when its pool is republished."""

    driver: str
    pool: str
    name: str

    @property
    def pool_key(self) -> PoolKey:
        """The pool of the device."""
        return PoolKey(self.driver, self.pool)


@attrs.frozen
class ConsumableCapacity:
    """A resource of a device that claims can share, in nano-units."""

    total: int
    """Usable capacity: rounded down to whole blocks."""
    block: int
    """The smallest amount that is allocated at once, more than 0."""


@attrs.frozen(eq=False)
class Device:
    """One device. Equal mappings should be the same object: that saves memory."""

    key: DeviceKey
    attributes: Mapping[str, Hashable] = attrs.field(factory=dict)
    """Attributes of pool and device merged. Values are equal exactly if the API says so, also
    across value types. An attribute without a value is left out."""
    charge: Amounts = attrs.field(factory=dict)
    """What the device is charged to its pool's budget while in use, in whole blocks."""
    capacity: Mapping[str, ConsumableCapacity] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Pool:
    """A pool of devices."""

    key: PoolKey
    devices: Sequence[Device]
    """As published; their keys name this pool."""
    budget: Amounts = attrs.field(factory=dict)
    """What all devices in use can be charged together, rounded down to blocks."""


@attrs.frozen(eq=False)
class DeviceKind:
    """Devices of one pool with the same charge and the same capacity."""

    pool: int
    """Index of the pool in its inventory."""
    charge: Amounts
    """Without zeros."""
    capacity: Mapping[str, ConsumableCapacity]
    devices: int
    """The set of these devices."""


@attrs.frozen(eq=False)
class Inventory:
    """The pools that one node can use. Immutable: a republished pool makes a new one."""

    pools: tuple[Pool, ...]
    """By driver and name."""
    devices: tuple[Device, ...]
    """By number."""
    index: Mapping[DeviceKey, int]
    pool_sets: tuple[int, ...]
    """For each of ``pools``, the set of its devices."""
    everything: int
    """The set of all devices."""
    kinds: tuple[DeviceKind, ...]
    """By lowest device."""
    kind_of: tuple[DeviceKind, ...]
    """For each device, by number."""
    _by_attributes: tuple[tuple[Mapping[str, Hashable], int], ...] = attrs.field(repr=False)
    """Each mapping of attributes with the set of devices that have it, by lowest device."""
    _partitions: dict[tuple[str, ...], Mapping[tuple[Hashable, ...], int]] = attrs.field(
        factory=dict, repr=False
    )

    @classmethod
    def of(cls, pools: Iterable[Pool]) -> Inventory:
        """Number the devices of ``pools``, which can come in any order."""
        ordered = tuple(sorted(pools, key=lambda pool: pool.key))
        devices = tuple([device for pool in ordered for device in pool.devices])
        index = {device.key: number for number, device in enumerate(devices)}
        if len(index) != len(devices):
            raise ValueError("two devices of an inventory have the same driver, pool and name")
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
        """Group the devices by their values of some attributes; ``None`` if absent.

        A key has the values in sorted order of ``names``; its value is the set of devices that
        have them. Evaluate a predicate over these attributes once per key, not per device:
        thousands of devices usually have only a few combinations. Cached.
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
    """Return all kinds, and the kind of each device."""
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
    # By identity: the front end uses one mapping for all devices with equal attributes, and
    # hashing the attributes of each device would cost more than the whole search.
    members: dict[int, list[int]] = {}
    for number, device in enumerate(devices):
        members.setdefault(id(device.attributes), []).append(number)
    return tuple(
        [(devices[numbers[0]].attributes, _from_sorted(numbers)) for numbers in members.values()]
    )


def _span(first: int, length: int) -> int:
    return ((1 << length) - 1) << first


def _from_sorted(numbers: Sequence[int]) -> int:
    """Do the same as ``bitset.of``, in linear time."""
    # Each ``|=`` copies an integer as long as the set, so flags are cheaper for many members.
    if len(numbers) < _FEW:
        return bitset.of(numbers)
    flags = bytearray(numbers[-1] + 1)
    for number in numbers:
        flags[number] = 1
    return bitset.from_flags([flag == 1 for flag in flags])
