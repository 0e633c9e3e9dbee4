"""ResourceSlices: their pools, devices and counters.

A node can have thousands of devices. Therefore only the parts of a device that every allocation
needs are parsed immediately. The other parts are parsed when the search reaches the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from devicemanager.claims.core.inventory import Amounts, PoolKey
from devicemanager.claims.dra.capacity import Capacity
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.core.quantity import parse_quantity

Object = Mapping[str, Any]
"""API object as JSON."""


@attrs.frozen(eq=False)
class Slice:
    """ResourceSlice: one part of a driver's pool."""

    name: str
    pool: PoolKey
    generation: int
    count: int
    """Number of slices of the pool, as stated by the driver."""
    spec: Object

    @classmethod
    def of(cls, value: Object) -> Slice:
        """Read a ResourceSlice. Raises AllocationError if a required field is missing."""
        try:
            spec = value["spec"]
            pool = spec["pool"]
            key = PoolKey(spec["driver"], pool["name"])
            return cls(
                value["metadata"]["name"],
                key,
                pool.get("generation", 0),
                pool.get("resourceSliceCount", 0),
                spec,
            )
        except (KeyError, TypeError) as error:
            raise AllocationError(
                f"invalid ResourceSlice: {error} is missing: expected metadata.name, spec.driver"
                " and spec.pool.name"
            ) from None

    @property
    def devices(self) -> Iterable[Object]:
        """The devices, in the published order."""
        return self.spec.get("devices") or ()

    @property
    def counter_sets(self) -> Iterable[Object]:
        """The counter sets of the slice (``sharedCounters``)."""
        return self.spec.get("sharedCounters") or ()

    @property
    def chooses_per_device(self) -> bool:
        """True if each device selects its own nodes (``perDeviceNodeSelection``)."""
        return bool(self.spec.get("perDeviceNodeSelection"))

    @property
    def uses_groups(self) -> bool:
        """True if a device of the slice has compatibility groups."""
        return any(
            consumed.get("compatibilityGroups")
            for device in self.devices
            for consumed in device.get("consumesCounters") or ()
        )

    @property
    def binds(self) -> bool:
        """True if a device of the slice has binding conditions."""
        # Upstream tests for nil, so an empty list counts, too.
        return any(device.get("bindingConditions") is not None for device in self.devices)


def charge(device: Object) -> dict[str, int]:
    """Return the amounts of counters that a device in use consumes, by ``set/counter``.

    Amounts are in nano-units.
    """
    found: dict[str, int] = {}
    for consumed in device.get("consumesCounters") or ():
        for name, counter in consumed["counters"].items():
            key = f"{consumed['counterSet']}/{name}"
            found[key] = found.get(key, 0) + parse_quantity(str(counter["value"]))
    return found


def budget(counter_sets: Iterable[Object]) -> dict[str, int]:
    """Return the counters of counter sets: their values in nano-units, by ``set/counter``."""
    return {
        f"{each['name']}/{name}": parse_quantity(str(counter["value"]))
        for each in counter_sets
        for name, counter in (each.get("counters") or {}).items()
    }


@attrs.frozen(eq=False)
class Facts:
    """Attributes and capacities of a device. Devices that are equal in both share one object."""

    attributes: Object
    raw_capacity: Object
    capacities: Mapping[str, Capacity]
    """By capacity name: the value with its request policy, parsed from ``raw_capacity``."""
    totals: Amounts
    """By capacity name: the value in nano-units."""


class Interning:
    """Cache with one ``Facts`` object for all devices with equal attributes and capacities."""

    def __init__(self) -> None:
        self._attributes: dict[str, Object] = {}
        self._capacity: dict[str, tuple[Object, Mapping[str, Capacity], Amounts]] = {}
        self._facts: dict[tuple[int, int], Facts] = {}

    def facts(self, device: Object) -> Facts:
        """Return the attributes and capacities of a device.

        Raises ValueError for a malformed quantity.
        """
        # Compare by JSON text. The devices of one driver have their keys in the same order, so
        # equal devices have equal texts. Another order only creates a second object.
        attributes = device.get("attributes") or {}
        attributes = self._attributes.setdefault(repr(attributes), attributes)
        raw = device.get("capacity") or {}
        text = repr(raw)
        capacity = self._capacity.get(text)
        if capacity is None:
            read = {name: Capacity.of(each) for name, each in raw.items()}
            totals = {name: each.value.nanos for name, each in read.items()}
            capacity = self._capacity[text] = raw, read, totals
        key = id(attributes), id(capacity)
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = Facts(attributes, *capacity)
        return facts


def shared_amounts(consumed: Object) -> Amounts:
    """Return the amounts that a share of a device consumes, by capacity name, in nano-units.

    ``consumed``: the field ``consumedCapacity`` of the allocation result.
    """
    return {name: parse_quantity(str(text)) for name, text in consumed.items()}
