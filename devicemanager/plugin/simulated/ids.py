"""Device ids in the shapes that vendors use: the same ones after every restart."""

from __future__ import annotations

import uuid

from devicemanager.plugin.simulated.settings import IdShape, SimulationSettings

__all__ = ["device_id"]

_SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "simulated.device")
_SLOTS = 32


def device_id(settings: SimulationSettings, index: int) -> str:
    """The id of device number ``index``, unique among a plugin's devices."""
    match settings.id_shape:
        case IdShape.INDEX:
            return _plain(settings, index)
        case IdShape.GPU_UUID:
            return f"GPU-{_uuid(settings, index)}"
        case IdShape.MIG:
            return f"MIG-{_uuid(settings, index)}"
        case IdShape.REPLICA:
            gpu, replica = divmod(index, settings.replicas)
            return f"GPU-{_uuid(settings, gpu)}::{replica}"
        case IdShape.PCI:
            bus, slot = divmod(index, _SLOTS)
            domain, bus = divmod(bus, 255)
            return f"{domain:04x}:{bus + 1:02x}:{slot:02x}.0"


def _plain(settings: SimulationSettings, index: int) -> str:
    return f"{settings.device_id_prefix}-{settings.node_name}-{index}"


def _uuid(settings: SimulationSettings, index: int) -> uuid.UUID:
    return uuid.uuid5(_SPACE, _plain(settings, index))
