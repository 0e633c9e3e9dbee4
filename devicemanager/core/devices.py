"""A device as its plugin reports it."""

from __future__ import annotations

import attrs

from devicemanager.core.ids import DeviceId

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
WITHOUT_TOPOLOGY = -1
"""The node under which devices without topology are recorded
(``nodeWithoutTopology``, pkg/kubelet/cm/devicemanager/manager.go)."""


@attrs.frozen
class Device:
    """One device of a ListAndWatch message.

    ``health`` is the plugin's own text: anything other than ``Healthy`` counts as
    unhealthy. ``numa`` holds NUMA node ids, in the plugin's order; empty means no
    topology, also when the plugin sent a topology without nodes (Q13).
    """

    id: DeviceId
    health: str = HEALTHY
    numa: tuple[int, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.health == HEALTHY
