"""``allocatedResourcesStatus``: the health of a container's allocated devices.

Follows ``UpdateAllocatedResourcesStatus`` (pkg/kubelet/cm/devicemanager/manager.go, v1.32) with
three differences. The result is sorted by resource and ID; the kubelet's order is random (Q7). A
device that has vanished is Unknown; the kubelet reports Healthy (Q9). A device whose plugin has
disconnected is Unhealthy; the kubelet reports the device's last health (Q9). ``versions.quirks``
lists kubelet bugs such as Q7.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer


class Health(StrEnum):
    """Health of a device (``ResourceHealthStatus`` in the Kubernetes API)."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@attrs.frozen
class ResourceHealth:
    """The health of one allocated device."""

    resource_id: DeviceId
    health: Health
    message: str | None = None
    """Message of the DRA driver about the health; None for devices of plugins."""


@attrs.frozen
class ResourceStatus:
    """The health of all devices of one resource in a container, sorted by ID."""

    name: ResourceName
    resources: tuple[ResourceHealth, ...]


def allocated_resources_status(
    allocated: AllocatedByContainer,
    devices: Callable[[ResourceName], DeviceList | None],
    quirks: frozenset[str] = frozenset(),
) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
    """Return ``allocatedResourcesStatus`` of each container that has devices, by container name.

    The function ``devices`` returns the current device list of a resource. With quirk ``Q9``, a
    device that has vanished is Healthy, and a device whose plugin has disconnected keeps its last
    health.
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
        for container, by_resource in allocated.items()
    }


def device_health(devices: DeviceList | None, id_: DeviceId) -> Health:
    """Return the health of the device ``id_`` in ``devices``, the device list of its resource.

    The health is Unknown if the list does not contain the device, or if ``devices`` is None.
    """
    number = None if devices is None else devices.device_index.index.get(id_)
    if devices is None or number is None:
        return Health.UNKNOWN
    if devices.is_healthy(number):
        return Health.HEALTHY
    # If the plugin has disconnected, its last text for the device can still be Healthy.
    return Health.UNHEALTHY


def _last_health(devices: DeviceList | None, id_: DeviceId) -> Health:
    # The kubelet reports Healthy for a device that it does not find in its lists (v1.32).
    number = None if devices is None else devices.device_index.index.get(id_)
    if devices is None or number is None:
        return Health.HEALTHY
    return Health.HEALTHY if devices.health[number] == HEALTHY else Health.UNHEALTHY
