"""Reports about plugins and devices: the plugin of each resource, the container of each device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.status import Health, device_health

if TYPE_CHECKING:
    from devicemanager.kubelet.manager.state import State

__all__ = ["DeviceStatus", "PluginStatus", "devices", "plugins"]


@attrs.frozen
class PluginStatus:
    """The plugin that serves a resource, and the numbers of devices of the resource."""

    resource: str
    endpoint: str
    """File name of the plugin's socket. For a plugin that the plugin watcher found: the path of the
    socket. For a resource that only the checkpoint names: the resource name."""
    connected: bool
    """True while the plugin's ListAndWatch stream is open."""
    pre_start_required: bool
    get_preferred_allocation_available: bool
    capacity: int
    allocatable: int


@attrs.frozen
class DeviceStatus:
    """A device with its health, and the container it is allocated to, if any."""

    resource: str
    id: str
    health: Health
    """Health of the device. After the plugin has disconnected, the health is ``Unhealthy``. It is
    ``Unknown`` if the kubelet has removed the resource, or if the plugin does not advertise the
    device any more."""
    numa_nodes: tuple[int, ...] | None
    """The device's NUMA nodes; None for a device without topology."""
    pod: str | None = None
    """UID of the pod that the device is allocated to; None if the device is free."""
    container: str | None = None
    """Name of the container that the device is allocated to; None if the device is free."""


def plugins(state: State) -> tuple[PluginStatus, ...]:
    """Return the plugin that serves each known resource, sorted by resource."""
    with state.lock:
        return tuple(
            [_plugin(state, resource, devices) for resource, devices in state.endpoints.resources()]
        )


def _plugin(state: State, resource: ResourceName, devices: DeviceList) -> PluginStatus:
    endpoint = state.endpoints.serving(resource)
    assert endpoint is not None, "every known resource has an endpoint, perhaps a stopped one"
    return PluginStatus(
        resource,
        endpoint.name,
        state.endpoints.is_connected(endpoint.id),
        endpoint.options.pre_start_required,
        endpoint.options.get_preferred_allocation_available,
        devices.capacity,
        devices.allocatable,
    )


def devices(state: State) -> tuple[DeviceStatus, ...]:
    """Return every advertised or allocated device, sorted by resource and ID.

    If several containers of a pod use the same device one after another, the result has one
    ``DeviceStatus`` for each container.
    """
    # Copied under the lock, sorted without it: an admission must not wait for this report.
    with state.lock:
        lists = dict(state.endpoints.resources())
        allocated = [
            (resource, pod, container, holding.ids)
            for pod in state.ledger.pods()
            for container, by_resource in state.ledger.pod(pod).items()
            for resource, holding in by_resource.items()
        ]
    holders: dict[tuple[ResourceName, DeviceId], list[tuple[PodUid, ContainerName]]] = {}
    for resource, pod, container, ids in allocated:
        for id_ in ids:
            holders.setdefault((resource, id_), []).append((pod, container))
    # Devices that are allocated but not advertised any more are included.
    listed = {(resource, id_) for resource in lists for id_ in lists[resource].device_index.ids}
    return tuple(
        [
            status
            for resource, id_ in sorted(listed | holders.keys())
            for status in _rows(resource, id_, lists.get(resource), holders.get((resource, id_)))
        ]
    )


def _rows(
    resource: ResourceName,
    id_: DeviceId,
    listed: DeviceList | None,
    holders: list[tuple[PodUid, ContainerName]] | None,
) -> Iterator[DeviceStatus]:
    number = None if listed is None else listed.device_index.index.get(id_)
    nodes = None if listed is None or number is None else listed.device_index.numa[number]
    health = device_health(listed, id_)
    if not holders:
        yield DeviceStatus(resource, id_, health, nodes)
    for pod, container in holders or ():
        yield DeviceStatus(resource, id_, health, nodes, pod, container)
