"""The contents of a checkpoint.

Go's nil is None here and differs from an empty tuple or dict everywhere, because both the file
and the checksum show the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

DevicesPerNUMA: TypeAlias = Mapping[int, tuple[str, ...] | None]
"""NUMA node to device IDs; devices without topology are under -1. A device with two nodes is
listed under both."""

RegisteredDevices: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Resource to the IDs of its healthy devices."""


@attrs.frozen
class PodDevicesEntry:
    """The devices of one resource that are allocated to one container (``PodDevicesEntry``,
    pkg/kubelet/cm/devicemanager/checkpoint, v1.32).

    ``alloc_resp`` is the serialized ContainerAllocateResponse; it is not interpreted here.
    """

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: DevicesPerNUMA | None
    alloc_resp: bytes | None


@attrs.frozen
class Checkpoint:
    """The contents of ``kubelet_internal_checkpoint`` without the checksum, which follows from
    them.

    The order of ``entries`` and of device IDs is part of the file and of the checksum; the
    order of mappings is not.
    """

    entries: tuple[PodDevicesEntry, ...] | None
    registered_devices: RegisteredDevices | None
