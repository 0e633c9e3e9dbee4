"""Layouts of simulated DRA drivers: the devices that nodes publish in ResourceSlices. No I/O.

A *kind* is a group of nodes with the same devices. All nodes of a kind share the device lists of
one layout. Only a node with unhealthy or lost devices has lists of its own, and only while it
publishes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from devicemanager.client.errors import ClusterError
from devicemanager.client.protocol import JsonObject
from devicemanager.core.quantity import Quantity

__all__ = ["DriverLayout", "PoolLayout", "kwok_drivers", "recorded", "simulated_driver"]

_MAX_DEVICES: Final = 64
"""Maximum number of devices per slice. The API server accepts 128, but only 64 if a device has
taints."""
_NODE: Final = "{node}"
"""Placeholder for the name of the node in pool names."""
_DOMAIN: Final = "resource.kubernetes.io"


@attrs.frozen(eq=False)
class PoolLayout:
    """Template of a driver's pool. Each node publishes its own pool, made from this template."""

    name: str
    """Name of the pool, with ``{node}`` for the name of the node."""
    slices: tuple[JsonObject, ...]
    """For each slice, the fields of ``spec`` that do not depend on the node, such as ``devices`` or
    ``sharedCounters``. ``DriverLayout.specs`` adds the other fields."""


@attrs.frozen(eq=False)
class DriverLayout:
    """Devices of one simulated driver on each node of a kind."""

    driver: str
    pools: tuple[PoolLayout, ...]
    devices: frozenset[str]
    """Names of all devices."""
    by_version: dict[str, tuple[PoolLayout, ...]] = attrs.field(factory=dict)
    """Cache of converted pools, by API version. It has only versions whose format differs from
    v1."""

    @classmethod
    def of(cls, driver: str, pools: Iterable[PoolLayout]) -> DriverLayout:
        """Create a layout from its pools."""
        pools = tuple(pools)
        parts = (part for pool in pools for part in pool.slices)
        names = frozenset(
            str(device["name"]) for part in parts for device in part.get("devices") or ()
        )
        return cls(driver, pools, names)

    def specs(
        self,
        node: str,
        generation: int,
        version: str,
        *,
        unhealthy: Collection[str] = (),
        lost: Collection[str] = (),
    ) -> Iterator[JsonObject]:
        """Yield ``spec`` of each slice of a node, in the form of the API version ``version``.

        ``unhealthy`` and ``lost`` are names of devices. Unhealthy devices get a taint; lost devices
        are omitted.
        """
        for pool in self._pools(version):
            head = {
                "driver": self.driver,
                "nodeName": node,
                "pool": {
                    "name": pool.name.replace(_NODE, node),
                    "generation": generation,
                    "resourceSliceCount": len(pool.slices),
                },
            }
            for part in pool.slices:
                if "devices" in part and (unhealthy or lost):
                    part = {**part, "devices": _changed(self.driver, part, unhealthy, lost)}
                yield {**head, **part}

    def _pools(self, version: str) -> tuple[PoolLayout, ...]:
        # In v1beta2, devices have the same format as in v1.
        if version != "v1beta1":
            return self.pools
        if version not in self.by_version:
            self.by_version[version] = tuple(
                attrs.evolve(pool, slices=tuple(map(_as_v1beta1, pool.slices)))
                for pool in self.pools
            )
        return self.by_version[version]


def _as_v1beta1(part: JsonObject) -> JsonObject:
    """Convert the fields of a slice: in v1beta1, the fields of a device are in ``basic``."""
    if "devices" not in part:
        return part
    devices = [
        {"name": each["name"], "basic": {k: v for k, v in each.items() if k != "name"}}
        for each in part["devices"]
    ]
    return {**part, "devices": devices}


def _changed(
    driver: str, part: JsonObject, unhealthy: Collection[str], lost: Collection[str]
) -> list[JsonObject]:
    """Return the devices of a slice without the lost devices. Unhealthy devices get a taint."""
    return [
        _tainted(driver, each) if each["name"] in unhealthy else each
        for each in part["devices"]
        if each["name"] not in lost
    ]


def _tainted(driver: str, device: JsonObject) -> JsonObject:
    taint = {"key": f"{driver}/unhealthy", "value": "true", "effect": "NoSchedule"}
    fields = device.get("basic")
    if fields is not None:
        return {**device, "basic": {**fields, "taints": [*(fields.get("taints") or ()), taint]}}
    return {**device, "taints": [*(device.get("taints") or ()), taint]}


# -- layouts from numbers, and from recorded slices ----------------------------------------


