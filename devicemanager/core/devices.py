"""A device as its plugin reports it."""

from __future__ import annotations

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.ids import DeviceId

WITHOUT_TOPOLOGY = -1
"""The node under which devices without topology are recorded
(``nodeWithoutTopology``, pkg/kubelet/cm/devicemanager/kubelet/manager.go)."""


Nodes = tuple[int, ...] | None
"""The NUMA nodes of a device, in the plugin's order. None: the plugin sent no topology.
Empty: it sent one without nodes, which is the same (Q13) but for one rule of hints
(``DeviceHintProvider``)."""


@attrs.frozen
class Device:
    """One device of a ListAndWatch message.

    ``health`` is the plugin's own text: anything other than ``Healthy`` counts as
    unhealthy.
    """

    id: DeviceId
    health: str = HEALTHY
    numa: Nodes = None

    @property
    def is_healthy(self) -> bool:
        return self.health == HEALTHY
