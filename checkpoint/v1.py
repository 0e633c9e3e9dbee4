"""The checksum of files of kubelets up to v1.19, which those from v1.22 to v1.30 read as well.

A container's devices are a list there, without NUMA nodes; what reads it puts them on
``NODE``. The text that is hashed has the list in the map's place, and else today's names of
types (``checkpointDataV1.checksum``, pkg/kubelet/cm/devicemanager/checkpoint/checkpointv1.go,
v1.22).
"""

from __future__ import annotations

from typing import Final

from checkpoint.fnv import fnv1a_32
from checkpoint.model import Checkpoint, PodDevicesEntry
from checkpoint.text import HASHED_HEAD, render_registered, render_resource

__all__ = ["NODE", "checksum_v1"]

NODE: Final = 0
"""The NUMA node on which the devices of such a file are."""


def checksum_v1(checkpoint: Checkpoint) -> int:
    """The checksum of a file whose entries had lists, as read: all devices on ``NODE``."""
    entries = checkpoint.entries
    text = "<nil>" if entries is None else f"[{' '.join(map(_hashed, entries))}]"
    registered = checkpoint.registered_devices
    tail = render_registered(
        None
        if registered is None
        else [render_resource(name, registered[name]) for name in sorted(registered)]
    )
    return fnv1a_32(HASHED_HEAD + text.encode() + tail.hashed)


def _hashed(entry: PodDevicesEntry) -> str:
    ids = None if entry.device_ids is None else entry.device_ids[NODE]
    devices = "<nil>" if ids is None else f"[{' '.join(ids)}]"
    answer = entry.alloc_resp
    response = "<nil>" if answer is None else f"[{' '.join(map(str, answer))}]"
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:([]string){devices} "
        f"AllocResp:([]uint8){response}}}"
    )
