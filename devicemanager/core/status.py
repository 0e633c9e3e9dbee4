"""``allocatedResourcesStatus``: the health of the devices that a pod's containers hold.

``UpdateAllocatedResourcesStatus`` (pkg/kubelet/cm/devicemanager/kubelet/manager.go, v1.32), but
sorted by resource, then id (Q7), and honest about devices that are gone (Q9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedDevices

Holdings = Mapping[ContainerName, Mapping[ResourceName, AllocatedDevices]]
"""A pod's holdings, by container and resource."""


class Health(StrEnum):
    """``ResourceHealthStatus`` of the Kubernetes API."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@attrs.frozen
class ResourceHealth:
    """One held device."""

    resource_id: DeviceId
    health: Health


@attrs.frozen
class ResourceStatus:
    """One resource of a container, its devices sorted by id."""

    name: ResourceName
    resources: tuple[ResourceHealth, ...]


def allocated_resources_status(
    holdings: Holdings,
    devices: Callable[[ResourceName], DeviceList | None],
    quirks: frozenset[str] = frozenset(),
) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
    """The status of every container that holds devices.

    ``devices`` gives the list that counts for a resource. With quirk ``Q9`` a device that
    vanished, or whose plugin left, still shows what it showed last.
    """
    health = _last_health if "Q9" in quirks else device_health
    return {
        container: tuple(
            ResourceStatus(
                resource,
                tuple(
                    ResourceHealth(id_, health(devices(resource), id_))
                    for id_ in sorted(by_resource[resource].ids)
                ),
            )
            for resource in sorted(by_resource)
        )
        for container, by_resource in holdings.items()
    }


def device_health(devices: DeviceList | None, id_: DeviceId) -> Health:
    """What is known of a device now; ``devices`` is the list that counts for its resource."""
    number = None if devices is None else devices.device_index.index.get(id_)
    if devices is None or number is None:
        return Health.UNKNOWN
    if devices.is_healthy(number):
        return Health.HEALTHY
    # The text may still say Healthy: then the plugin has left.
    return Health.UNKNOWN if _is_odd(devices.health[number]) else Health.UNHEALTHY


def _last_health(devices: DeviceList | None, id_: DeviceId) -> Health:
    number = None if devices is None else devices.device_index.index.get(id_)
    if devices is None or number is None:
        return Health.HEALTHY
    text = devices.health[number]
    return Health.UNKNOWN if _is_odd(text) else Health(text)


def _is_odd(health: str) -> bool:
    return health not in {HEALTHY, UNHEALTHY}
