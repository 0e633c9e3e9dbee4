"""Contents of a checkpoint as Python values.

None stands for Go's nil. None and an empty tuple or dict are different values: they lead to
different files and checksums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

DevicesPerNUMA: TypeAlias = Mapping[int, tuple[str, ...] | None]
"""Device IDs by NUMA node. Devices without topology have the key -1. A device with two NUMA nodes
is listed under both."""

RegisteredDevices: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""IDs of healthy devices by resource name."""


@attrs.frozen
class PodDevicesEntry:
    """Devices of one resource that are allocated to one container (``PodDevicesEntry``,
    pkg/kubelet/cm/devicemanager/checkpoint, v1.32).

    ``alloc_resp`` is the plugin's ContainerAllocateResponse as serialized protobuf. This package
    does not decode it.
    """

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: DevicesPerNUMA | None
    alloc_resp: bytes | None


@attrs.frozen
class Checkpoint:
    """Contents of ``kubelet_internal_checkpoint`` without the checksum, which is computed from
    them.

    The order of ``entries`` and of device IDs affects the file and the checksum. The order of keys
    in mappings affects neither.
    """

    entries: tuple[PodDevicesEntry, ...] | None
    registered_devices: RegisteredDevices | None
