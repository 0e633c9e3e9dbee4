"""Inventory: all devices of a node, by resource and device ID."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from checkpoint import Checkpoint
from devicemanager.core.api.deviceplugin import UNHEALTHY
from devicemanager.core.devices import WITHOUT_TOPOLOGY, Device, Nodes
from devicemanager.core.ids import DeviceId, ResourceName

Inventory: TypeAlias = dict[ResourceName, dict[DeviceId, Device]]
"""Devices by resource and device ID."""


def add_checkpoint(inventory: Inventory, saved: Checkpoint) -> None:
    """Add the devices of a checkpoint to the inventory.

    A checkpoint lists only healthy devices as registered. A device that is allocated but not
    registered is therefore unhealthy. NUMA nodes are known only for allocated devices.
    """
    allocated = _allocated(saved)
    for name, registered in (saved.registered_devices or {}).items():
        resource = ResourceName(name)
        healthy = set(map(DeviceId, registered or ()))
        nodes = allocated.get(resource, {})
        devices = inventory.setdefault(resource, {})
        # The order of a set of strings changes with each Python process. Sorting makes results
        # repeatable.
        for id_ in sorted(healthy | nodes.keys()):
            device = Device(id_, numa=nodes.get(id_))
            devices[id_] = device if id_ in healthy else attrs.evolve(device, health=UNHEALTHY)


def _allocated(saved: Checkpoint) -> dict[ResourceName, dict[DeviceId, Nodes]]:
    found: dict[ResourceName, dict[DeviceId, Nodes]] = {}
    for entry in saved.entries or ():
        nodes = found.setdefault(ResourceName(entry.resource_name), {})
        # A device on several NUMA nodes is listed under each node.
        for node, ids in (entry.device_ids or {}).items():
            for id_ in map(DeviceId, ids or ()):
                here = () if node == WITHOUT_TOPOLOGY else (node,)
                nodes[id_] = tuple(sorted({*(nodes.get(id_) or ()), *here})) or None
    return found


def nodes_of(inventory: Inventory) -> set[int]:
    """Return the NUMA nodes of all devices in the inventory."""
    return {
        node
        for devices in inventory.values()
        for device in devices.values()
        for node in device.numa or ()
    }
