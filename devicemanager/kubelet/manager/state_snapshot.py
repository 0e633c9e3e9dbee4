"""A consistent snapshot of the manager's state, for views.

Its values are replaced and never changed, so a later snapshot has the same objects wherever
nothing has changed. Loaded with the first view: a kubelet that nothing displays needs none.
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
"""Devices reserved by an admission in progress, or leaked by one (``LEAKED``, Q4)."""


@attrs.frozen(eq=False)
class ManagerSnapshot:
    """Plugins, lists and allocations of one moment."""

    lists: Mapping[ResourceName, DeviceList]
    """The current list of each known resource, sorted by name."""
    serving: Mapping[ResourceName, EndpointInfo]
    """The registration that Allocate is sent to; a stopped one if none is connected."""
    connected: tuple[EndpointInfo, ...]
    """Every connected registration, oldest first."""
    held: Mapping[PodUid, AllocatedByContainer]
    """Allocated devices."""
    reserved: tuple[Reserved, ...]


def snapshot(state: State) -> ManagerSnapshot:
    """Take a snapshot; must be called with the state's lock held.

    The cost grows with resources, plugins and pods, but not with devices.
    """
    lists = dict(state.endpoints.resources())
    serving = {name: state.endpoints.serving(name) for name in lists}
    # Reservations are copied one by one: the sets inside are never changed, but the lists are.
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
