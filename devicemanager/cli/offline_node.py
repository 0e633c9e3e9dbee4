"""A node on paper: devices from flags and files, admissions without a socket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from checkpoint import Checkpoint
from devicemanager.cli.device_option import DeviceOption
from devicemanager.cli.files import read_file
from devicemanager.cli.options import CommandError
from devicemanager.core.api.deviceplugin import UNHEALTHY
from devicemanager.core.devices import WITHOUT_TOPOLOGY, Device, Nodes
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.kubelet.inmemory.devices import numbered
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.settings import Settings

_MAX_ALLOCATABLE = 64 << 20

Inventory = dict[ResourceName, dict[DeviceId, Device]]
"""Every resource's devices by id."""


class OfflineNode:
    """A light node to ask about admissions."""

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        saved: Checkpoint | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """``saved`` holds what pods have already, ``names`` what they are called by UID. Raises
        TopologyConfigError."""
        devices = {str(resource): tuple(each.values()) for resource, each in inventory.items()}
        self._kubelet = InMemoryKubelet(settings, devices, saved=saved, names=names)

    def admit(self, pod: Pod) -> Admission:
        """Admit a pod after all the others. Raises RequestError for one that is there."""
        return self._kubelet.admit(pod, start=False)


# -- where devices come from ---------------------------------------------------------------


def add_checkpoint(inventory: Inventory, saved: Checkpoint) -> None:
    """The devices a checkpoint names: registered ones are healthy, held ones that are not
    registered unhealthy. NUMA nodes are known of held devices only."""
    held = _held_nodes(saved)
    for name, registered in (saved.registered_devices or {}).items():
        resource = ResourceName(name)
        healthy = set(map(DeviceId, registered or ()))
        nodes = held.get(resource, {})
        devices = inventory.setdefault(resource, {})
        for id_ in sorted(healthy | nodes.keys()):
            known = Device(id_, numa=nodes.get(id_))
            devices[id_] = known if id_ in healthy else attrs.evolve(known, health=UNHEALTHY)


def _held_nodes(saved: Checkpoint) -> dict[ResourceName, dict[DeviceId, Nodes]]:
    found: dict[ResourceName, dict[DeviceId, Nodes]] = {}
    for entry in saved.entries or ():
        nodes = found.setdefault(ResourceName(entry.resource_name), {})
        for node, ids in (entry.device_ids or {}).items():
            for id_ in map(DeviceId, ids or ()):
                here = () if node == WITHOUT_TOPOLOGY else (node,)
                nodes[id_] = tuple(sorted({*(nodes.get(id_) or ()), *here})) or None
    return found


def add_allocatable(inventory: Inventory, path: str) -> None:
    """The healthy devices and NUMA nodes of ``devicemanager resources -o json``.

    Raises CommandError for a file that is something else.
    """
    try:
        rows = list(_rows(json.loads(read_file(path, _MAX_ALLOCATABLE))))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CommandError(
            f"{path}: this is not what `devicemanager resources -o json` prints"
        ) from None
    for resource, id_, nodes in rows:
        devices = inventory.setdefault(resource, {})
        known = devices.get(id_)
        both = {*nodes, *((known and known.numa) or ())}
        devices[id_] = Device(id_, numa=tuple(sorted(both)) or None)


def _rows(content: Any) -> Iterator[tuple[ResourceName, DeviceId, list[int]]]:
    for entry in content["devices"]:
        nodes = [int(node) for node in entry["numa_nodes"]]
        for id_ in entry["device_ids"]:
            yield ResourceName(str(entry["resource_name"])), DeviceId(str(id_)), nodes


def add_option(inventory: Inventory, option: DeviceOption) -> None:
    """The devices of one ``--devices``: ``gpu-0``, ``gpu-1`` for ``vendor.com/gpu``, or
    what follows if there are such already."""
    resource = ResourceName(option.resource)
    devices = inventory.setdefault(resource, {})
    devices.update(numbered(resource, option.nodes, len(devices)))


def make_unhealthy(inventory: Inventory, resource: str, ids: Iterable[str]) -> None:
    """Raises CommandError for a device that is not there."""
    devices = inventory.get(ResourceName(resource), {})
    for id_ in map(DeviceId, ids):
        if id_ not in devices:
            there = ", ".join(sorted(devices)) or "none"
            raise CommandError(f"{resource} has no device {id_}; there are: {there}")
        devices[id_] = attrs.evolve(devices[id_], health=UNHEALTHY)


def nodes_of(inventory: Mapping[ResourceName, Mapping[DeviceId, Device]]) -> set[int]:
    """Every NUMA node that a device names."""
    return {
        node
        for devices in inventory.values()
        for device in devices.values()
        for node in device.numa or ()
    }


def without_nodes(inventory: Inventory) -> dict[ResourceName, int]:
    """How many devices of each resource have no NUMA node that is known."""
    counts = {
        resource: sum(not device.numa for device in devices.values())
        for resource, devices in inventory.items()
    }
    return {resource: count for resource, count in counts.items() if count}
