"""Parse the pods and allocatable resources of a script.

The format is that of ``devicemanager pods -o json``. A resource in ``allocatable`` can be given as
a number of devices (``count``). The IDs and NUMA nodes of these devices are generated, and
containers refer to the devices by ``indexes``. Therefore ``allocatable`` is parsed before the pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import attrs

from devicemanager.core.printable import counted
from devicemanager.testing.mock_podresources.fields import (
    Where,
    fields,
    flag,
    id_list,
    listed,
    quantity,
    text,
    whole,
)
from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

__all__ = ["SHAPES", "ContentReader", "device_ids"]

SHAPES = ("index", "gpu-uuid", "mig", "replica", "pci")
"""Forms of device IDs: the values of ``SimulationSettings.id_shape``. See ``device_ids``."""

_MOST_DEVICES = 100_000


def device_ids(
    shape: str, count: int, *, replicas: int = 2, prefix: str = "gpu", node: str = "mock"
) -> tuple[str, ...]:
    """Return ``count`` device IDs of the form ``shape``.

    Shapes: ``gpu-uuid`` (``GPU-`` and a UUID), ``mig`` (``MIG-`` and a UUID), ``replica``
    (``GPU-<UUID>::0``, with ``replicas`` IDs per GPU), ``pci`` (``0000:01:00.0``), ``index``
    (``gpu-mock-0``). Plugins of hardware vendors use all shapes except ``index``. ``prefix`` and
    ``node`` are parts of the IDs of shape ``index``. Equal arguments return equal IDs. A simulated
    plugin has the same IDs if its settings ``id_shape``, ``replicas``, ``device_id_prefix`` and
    ``node_name`` have these values. Raises ConfigurationError for an unknown shape.
    """
    # Imported here: the module imports gRPC, which a script without `count` does not need.
    from devicemanager.plugin.simulated.settings import SimulationSettings

    settings = SimulationSettings(
        id_shape=shape, replicas=replicas, device_id_prefix=prefix, node_name=node
    )
    return tuple(settings.device_id(index) for index in range(count))


@attrs.frozen
class _Generated:
    """Generated devices of one resource."""

    ids: tuple[str, ...]
    numa: tuple[int, ...]

    def groups(self, indexes: tuple[int, ...], resource: str) -> tuple[ContainerDevices, ...]:
        """Return the devices with these indexes. Consecutive devices of one NUMA node share an
        entry."""
        # NUMA nodes are assigned round-robin, as by the simulated plugin.
        nodes = [self.numa[i % len(self.numa)] if self.numa else None for i in indexes]
        pairs = zip(indexes, nodes, strict=True)
        return tuple(
            ContainerDevices(
                resource,
                tuple(self.ids[index] for index, _ in group),
                () if node is None else (node,),
            )
            for node, group in groupby(pairs, key=lambda pair: pair[1])
        )


class ContentReader:
    """Parser of the content of one script. It stores the devices that it generates, by resource."""

    def __init__(self) -> None:
        self._generated: dict[str, _Generated] = {}

    def allocatable(self, where: Where, value: Any) -> Allocatable:
        """Parse the allocatable resources of a node: ``devices``, ``cpu_ids`` and ``memory``."""
        found = fields(
            where,
            value,
            {
                # The output of `devicemanager resources -o json` has this field. It is not used.
                "schema": text,
                "devices": listed(self._allocatable_devices),
                "cpu_ids": id_list,
                "memory": listed(_memory),
            },
        )
        return Allocatable(
            _joined(found.get("devices", ())), found.get("cpu_ids", ()), found.get("memory", ())
        )

    def pods(self, where: Where, value: Any) -> tuple[Pod, ...]:
        """Parse a list of pods; return them sorted by namespace and name."""
        found = listed(self._pod)(where, value)
        # A finished pod can have the same name as the pod that replaced it.
        names: set[tuple[str, str]] = set()
        for pod in found:
            name = (pod.namespace, pod.name)
            if pod.active and name in names:
                raise where.error(f"duplicate pod {pod.namespace}/{pod.name}: use another name")
            if pod.active:
                names.add(name)
        return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))

    def _pod(self, where: Where, value: Any) -> Pod:
        found = fields(
            where,
            value,
            {
                "name": text,
                "namespace": text,
                "containers": listed(self._container),
                "cpu_ids": id_list,
                "memory": listed(_memory),
                "active": flag,
            },
        )
        return Pod(_name(where, found), **{"namespace": "default", **found})

    def _container(self, where: Where, value: Any) -> Container:
        found = fields(
            where,
            value,
            {
                "name": text,
                "devices": listed(self._allocated),
                "cpu_ids": id_list,
                "memory": listed(_memory),
                "dynamic_resources": listed(_claim),
                "restartable_init": flag,
            },
        )
        return Container(
            _name(where, found), **{**found, "devices": _joined(found.get("devices", ()))}
        )

    def _allocatable_devices(self, where: Where, value: Any) -> tuple[ContainerDevices, ...]:
        # The value has IDs, or a number of generated devices. `_plain` reports any other value.
        if not isinstance(value, Mapping) or "count" not in value:
            return self._plain(where, value)
        found = fields(
            where,
            value,
            {
                "resource_name": text,
                "count": whole(0),
                "id_shape": text,
                "replicas": whole(1),
                "device_id_prefix": text,
                "node_name": text,
                "numa": id_list,
            },
        )
        resource = _name(where, found, "resource_name")
        count, shape = found["count"], found.get("id_shape", SHAPES[0])
        if shape not in SHAPES:
            raise where.error(f"unknown id_shape {shape!r}: use one of {', '.join(SHAPES)}")
        if count > _MOST_DEVICES:
            raise where.error(f"count is {count}: use at most {_MOST_DEVICES}")
        # The fixture `simulated_plugin` has the same defaults.
        ids = device_ids(
            shape,
            count,
            replicas=found.get("replicas", 2),
            prefix=found.get("device_id_prefix", resource.rpartition("/")[2]),
            node=found.get("node_name", "mock"),
        )
        self._generated[resource] = _Generated(ids, found.get("numa", ()))
        return self._generated[resource].groups(tuple(range(count)), resource)

    def _allocated(self, where: Where, value: Any) -> tuple[ContainerDevices, ...]:
        if not isinstance(value, Mapping) or "indexes" not in value:
            return self._plain(where, value)
        found = fields(where, value, {"resource_name": text, "indexes": id_list})
        resource = _name(where, found, "resource_name")
        generated = self._generated.get(resource)
        if generated is None:
            raise where.error(
                f"indexes: {resource} has no generated devices: add it to allocatable.devices "
                "with a count"
            )
        for index in found["indexes"]:
            # `id_list` allows no negative numbers.
            if index >= len(generated.ids):
                raise where.error(
                    f"indexes: {index} is too large: {resource} has "
                    f"{counted(len(generated.ids), 'device')}, counted from 0"
                )
        return generated.groups(found["indexes"], resource)

    @staticmethod
    def _plain(where: Where, value: Any) -> tuple[ContainerDevices, ...]:
        found = fields(
            where,
            value,
            {"resource_name": text, "device_ids": listed(text), "numa_nodes": id_list},
        )
        resource = _name(where, found, "resource_name")
        ids, nodes = found.get("device_ids", ()), found.get("numa_nodes", ())
        return (ContainerDevices(resource, ids, nodes),)


def _joined(groups: tuple[tuple[ContainerDevices, ...], ...]) -> tuple[ContainerDevices, ...]:
    # An item with generated devices becomes several entries, one for each run of a NUMA node.
    return tuple(each for group in groups for each in group)


def _name(where: Where, found: dict[str, Any], field: str = "name") -> str:
    if field not in found:
        raise where.error(f"{field} is missing")
    # The name is removed, because the caller passes all other fields by keyword.
    name: str = found.pop(field)
    return name


def _memory(where: Where, value: Any) -> ContainerMemory:
    found = fields(where, value, {"memory_type": text, "size": quantity, "numa_nodes": id_list})
    if "size" not in found:
        raise where.error("size is missing")
    nodes = found.get("numa_nodes", ())
    return ContainerMemory(found.get("memory_type", "memory"), found["size"], nodes)


def _claim(where: Where, value: Any) -> DynamicResource:
    found = fields(
        where,
        value,
        {"claim_name": text, "claim_namespace": text, "claim_resources": listed(_claimed)},
    )
    return DynamicResource(
        _name(where, found, "claim_name"), **{"claim_namespace": "default", **found}
    )


def _claimed(where: Where, value: Any) -> ClaimResource:
    found = fields(
        where,
        value,
        {
            "driver_name": text,
            "pool_name": text,
            "device_name": text,
            "cdi_devices": listed(text),
            "share_id": text,
        },
    )
    for name in ("driver_name", "pool_name", "device_name"):
        if name not in found:
            raise where.error(f"{name} is missing")
    return ClaimResource(**found)