def simulated_driver(
    driver: str,
    numa: Sequence[int | None],
    *,
    attributes: Mapping[str, JsonObject] | None = None,
    capacity: Mapping[str, JsonObject] | None = None,
) -> DriverLayout:
    """Return a layout with one device per entry of ``numa``.

    An entry is the NUMA node of the device, or None for a device without one. The devices of
    ``gpu.example.com`` are ``gpu-0``, ``gpu-1`` and so on. Every device also has ``attributes`` and
    ``capacity``, which have the format of these fields in a ResourceSlice.
    """
    prefix = driver.partition(".")[0]
    devices = [
        {
            "name": f"{prefix}-{number}",
            "attributes": {**_attributes(number, place), **(attributes or {})},
            **({"capacity": dict(capacity)} if capacity else {}),
        }
        for number, place in enumerate(numa)
    ]
    starts = range(0, max(1, len(devices)), _MAX_DEVICES)
    slices: list[JsonObject] = [{"devices": devices[at : at + _MAX_DEVICES]} for at in starts]
    return DriverLayout.of(driver, [PoolLayout(_NODE, tuple(slices))])


def _attributes(number: int, place: int | None) -> JsonObject:
    # Devices of one NUMA node are behind one PCIe root, as on most servers.
    root = f"pci0000:{(place or 0):02x}"
    made: JsonObject = {"index": {"int": number}, f"{_DOMAIN}/pcieRoot": {"string": root}}
    return made if place is None else {**made, "numaNode": {"int": place}}


_KWOK: Final = "kwok.x-k8s.io/dra-"
_KWOK_DRIVERS: Final[Mapping[str, tuple[str, str, Mapping[str, JsonObject]]]] = {
    f"{_KWOK}gpu": ("gpu.kwok.x-k8s.io", "16Gi", {}),
    # The DeviceClass of the real driver selects this type.
    f"{_KWOK}nvidia-gpu": ("gpu.nvidia.com", "80Gi", {"type": {"string": "gpu"}}),
}
"""Driver, default memory and attributes of its devices, by KWOK's annotation of a Node."""
_KWOK_DEVICES: Final = 128


def kwok_drivers(annotations: Mapping[str, str]) -> tuple[DriverLayout, ...]:
    """Return the layouts of the drivers that KWOK's annotations of a Node define.

    For example, ``kwok.x-k8s.io/dra-gpu`` is the number of devices, and
    ``kwok.x-k8s.io/dra-gpu-memory`` the memory of each device. Raises ClusterError with one
    line for an invalid annotation.
    """
    found = []
    for name, (driver, default, attributes) in _KWOK_DRIVERS.items():
        if name not in annotations:
            continue
        count, memory = annotations[name], annotations.get(f"{name}-memory", default)
        is_number = count.isascii() and count.isdigit() and len(count) <= 3
        if not is_number or not 1 <= int(count) <= _KWOK_DEVICES:
            raise ClusterError(
                f"annotation {name}: invalid number {count[:60]!r}: use 1 to {_KWOK_DEVICES}"
            )
        try:
            amount = Quantity.parse(memory)
            if amount.nanos <= 0:
                raise ValueError("expected more than 0")
        except ValueError as error:
            raise ClusterError(f"annotation {name}-memory: {memory[:60]!r}: {error}") from None
        capacity = {"memory": {"value": str(amount)}}
        places = [None] * int(count)
        found.append(simulated_driver(driver, places, attributes=attributes, capacity=capacity))
    return tuple(found)


_SPEC: Final = {"driver", "pool", "nodeName"}
_OTHER_NODES: Final = ("allNodes", "nodeSelector", "perDeviceNodeSelection")


def recorded(slices: Iterable[Mapping[str, Any]]) -> tuple[DriverLayout, ...]:
    """Return the layouts of the drivers that have published these ResourceSlices (v1).

    All slices must belong to the same node. Raises ClusterError with one line if they do not, and
    if the list is empty.
    """
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    nodes = set[str]()
    for each in sorted(slices, key=lambda each: str(each["metadata"].get("name", ""))):
        spec = each["spec"]
        nodes.add(_node_of(each))
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    if len(nodes) != 1:
        found = (
            f"slices of {len(nodes)} nodes ({', '.join(sorted(nodes))})" if nodes else "no slices"
        )
        raise ClusterError(f"{found}: expected the slices of one node")
    (node,) = nodes
    drivers = sorted({driver for driver, _ in pools})
    return tuple(
        DriverLayout.of(
            driver,
            [
                PoolLayout(_pool_name(name, node), tuple(map(_part, specs)))
                for (owner, name), specs in sorted(pools.items())
                if owner == driver
            ],
        )
        for driver in drivers
    )


def _node_of(slice_: Mapping[str, Any]) -> str:
    spec = slice_["spec"]
    others = [field for field in _OTHER_NODES if spec.get(field)]
    if others or not spec.get("nodeName"):
        name = slice_["metadata"].get("name", "without name")
        raise ClusterError(
            f"slice {name} has no spec.nodeName: a node can only publish slices of its own devices"
        )
    return str(spec["nodeName"])


def _pool_name(name: str, node: str) -> str:
    # Pools with equal names on two nodes would be one pool.
    return name.replace(node, _NODE) if node in name else f"{_NODE}/{name}"


def _part(spec: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in spec.items() if key not in _SPEC}
