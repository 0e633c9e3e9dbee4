"""What drivers publish, as the allocator sees it: pools of devices, numbered.

The number of a device is its place in the order of consideration: pools by driver and
name, devices as published. Sets of devices are integers over these numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from devicemanager.core import bitset

_FEW = 64

Amounts = Mapping[str, int]
"""Resource name to an amount in nano units."""


class PoolKey(NamedTuple):
    driver: str
    name: str


class DeviceKey(NamedTuple):
    """What identifies a device, whatever is published about it."""

    driver: str
    pool: str
    name: str

    @property
    def pool_key(self) -> PoolKey:
        return PoolKey(self.driver, self.pool)


@attrs.frozen
class Share:
    """One resource of a device that claims may share, in nano units."""

    capacity: int
    """Usable capacity: rounded down to whole blocks."""
    block: int
    """What is given out at once. More than 0."""


@attrs.frozen(eq=False)
class Device:
    """One device. Devices may (and should) share equal mappings: it saves their memory."""

    key: DeviceKey
    attributes: Mapping[str, Hashable] = attrs.field(factory=dict)
    """Pool and device attributes merged. Two values must be equal exactly if the API calls
    them equal, across value types too; an attribute without a value is left out."""
    charge: Amounts = attrs.field(factory=dict)
    """What the device takes of its pool's budget while it has a holder, rounded up to blocks."""
    shares: Mapping[str, Share] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Pool:
    key: PoolKey
    devices: Sequence[Device]
    """As published; the keys name this pool."""
    budget: Amounts = attrs.field(factory=dict)
    """What the devices in use may take together, rounded down to blocks."""


@attrs.frozen(eq=False)
class Kind:
    """Devices of one pool that cost and offer the same."""

    pool: int
    """Index of the pool in its inventory."""
    charge: Amounts
    """No zeros."""
    shares: Mapping[str, Share]
    devices: int
    """The set of them."""


@attrs.frozen(eq=False)
class Inventory:
    """The pools that one node can use. Immutable: a pool published anew makes another one."""

    pools: tuple[Pool, ...]
    """By driver and name."""
    devices: tuple[Device, ...]
    """By number."""
    index: Mapping[DeviceKey, int]
    pool_sets: tuple[int, ...]
    """For each of ``pools``, the set of its devices."""
    everything: int
    """The set of all devices."""
    kinds: tuple[Kind, ...]
    """By lowest device."""
    kind_of: tuple[Kind, ...]
    """For each device, by number."""
    _by_attributes: tuple[tuple[Mapping[str, Hashable], int], ...] = attrs.field(repr=False)
    """Each mapping of attributes with the devices that share it, by lowest device."""
    _partitions: dict[tuple[str, ...], Mapping[tuple[Hashable, ...], int]] = attrs.field(
        factory=dict, repr=False
    )

    @classmethod
    def of(cls, pools: Iterable[Pool]) -> Inventory:
        """Number the devices of ``pools``, which may come in any order."""
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
        shared = _by_attributes(devices)
        return cls(ordered, devices, index, tuple(sets), everything, *_kinds(ordered), shared)

    def of_driver(self, driver: str) -> int:
        """The set of devices of one driver."""
        return bitset.union(
            devices
            for pool, devices in zip(self.pools, self.pool_sets, strict=True)
            if pool.key.driver == driver
        )

    def partition(self, names: Iterable[str]) -> Mapping[tuple[Hashable, ...], int]:
        """The devices by their values of some attributes, ``None`` for one that is absent.

        A key has the values in sorted order of ``names``; its value is the set of devices that
        have them. A predicate over these attributes need be asked once a key, not once a
        device. Remembered as long as the inventory lives.
        """
        wanted = tuple(sorted(set(names)))
        found = self._partitions.get(wanted)
        if found is None:
            found = self._partitions[wanted] = self._divide(wanted)
        return found

    def _divide(self, names: tuple[str, ...]) -> Mapping[tuple[Hashable, ...], int]:
        if not names:
            return {(): self.everything} if self.everything else {}
        found: dict[tuple[Hashable, ...], int] = {}
        for attributes, devices in self._by_attributes:
            values = tuple([attributes.get(name) for name in names])
            found[values] = found.get(values, 0) | devices
        return found


def _kinds(pools: Sequence[Pool]) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """All kinds, and the kind of each device."""
    places: dict[Hashable, int] = {}
    firsts: list[tuple[int, Device]] = []
    members: list[list[int]] = []
    place_of: list[int] = []
    for index, pool in enumerate(pools):
        for device in pool.devices:
            charge = frozenset(device.charge.items()) if device.charge else None
            shares = frozenset(device.shares.items()) if device.shares else None
            place = places.setdefault((index, charge, shares), len(places))
            if place == len(firsts):
                firsts.append((index, device))
                members.append([])
            members[place].append(len(place_of))
            place_of.append(place)
    kinds = tuple(
        Kind(index, {n: a for n, a in sorted(device.charge.items()) if a}, device.shares, found)
        for (index, device), found in zip(firsts, map(_from_sorted, members), strict=True)
    )
    return kinds, tuple([kinds[place] for place in place_of])


def _by_attributes(devices: Sequence[Device]) -> tuple[tuple[Mapping[str, Hashable], int], ...]:
    members: dict[int, list[int]] = {}
    for number, device in enumerate(devices):
        members.setdefault(id(device.attributes), []).append(number)
    return tuple(
        [(devices[numbers[0]].attributes, _from_sorted(numbers)) for numbers in members.values()]
    )


def _span(first: int, length: int) -> int:
    return ((1 << length) - 1) << first


def _from_sorted(numbers: Sequence[int]) -> int:
    """Like ``bitset.of``; many members are cheaper as flags than as a long integer each."""
    if len(numbers) < _FEW:
        return bitset.of(numbers)
    flags = bytearray(numbers[-1] + 1)
    for number in numbers:
        flags[number] = 1
    return bitset.from_flags([flag == 1 for flag in flags])
