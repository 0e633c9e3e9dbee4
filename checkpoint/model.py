"""What a checkpoint holds. Go's nil and its empty slices and maps are kept apart everywhere,
since both the file and the checksum show the difference: nil is None here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

__all__ = ["Checkpoint", "DevicesPerNUMA", "PodDevicesEntry", "RegisteredDevices"]

DevicesPerNUMA: TypeAlias = Mapping[int, tuple[str, ...] | None]
"""NUMA node to device ids; -1 stands for devices without topology. A device with two
nodes stands under both."""

RegisteredDevices: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Resource name to the ids of its healthy devices."""


@attrs.frozen
class PodDevicesEntry:
    """The devices of one resource that one container holds (``PodDevicesEntry``,
    pkg/kubelet/cm/devicemanager/checkpoint, v1.32).

    ``alloc_resp`` is the serialised ContainerAllocateResponse, which this package
    never looks into.
    """

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: DevicesPerNUMA | None
    alloc_resp: bytes | None


@attrs.frozen
class Checkpoint:
    """All of ``kubelet_internal_checkpoint`` but the checksum, which follows from it.

    Order of ``entries`` and of device ids is part of the file and of the checksum; order
    of mappings is not.
    """

    entries: tuple[PodDevicesEntry, ...] | None
    registered_devices: RegisteredDevices | None
