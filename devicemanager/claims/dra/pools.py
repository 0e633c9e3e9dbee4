"""Resource pools of one node (``GatherPools`` of structured/internal/incubating, v1.37).

In:  all ResourceSlices of a cluster, and a node.
Out: an ``Offer``: all pools of the node, and an inventory of the devices of the complete and
     valid pools.

If several generations of a pool have slices for the node, only the newest of them is used. A pool
is complete if all its slices exist, on any node. Each slice states how many slices its pool has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.core.compatibility import Declared, groups_of
from devicemanager.claims.core.inventory import (
    Amounts,
    Device,
    DeviceKey,
    Inventory,
    Pool,
    PoolKey,
)
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.nodes import InvalidSelector, Node, node_matches
from devicemanager.claims.dra.profile import Feature, Profile
from devicemanager.claims.dra.slices import Facts, Interning, Object, Slice, budget, charge
from devicemanager.core import bitset

_NOTHING: Mapping[str, Any] = {}
"""One mapping for all devices: an inventory compares the attributes and charges of devices by
identity."""


@attrs.define(eq=False)
class Source:
    """A device in the inventory: its ResourceSlice, and the device as JSON."""

    slice: Slice
    device: Object
    _interning: Interning
    _facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """Attributes and capacities of the device. Raises AllocationError for a malformed
        quantity."""
        if self._facts is None:
            try:
                self._facts = self._interning.facts(self.device)
            # ``KeyError``: a capacity without a value.
            except (ValueError, KeyError) as error:
                where = f"ResourceSlice {self.slice.name}: device {self.device['name']}"
                raise AllocationError(f"invalid {where}: {error}") from None
        return self._facts


@attrs.frozen(eq=False)
class GatheredPool:
    """The part of a pool that a node can use."""

    key: PoolKey
    slices: tuple[Slice, ...] = ()
    """Slices that have devices for the node, sorted by name."""
    elsewhere: tuple[Slice, ...] = ()
    """Slices that have devices for other nodes only."""
    counter_sets: tuple[Object, ...] = ()
    is_incomplete: bool = False
    invalid: str = ""
    """Reason why the pool is invalid; empty if it is valid."""

    @property
    def name(self) -> str:
        """Name of the pool in messages."""
        return f"{self.key.driver}/{self.key.name}"

    @property
    def is_usable(self) -> bool:
        """True if the pool is complete and valid."""
        return not self.is_incomplete and not self.invalid

    @property
    def binds(self) -> bool:
        """True if a device of the pool has binding conditions."""
        return any(each.binds for each in self.slices)


@attrs.frozen(eq=False)
class Offer:
    """Pools and devices that one node can use."""

    pools: tuple[GatheredPool, ...]
    """All pools of the node, in the order in which the search considers them."""
    inventory: Inventory
    """Devices of the complete and valid pools; in 1.34, also of incomplete pools.

    Includes devices that the node cannot use, if their slice has ``perDeviceNodeSelection``.
    ``Candidate.accepts`` excludes these devices.
    """
    sources: tuple[Source, ...]
    """Source of each device: ``sources[N]`` is the source of device number N."""
    shareable: int
    """The set of devices that allow multiple allocations. Bit N stands for device number N."""
    charges: Mapping[DeviceKey, Amounts]
    """For each device that consumes counters: the amounts in nano-units, by ``set/counter``.

    Includes devices that only other nodes can use: they consume the counters of the same pools.
    """
    groups: Mapping[DeviceKey, Declared] = attrs.field(factory=dict)
    """Compatibility groups of each device that consumes counters.

    Includes devices that only other nodes can use. Empty if the feature gate
    DRADeviceCompatibilityGroups is disabled.
    """

    @property
    def has_invalid_pool(self) -> bool:
        """True if a pool of the node is invalid."""
        return any(pool.invalid for pool in self.pools)


def offer(slices: Sequence[Slice], node: Node, profile: Profile, interning: Interning) -> Offer:
    """Return the pools that a node can use. Raises AllocationError for an invalid node selector."""
    pools = _gather(slices, node, profile)
    built, sources, charges = [], list[Source](), dict[DeviceKey, Amounts]()
    for pool in pools:
        # Not ``is_usable``: 1.34 uses the slices of incomplete pools. In later versions, an
        # incomplete pool has no ``slices`` here.
        if pool.invalid or not pool.slices:
            continue
        devices = []
        for each in pool.slices:
            for spec in each.devices:
                consumed = charge(spec) if "consumesCounters" in spec else _NOTHING
                key = DeviceKey(*pool.key, spec["name"])
                # Leave out attributes and capacities: ``Source`` reads them when needed.
                devices.append(Device(key, _NOTHING, consumed, _NOTHING))
                sources.append(Source(each, spec, interning))
                if consumed:
                    charges[key] = consumed
        # Devices of other nodes can be in use, and then reduce the counters that are left.
        for each in pool.elsewhere:
            for spec in each.devices:
                if "consumesCounters" in spec:
                    charges[DeviceKey(*pool.key, spec["name"])] = charge(spec)
        built.append(Pool(pool.key, devices, budget(pool.counter_sets)))
    groups = {}
    if profile.has(Feature.COMPATIBILITY_GROUPS):
        groups = {
            DeviceKey(*pool.key, spec["name"]): _groups(pool.key, spec)
            for pool in pools
            for each in (*pool.slices, *pool.elsewhere)
            for spec in each.devices
            if spec.get("consumesCounters")
        }
    shareable = bitset.from_flags(
        [bool(each.device.get("allowMultipleAllocations")) for each in sources]
    )
    return Offer(
        tuple(pools), Inventory.in_order(built), tuple(sources), shareable, charges, groups
    )


def _groups(pool: PoolKey, device: Object) -> Declared:
    """Return the compatibility groups of a device in each counter set."""
    return tuple(
        [
            ((pool, each["counterSet"]), groups_of(each.get("compatibilityGroups") or ()))
            for each in device["consumesCounters"]
        ]
    )


def _gather(slices: Sequence[Slice], node: Node, profile: Profile) -> list[GatheredPool]:
    found: dict[PoolKey, list[Slice]] = {}
    # Upstream reads slices with the node's name first, then slices for several nodes.
    for local in (True, False):
        for each in slices:
            if (each.spec.get("nodeName") == node.name) == local and _is_for(each, node, profile):
                _add(found, each)
    pools = [
        pool for key, own in found.items() if (pool := _pool(key, own, slices, profile)) is not None
    ]
    # The ``stable`` variant does not sort pools. Its order is random, so any order is correct here.
    last = not profile.is_stable
    return sorted(pools, key=lambda pool: (last and pool.binds, pool.key))


def _is_for(each: Slice, node: Node, profile: Profile) -> bool:
    """True if a slice can have devices or counters for a node."""
    spec = each.spec
    counters = bool(spec.get("sharedCounters"))
    ignores_counters = counters and not profile.pools_of_node_only
    # Without the gate, upstream ignores slices that use its fields. In 1.34, a slice with counters
    # can also have devices, so its counters alone do not exclude it.
    if not profile.has(Feature.PARTITIONABLE) and (
        spec.get("perDeviceNodeSelection") is not None or ignores_counters
    ):
        return False
    # The pool is then incomplete, so that none of its devices is allocated.
    if _is_ignored(each, profile):
        return False
    of_any_node = profile.counters_of_any_node or profile.is_stable
    # Devices of this node may consume counters of a slice for other nodes.
    if counters and of_any_node and not profile.pools_of_node_only:
        return True
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
        return _matches(node, spec, f"slice {each.name}")
    # If ``perDeviceNodeSelection`` is also unset, the slice uses a field of a later version of the
    # API. Such a slice is ignored.
    return each.chooses_per_device and any(
        _matches(node, device, f"device {device['name']} in slice {each.name}")
        for device in each.devices
    )


def _is_ignored(each: Slice, profile: Profile) -> bool:
    """True for a slice with compatibility groups if the version must not use such slices."""
    return (
        profile.knows_alpha_fields
        and not profile.has(Feature.COMPATIBILITY_GROUPS)
        and each.uses_groups
    )


def _matches(node: Node, spec: Object, what: str) -> bool:
    try:
        return node_matches(node, spec)
    except InvalidSelector as error:
        raise AllocationError(
            f"gather pool information: failed to perform node selection for {what}: {error}"
        ) from None


def _add(found: dict[PoolKey, list[Slice]], each: Slice) -> None:
    own = found.setdefault(each.pool, [])
    if own and each.generation > own[0].generation:
        own.clear()
    if not own or each.generation == own[0].generation:
        own.append(each)


def _pool(
    key: PoolKey, own: list[Slice], slices: Iterable[Slice], profile: Profile
) -> GatheredPool | None:
    """Return a pool; None if ``own`` lacks slices of the pool and another node has a newer
    generation of the pool."""
    # If slices state different numbers, upstream uses that of the first one.
    count = own[0].count
    if profile.pools_of_node_only:
        own = sorted(own, key=lambda each: each.name)
        sets = tuple([each for one in own for each in one.counter_sets])
        is_incomplete = len(own) != count
        return GatheredPool(key, tuple(own), (), sets, is_incomplete, _duplicate(own))
    every = own
    # Upstream reads the slices of other nodes only if slices are missing here. So a complete
    # generation stays in use while a newer one has slices only on other nodes.
    if len(own) != count:
        all_of_pool = [each for each in slices if each.pool == key]
        if any(each.generation > own[0].generation for each in all_of_pool):
            # The driver is replacing the pool. Upstream ignores the old generation without an
            # error, even for ``allocationMode: All``.
            return None
        # Ignored slices must not make the pool complete: their devices are invisible.
        every = [
            each
            for each in all_of_pool
            if each.generation == own[0].generation and not _is_ignored(each, profile)
        ]
        if len(every) != count:
            return GatheredPool(key, is_incomplete=True)
    return _built(key, sorted(own, key=lambda each: each.name), every, profile)


def _built(
    key: PoolKey, own: Sequence[Slice], every: Sequence[Slice], profile: Profile
) -> GatheredPool:
    partitionable = profile.has(Feature.PARTITIONABLE)
    names = {each.name for each in own}
    both = [*own, *(each for each in every if each.name not in names)]
    counters = [each for each in both if partitionable and each.spec.get("sharedCounters")]
    slices = tuple([each for each in own if each not in counters])
    elsewhere = tuple([each for each in both[len(own) :] if each not in counters])
    sets = tuple([each for one in counters for each in one.counter_sets])
    # Upstream looks for duplicate names only in slices for this node.
    fault = _duplicate(slices)
    if partitionable and not fault:
        fault = _counter_fault(sets, [*slices, *elsewhere])
    if fault:
        return GatheredPool(key, invalid=fault)
    return GatheredPool(key, slices, elsewhere, sets)


def _duplicate(slices: Iterable[Slice]) -> str:
    seen: set[str] = set()
    for each in slices:
        for device in each.devices:
            if device["name"] in seen:
                return f"duplicate device name {device['name']}"
            seen.add(device["name"])
    return ""


def _counter_fault(sets: Sequence[Object], slices: Iterable[Slice]) -> str:
    names = [each["name"] for each in sets]
    for place, name in enumerate(names):
        if name in names[:place]:
            return f"duplicate counter set name {name}"
    known = {each["name"]: (each.get("counters") or {}).keys() for each in sets}
    for each in slices:
        for device in each.devices:
            for consumed in device.get("consumesCounters") or ():
                wanted = consumed["counterSet"]
                if wanted not in known:
                    return f"counter set {wanted} not found"
                for counter in consumed.get("counters") or ():
                    if counter not in known[wanted]:
                        return f"counter {counter} not found in counter set {wanted}"
    return ""
