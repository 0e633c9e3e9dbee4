"""Plugins and devices as one looks at them: who registered what, and who holds which device."""

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
    """The plugin of one resource."""

    resource: str
    endpoint: str
    """The socket's file name, or the path of a plugin found by the watcher; of a resource
    that only the checkpoint names, the resource."""
    connected: bool
    """False once its list stream has ended, until the grace period is over."""
    pre_start_required: bool
    get_preferred_allocation_available: bool
    capacity: int
    allocatable: int


@attrs.frozen
class DeviceStatus:
    """One device."""

    resource: str
    id: str
    health: Health
    """``Unknown`` when its plugin has left, or does not list it any more."""
    numa_nodes: tuple[int, ...] | None
    """None for a device without topology."""
    pod: str | None = None
    """The UID of the pod that holds it."""
    container: str | None = None


def plugins(state: State) -> tuple[PluginStatus, ...]:
    """The plugin that serves each known resource, sorted by resource."""
    with state.lock:
        return tuple(
            [_plugin(state, resource, devices) for resource, devices in state.endpoints.resources()]
        )


def _plugin(state: State, resource: ResourceName, devices: DeviceList) -> PluginStatus:
    endpoint = state.endpoints.serving(resource)
    assert endpoint is not None, "a known resource has an endpoint, if a stopped one"
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
    """Every device that a plugin lists or a container holds, sorted by resource and id. One
    that several containers of a pod use after one another has a row for each."""
    with state.lock:
        lists = dict(state.endpoints.resources())
        held = [
            (resource, pod, container, holding.ids)
            for pod in state.ledger.pods()
            for container, by_resource in state.ledger.pod(pod).items()
            for resource, holding in by_resource.items()
        ]
    holders: dict[tuple[ResourceName, DeviceId], list[tuple[PodUid, ContainerName]]] = {}
    for resource, pod, container, ids in held:
        for id_ in ids:
            holders.setdefault((resource, id_), []).append((pod, container))
    known = {(resource, id_) for resource in lists for id_ in lists[resource].device_index.ids}
    return tuple(
        [
            status
            for resource, id_ in sorted(known | holders.keys())
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
