"""A consistent snapshot of the device manager's state, for displays (``devicemanager.observe``).

The values in a snapshot are immutable: two snapshots share the objects that have not changed. This
module is imported with the first snapshot, because a kubelet without displays does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.core.endpoints import EndpointInfo
from devicemanager.core.ids import DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import LEAKED, AllocatedByContainer
from devicemanager.kubelet.manager.state import State

__all__ = ["ManagerSnapshot", "Reserved", "snapshot"]

Reserved = tuple[PodUid, ResourceName, frozenset[DeviceId]]
"""Devices that an admission in progress has reserved, as pod UID, resource and device IDs.

With quirk Q4 (a kubelet bug), the devices of a failed admission stay in use. An entry for such
devices has ``LEAKED`` instead of a pod UID."""


@attrs.frozen(eq=False)
class ManagerSnapshot:
    """Plugins, device lists and allocations at one moment."""

    lists: Mapping[ResourceName, DeviceList]
    """The current device list of each known resource, sorted by resource."""
    serving: Mapping[ResourceName, EndpointInfo]
    """Mapping from each resource to the registration whose plugin receives Allocate calls. If no
    plugin of the resource is connected, it is the registration that disconnected last."""
    connected: tuple[EndpointInfo, ...]
    """Every connected registration, oldest first."""
    held: Mapping[PodUid, AllocatedByContainer]
    """Allocated devices by pod, container and resource."""
    reserved: tuple[Reserved, ...]


def snapshot(state: State) -> ManagerSnapshot:
    """Take a snapshot of the state. Must be called with the state's lock held.

    The duration depends on the number of resources, plugins and pods, but not on the number of
    devices.
    """
    lists = dict(state.endpoints.resources())
    serving = {name: state.endpoints.serving(name) for name in lists}
    # Reservations are copied: their sets are immutable, but the lists that contain the sets change.
    drafts = [
        (each.pod.uid, resource, ids)
        for each in state.pods.admissions()
        for resource, reservations in each.draft.reserved.items()
        for ids in reservations
    ]
    leaked = [(LEAKED, resource, ids) for resource, ids in state.ledger.leaked()]
    return ManagerSnapshot(
        lists,
        {name: endpoint for name, endpoint in serving.items() if endpoint is not None},
        state.endpoints.connected(),
        state.ledger.snapshot(),
        (*drafts, *leaked),
    )
