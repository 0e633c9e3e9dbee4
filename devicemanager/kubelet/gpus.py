"""Simulated utilization and memory of a node's GPUs, for metrics like those of dcgm-exporter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from devicemanager.core.ids import PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.usage import IDLE
from devicemanager.kubelet.inventory import DeviceStatus
from devicemanager.kubelet.pods.records import PodRecord, PodStore

__all__ = ["GpuStats", "gpu_stats"]

_PRODUCT: Final = "nvidia.com/gpu.product"
_MEMORY: Final = "nvidia.com/gpu.memory"
"""Labels that GPU Feature Discovery sets: ``_PRODUCT`` is the model, ``_MEMORY`` the memory of each
GPU in MiB."""
_DEFAULT_MODEL: Final = "virtual"
_DEFAULT_MEMORY: Final = 16384
_MIB: Final = 1 << 20


@attrs.frozen
class GpuStats:
    """Utilization and memory of one GPU."""

    id: str
    """ID of the device, which the NVIDIA device plugin sets to the UUID of the GPU."""
    model: str
    pod: Pod | None
    """Pod whose running container uses the GPU; None if no running container uses it."""
    container: str
    """Name of the running container that uses the GPU; empty if no running container uses it."""
    utilization: float
    """Utilization of the GPU in percent."""
    used: int
    """Used memory in MiB."""
    free: int
    """Free memory in MiB."""


def gpu_stats(store: PodStore, devices: Iterable[DeviceStatus]) -> list[GpuStats]:
    """Return the ``GpuStats`` of all devices whose resource name contains ``gpu``.

    The order is that of ``devices``.
    """
    labels = store.node_labels()
    model = labels.get(_PRODUCT, _DEFAULT_MODEL)
    text = labels.get(_MEMORY, "")
    # A user can set the label to any text, which must not break the metrics.
    memory = int(text) if text.isascii() and text.isdigit() else _DEFAULT_MEMORY
    holders: dict[tuple[str, str], tuple[PodRecord, str] | None] = {}
    with store.lock:
        for device in devices:
            if "gpu" not in device.resource:
                continue
            key = device.resource, device.id
            holders.setdefault(key, None)
            record = store.get(PodUid(device.pod)) if device.pod else None
            # Several containers can have a device one after another. The running one uses it.
            if record is not None and device.container in record.running:
                holders[key] = record, device.container
        return [_stats(id_, model, memory, holder) for (_, id_), holder in holders.items()]


def _stats(id_: str, model: str, memory: int, holder: tuple[PodRecord, str] | None) -> GpuStats:
    if holder is None:
        return GpuStats(id_, model, None, "", 0.0, 0, memory)
    record, container = holder
    usage = IDLE if record.usage is None else record.usage.usage
    used = min(memory, int(usage.gpu_memory.of(memory * _MIB)) // _MIB)
    return GpuStats(id_, model, record.pod, container, usage.gpu.of(100.0), used, memory - used)
