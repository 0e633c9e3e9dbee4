"""Devices as their plugins advertise them."""

from __future__ import annotations

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.ids import DeviceId

WITHOUT_TOPOLOGY = -1
"""ID -1, which stands for the NUMA node of devices without topology
(``nodeWithoutTopology``, pkg/kubelet/cm/devicemanager/manager.go, v1.32)."""


Nodes = tuple[int, ...] | None
"""NUMA nodes of a device, in the plugin's order; None if the plugin sent no topology. An empty
tuple is a topology without nodes. It has the same effect as None, except in topology hints
(``DeviceHintProvider``), and in GetAllocatableResources with quirk Q13 (``versions.quirks``)."""


@attrs.frozen
class Device:
    """One device of a ListAndWatch response.

    ``health`` is the plugin's text. Any text other than ``Healthy`` counts as unhealthy.
    """

    id: DeviceId
    health: str = HEALTHY
    numa: Nodes = None

    @property
    def is_healthy(self) -> bool:
        return self.health == HEALTHY
