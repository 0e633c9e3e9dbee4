"""Pods and allocatable resources from data, in the shape of ``pods -o json``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import attrs

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
from devicemanager.testing.mock_podresources.ids import SHAPES, device_ids
from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

__all__ = ["ContentReader"]

_MOST_DEVICES = 100_000


@attrs.frozen
class _Made:
    """The devices of a resource that were given by their number."""

    ids: tuple[str, ...]
    numa: tuple[int, ...]

    def groups(self, indexes: tuple[int, ...], resource: str) -> tuple[ContainerDevices, ...]:
        """Some of them, those of one NUMA node after another together."""
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
    """Reads the content of one script; containers may refer to devices of ``allocatable``."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def allocatable(self, where: Where, value: Any) -> Allocatable:
        """``devices``, ``cpu_ids`` and ``memory`` of a node."""
        found = fields(
            where,
            value,
            {
                "schema": text,
                "devices": listed(self._offered),
                "cpu_ids": id_list,
                "memory": listed(_memory),
            },
        )
        return Allocatable(
            _joined(found.get("devices", ())), found.get("cpu_ids", ()), found.get("memory", ())
        )

    def pods(self, where: Where, value: Any) -> tuple[Pod, ...]:
        """A list of pods, sorted by namespace and name."""
        found = listed(self._pod)(where, value)
        names = [(pod.namespace, pod.name) for pod in found if pod.active]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise where.wrong(f"{name[0]}/{name[1]} is there twice")
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
                "devices": listed(self._held),
                "cpu_ids": id_list,
                "memory": listed(_memory),
                "dynamic_resources": listed(_claim),
                "restartable_init": flag,
            },
        )
        return Container(
            _name(where, found), **{**found, "devices": _joined(found.get("devices", ()))}
        )

    def _offered(self, where: Where, value: Any) -> tuple[ContainerDevices, ...]:
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
            raise where.wrong(f"unknown id_shape {shape!r}: choose from {', '.join(SHAPES)}")
        if count > _MOST_DEVICES:
            raise where.wrong(f"count is {count}: at most {_MOST_DEVICES}")
        ids = device_ids(
            shape,
            count,
            replicas=found.get("replicas", 2),
            prefix=found.get("device_id_prefix", resource.rpartition("/")[2]),
            node=found.get("node_name", "mock"),
        )
        self._made[resource] = _Made(ids, found.get("numa", ()))
        return self._made[resource].groups(tuple(range(count)), resource)

    def _held(self, where: Where, value: Any) -> tuple[ContainerDevices, ...]:
        if not isinstance(value, Mapping) or "indexes" not in value:
            return self._plain(where, value)
        found = fields(where, value, {"resource_name": text, "indexes": id_list})
        resource = _name(where, found, "resource_name")
        made = self._made.get(resource)
        if made is None:
            raise where.wrong(f"indexes: allocatable has no {resource} with a count")
        for index in found["indexes"]:
            if index >= len(made.ids):
                raise where.wrong(f"indexes: there is no {index} among {len(made.ids)} {resource}")
        return made.groups(found["indexes"], resource)

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
    return tuple(each for group in groups for each in group)


def _name(where: Where, found: dict[str, Any], field: str = "name") -> str:
    if field not in found:
        raise where.wrong(f"{field} is missing")
    name: str = found.pop(field)
    return name


def _memory(where: Where, value: Any) -> ContainerMemory:
    found = fields(where, value, {"memory_type": text, "size": quantity, "numa_nodes": id_list})
    if "size" not in found:
        raise where.wrong("size is missing")
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
            raise where.wrong(f"{name} is missing")
    return ClaimResource(**found)
