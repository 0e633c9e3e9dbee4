"""What one look at the manager's state shows, taken in one moment and cheaply.

Everything in it is a value that is replaced and never changed, so whoever looks again can
tell by identity what is still the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from devicemanager.core.allocation.container import PodAllocation
from devicemanager.core.endpoints import EndpointInfo
from devicemanager.core.ids import DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import LEAKED, AllocatedByContainer
from devicemanager.kubelet.manager.state import State

__all__ = ["ManagerSnapshot", "Reserved", "look"]

Reserved = tuple[PodUid, ResourceName, frozenset[DeviceId]]
"""Devices that were chosen for a pod whose admission is under way; for nobody if they leaked
(Q4)."""


@attrs.frozen(eq=False)
class ManagerSnapshot:
    """Plugins, lists and holdings of one moment."""

    lists: Mapping[ResourceName, DeviceList]
    """The list that counts for each known resource, sorted by name."""
    serving: Mapping[ResourceName, EndpointInfo]
    """Which registration is asked to allocate; a stopped one if none is connected."""
    connected: tuple[EndpointInfo, ...]
    """Every connected registration, oldest first."""
    held: Mapping[PodUid, AllocatedByContainer]
    reserved: tuple[Reserved, ...]


def look(state: State, admissions: Iterable[PodAllocation]) -> ManagerSnapshot:
    """With the state's lock held. ``admissions`` are those under way. Costs a step for each
    resource, plugin and pod, and none for a device."""
    lists = dict(state.endpoints.resources())
    serving = {name: state.endpoints.serving(name) for name in lists}
    drafts = [
        (each.pod.uid, resource, ids)
        for each in admissions
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
