"""The node of ``devicemanager explain``: devices from flags and files, and an in-memory kubelet.

The sources complement each other. A checkpoint has devices and their allocations, ``--allocatable``
adds NUMA nodes, and ``--devices`` adds new devices. The module is imported only when ``explain``
runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import attrs

from checkpoint import Checkpoint
from devicemanager.cli.files import read_file
from devicemanager.cli.options import CommandError
from devicemanager.core.api.deviceplugin import UNHEALTHY
from devicemanager.core.devices import Device
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.kubelet.inmemory.devices import numbered
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.rehearsal.inventory import Inventory

_MAX_ALLOCATABLE = 64 << 20


class OfflineNode(NamedTuple):
    """The state of a node before the pods of the command line are admitted."""

    inventory: Inventory
    settings: Settings
    saved: Checkpoint | None = None
    """The checkpoint with the devices that are already allocated; None without a checkpoint."""
    names: Mapping[str, str] = {}
    """Names of pods as ``namespace/name``, by UID."""
    notes: tuple[str, ...] = ()
    """Notes for the user on problems of the input that can make the explanation wrong, such as an
    invalid checkpoint."""

    def kubelet(self) -> InMemoryKubelet:
        """Return a new in-memory kubelet with this state. Raises TopologyConfigError."""
        devices = {str(name): tuple(each.values()) for name, each in self.inventory.items()}
        return InMemoryKubelet(self.settings, devices, saved=self.saved, names=self.names)


# -- devices -----------------------------------------------------------------------------


def add_allocatable(inventory: Inventory, path: str) -> None:
    """Add the devices in the file ``path`` to ``inventory``. The file has the output of
    ``devicemanager resources -o json``.

    Raises CommandError and OSError.
    """
    try:
        rows = list(_rows(json.loads(read_file(path, _MAX_ALLOCATABLE))))
    # Any other content fails somewhere in `_rows`. The exact place would not help the user.
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CommandError(
            f"invalid file {path}: expected the output of `devicemanager resources -o json`"
        ) from None
    for resource, id_, nodes in rows:
        devices = inventory.setdefault(resource, {})
        before = devices.get(id_)
        # NUMA nodes from a checkpoint are kept. A device in this list is healthy.
        both = {*nodes, *((before and before.numa) or ())}
        devices[id_] = Device(id_, numa=tuple(sorted(both)) or None)


def _rows(content: Any) -> Iterator[tuple[ResourceName, DeviceId, list[int]]]:
    for entry in content["devices"]:
        nodes = [int(node) for node in entry["numa_nodes"]]
        for id_ in entry["device_ids"]:
            yield ResourceName(str(entry["resource_name"])), DeviceId(str(id_)), nodes


def apply_flags(inventory: Inventory, args: argparse.Namespace) -> None:
    """Add the devices of --devices to ``inventory``, and mark the devices of --unhealthy in it as
    unhealthy. Raises CommandError for an unknown device of --unhealthy."""
    for option in args.devices:
        resource = ResourceName(option.resource)
        devices = inventory.setdefault(resource, {})
        # gpu-0, gpu-1 and so on for vendor.com/gpu; numbers continue after existing devices.
        devices.update(numbered(resource, option.nodes, len(devices)))
    for name, ids in args.unhealthy:
        _make_unhealthy(inventory, name, ids)


def _make_unhealthy(inventory: Inventory, resource: str, ids: Iterable[str]) -> None:
    devices = inventory.get(ResourceName(resource), {})
    for id_ in map(DeviceId, ids):
        if id_ not in devices:
            choices = ", ".join(sorted(devices))
            advice = f"use one of {choices}" if choices else f"{resource} has no devices"
            raise CommandError(f"--unhealthy: unknown device {id_} of {resource}: {advice}")
        devices[id_] = attrs.evolve(devices[id_], health=UNHEALTHY)


def without_nodes(inventory: Inventory) -> dict[ResourceName, int]:
    """Return a mapping from resource to the number of its devices without a known NUMA node. A
    resource whose devices all have a known NUMA node is not in the mapping."""
    counts = {
        resource: sum(not device.numa for device in devices.values())
        for resource, devices in inventory.items()
    }
    return {resource: count for resource, count in counts.items() if count}
