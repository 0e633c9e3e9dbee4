"""Decide which ResourceSlices of a node to create, replace and delete, without side effects.

A consumer of slices, such as the scheduler, uses only the newest generation of a pool. It ignores
the pool until all slices of this generation exist (``resourceSliceCount``). So if a pool changes,
all its slices are written with the next generation. A slice that another client deleted is
recreated with the current generation.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from devicemanager.core.quantity import Quantity as _Quantity
from devicemanager.driver.author import Resources
from devicemanager.driver.values import (
    Attribute,
    Device,
    DriverResources,
    Pool,
    Quantity,
    Taint,
    Version,
)

__all__ = [
    "Changes",
    "attribute_json",
    "comparable",
    "lost_fields",
    "plan",
    "pools_of",
    "specs",
    "tainted",
    "unhealthy_taint",
    "without_taint",
]

Spec: TypeAlias = dict[str, Any]
"""``spec`` of a ResourceSlice, as JSON."""
Slice: TypeAlias = dict[str, Any]
"""ResourceSlice, as JSON."""
_Placed: TypeAlias = tuple[int, Spec]
"""A spec with its position in the pool."""

# Limits of the API server's validation of ResourceSlices.
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
"""Maximum number of devices in a slice if one has taints or consumes counters."""
_MOST_COUNTER_SETS: Final = 8
_MOST_TAINTS: Final = 16


def pools_of(resources: Resources, node: str) -> Mapping[str, Pool]:
    """Convert an author's resources to pools, by pool name. If the author gives only devices, they
    are one pool with the node's name.

    Raises ValueError for invalid resources.
    """
    if isinstance(resources, DriverResources):
        return resources.pools
    return {node: Pool(resources)}


# -- unhealthy devices -----------------------------------------------------------------


def unhealthy_taint(driver: str) -> Taint:
    """Return the taint of a driver's unhealthy devices. New claims do not get such devices."""
    return Taint(key=f"{driver}/unhealthy", value="true", effect="NoSchedule")


def tainted(driver: str, name: str, pool: Pool, unhealthy: Container[tuple[str, str]]) -> Pool:
    """Return the pool with a taint on each device in ``unhealthy`` (pool and device name).

    A device that has the maximum number of taints does not change.
    """
    taint = unhealthy_taint(driver)
    # With one taint more than the maximum, the API server would reject the whole slice.
    devices = tuple(
        attrs.evolve(device, taints=(*device.taints, taint))
        if (name, device.name) in unhealthy and len(device.taints) < _MOST_TAINTS
        else device
        for device in pool.devices
    )
    return attrs.evolve(pool, devices=devices)


def without_taint(driver: str, spec: Spec) -> Spec:
    """Return a spec in which no device has the driver's taint for unhealthy devices."""
    # Only the key, because the API server adds a time to the stored taint.
    key = unhealthy_taint(driver).key

    def without(device: dict[str, Any]) -> dict[str, Any]:
        taints = [each for each in device.get("taints", ()) if each["key"] != key]
        rest = {name: value for name, value in device.items() if name != "taints"}
        # No empty list: the result must equal the spec of a device that never had a taint.
        return {**rest, "taints": taints} if taints else rest

    if "devices" not in spec:
        return spec
    return {**spec, "devices": [*map(without, spec["devices"])]}


# -- from values to JSON ---------------------------------------------------------------


def specs(driver: str, node: str, name: str, pool: Pool) -> list[Spec]:
    """Return the specs of a pool's slices, without ``generation`` and ``resourceSliceCount``.

    Raises ValueError for a malformed quantity.
    """
    # Sorted, so that equal pools lead to equal slices and not to a new generation.
    counters = [_counter_set(*each) for each in sorted(pool.counters.items())]
    # Counters get separate slices: since 1.35, API servers reject slices with counters and devices.
    contents: list[Spec] = [
        {"sharedCounters": list(each)} for each in _chunks(counters, _MOST_COUNTER_SETS)
    ]
    contents += [{"devices": [*map(_device, each)]} for each in _device_chunks(pool.devices)]
    common = {"driver": driver, "nodeName": node, "pool": {"name": name}}
    return [{**common, **content} for content in contents]


def _chunks(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _device_chunks(devices: Sequence[Device]) -> Iterator[Sequence[Device]]:
    special = any(device.taints or device.consumes for device in devices)
    return _chunks(devices, _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES)


def _device(device: Device) -> dict[str, Any]:
    made: dict[str, Any] = {"name": device.name}
    if device.attributes:
        made["attributes"] = {
            key: attribute_json(value) for key, value in sorted(device.attributes.items())
        }
    if device.capacity:
        made["capacity"] = _quantities(device.capacity)
    if device.consumes:
        made["consumesCounters"] = [
            {"counterSet": name, "counters": _quantities(counters)}
            for name, counters in sorted(device.consumes.items())
        ]
    if device.taints:
        made["taints"] = [_without_empty(attrs.asdict(taint)) for taint in device.taints]
    return {**made, **device.fields}


def attribute_json(value: Attribute) -> dict[str, Any]:
    """Return an attribute's value in the API's form, such as ``{"string": "a100"}``."""
    if isinstance(value, Version):
        return {"version": value.text}
    # Check bool first: in Python, a bool is an int.
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _quantities(values: Mapping[str, Quantity]) -> dict[str, Any]:
    # Use the canonical form, which the API server returns.
    return {
        key: {"value": str(_Quantity.parse(str(value)))} for key, value in sorted(values.items())
    }


def _counter_set(name: str, counters: Mapping[str, Quantity]) -> dict[str, Any]:
    return {"name": name, "counters": _quantities(counters)}


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


# -- the difference between two states -------------------------------------------------


@attrs.define
class Changes:
    """Changes that turn the existing slices into the wanted slices. They are sent in this order:
    ``replaced``, ``created``, ``deleted``."""

    replaced: list[Slice] = attrs.field(factory=list)
    created: list[tuple[int, Spec]] = attrs.field(factory=list)
    """Slices to create, as pairs of the position in the pool and the spec. The name of a slice
    begins with the position, because allocators use slices in the order of their names."""
    deleted: list[Slice] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.replaced or self.created or self.deleted)


def comparable(spec: Spec) -> Spec:
    """Return a spec without the fields that comparisons ignore.

    These are the generation, the number of slices, and the times of taints, which the API server
    sets.
    """
    made = {**spec, "pool": {"name": spec["pool"]["name"]}}
    if "devices" in made:
        made["devices"] = [_without_times(device) for device in made["devices"]]
    return made


def _without_times(device: dict[str, Any]) -> dict[str, Any]:
    if "taints" not in device:
        return device
    taints = [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in device["taints"]]
    return {**device, "taints": taints}


def plan(
    wanted: Mapping[str, Sequence[Spec]],
    existing: Iterable[Slice],
    equal: Callable[[Spec, Spec], bool] = lambda one, other: comparable(one) == comparable(other),
) -> Changes:
    """Return the changes that turn the existing slices into the wanted slices.

    ``wanted``: the specs of each pool, by pool name. ``equal`` is called with a wanted spec and the
    spec of an existing slice. It returns True if the slice need not change.
    """
    # Pools of both sides: a new pool has no slices yet, and an old pool is no longer wanted.
    by_pool: dict[str, list[Slice]] = {name: [] for name in wanted}
    # Sorted, because callers can pass the same slices in any order.
    for slice_ in sorted(existing, key=lambda each: str(each["metadata"]["name"])):
        by_pool.setdefault(slice_["spec"]["pool"]["name"], []).append(slice_)
    changes = Changes()
    for name, slices in sorted(by_pool.items()):
        _plan_pool(wanted.get(name, ()), slices, equal, changes)
    return changes


def _plan_pool(
    wanted: Sequence[Spec],
    existing: Sequence[Slice],
    equal: Callable[[Spec, Spec], bool],
    changes: Changes,
) -> None:
    """Add the changes of one pool."""
    generation = max(map(_generation, existing), default=1)
    # Consumers ignore slices of older generations.
    changes.deleted += [each for each in existing if _generation(each) < generation]
    current = [each for each in existing if _generation(each) == generation]
    kept, missing, surplus = _match(wanted, current, equal)
    count = len(wanted)
    # A missing spec together with a surplus slice means that the pool's content changed.
    if all(_count(slice_) == count for _, slice_ in kept) and not (missing and surplus):
        # Another client deleted or copied a slice, but the pool itself is unchanged.
        changes.created += [(at, _numbered(spec, generation, count)) for at, spec in missing]
        changes.deleted += surplus
        return
    # The slices with equal content are written, too: consumers ignore slices of the older
    # generation. Surplus slices get new content. Each saves one deletion and one creation.
    reused = [*kept, *zip(missing, surplus, strict=False)]
    changes.replaced += [
        {**slice_, "spec": _numbered(spec, generation + 1, count)} for (_, spec), slice_ in reused
    ]
    changes.created += [
        (at, _numbered(spec, generation + 1, count)) for at, spec in missing[len(surplus) :]
    ]
    changes.deleted += surplus[len(missing) :]


def _match(
    wanted: Sequence[Spec], slices: Sequence[Slice], equal: Callable[[Spec, Spec], bool]
) -> tuple[list[tuple[_Placed, Slice]], list[_Placed], list[Slice]]:
    """Pair each wanted spec with a slice of equal content.

    Return the pairs, the specs without a slice, and the slices without a spec.
    """
    left = list(slices)
    kept, missing = [], []
    for at, spec in enumerate(wanted):
        found = next((each for each in left if equal(spec, each["spec"])), None)
        if found is None:
            missing.append((at, spec))
        else:
            # A slice serves only one spec: another client's copy of the slice is surplus.
            left.remove(found)
            kept.append(((at, spec), found))
    return kept, missing, left


def _generation(slice_: Slice) -> int:
    return int(slice_["spec"]["pool"].get("generation", 0))


def _count(slice_: Slice) -> int:
    return int(slice_["spec"]["pool"].get("resourceSliceCount", 0))


def _numbered(spec: Spec, generation: int, count: int) -> Spec:
    pool = {**spec["pool"], "generation": generation, "resourceSliceCount": count}
    return {**spec, "pool": pool}


def lost_fields(sent: Any, stored: Any, path: str = "spec") -> list[str]:
    """Return the paths of the fields in ``sent`` that are missing in ``stored``.

    A path has the form ``spec.devices[0].taints``.
    """
    if isinstance(sent, dict):
        if not isinstance(stored, dict):
            return [path]
        return [
            lost
            for key, value in sent.items()
            for lost in lost_fields(value, stored.get(key, _NOTHING), f"{path}.{key}")
        ]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [lost for number, pair in pairs for lost in lost_fields(*pair, f"{path}[{number}]")]
    is_lost = stored is _NOTHING or (isinstance(sent, list) and sent and not stored)
    return [path] if is_lost else []


# Not None, because a stored value can be null.
_NOTHING = object()
