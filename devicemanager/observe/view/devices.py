"""Devices of a resource as columns: from its list, and from who holds what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from devicemanager.core import bitset
from devicemanager.core.api.deviceplugin import MAX_NUMA_NODES
from devicemanager.core.devices import WITHOUT_TOPOLOGY, Nodes
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceIndex, DeviceList
from devicemanager.core.ledger import LEAKED, AllocatedByContainer, AllocatedDevices
from devicemanager.kubelet.manager.state_snapshot import Reserved
from devicemanager.observe.view.values import DeviceState, Holder, Layout, ResourceView

__all__ = ["Holders", "Layouts", "by_node", "resource_view"]

_Rows = tuple[tuple[ResourceName, ContainerName, AllocatedDevices], ...]
"""All that one pod holds."""


class Holders:
    """Who holds which device, kept from look to look: an update costs what changed."""

    def __init__(self) -> None:
        self._seen: Mapping[PodUid, AllocatedByContainer] = {}
        self._rows: dict[PodUid, _Rows] = {}
        self._of: dict[ResourceName, dict[str, tuple[Holder, ...]]] = {}

    def update(self, held: Mapping[PodUid, AllocatedByContainer]) -> set[ResourceName]:
        """Take over what is held now. Returns the resources for which that is news."""
        seen, touched = self._seen, set[ResourceName]()
        for pod in [pod for pod in seen if held.get(pod) is not seen[pod]]:
            touched |= self._remove(pod)
        for pod, holdings in held.items():
            if seen.get(pod) is not holdings:
                touched |= self._add(pod, holdings)
        self._seen = held
        return touched

    def resources(self) -> set[ResourceName]:
        """Those of which somebody holds a device."""
        return {resource for resource, holders in self._of.items() if holders}

    def of(self, resource: ResourceName) -> dict[str, tuple[Holder, ...]]:
        """Device id to its holders; a copy."""
        return dict(self._of.get(resource, ()))

    def nodes(self, resource: ResourceName, id_: str) -> Nodes:
        """The NUMA nodes of a held device, as they were when it was allocated."""
        for holder in self._of[resource][id_]:
            for of, _, holding in self._rows[PodUid(holder.pod)]:
                if of == resource:
                    found = [node for node, ids in holding.devices.items() if id_ in ids]
                    return None if found == [WITHOUT_TOPOLOGY] else tuple(sorted(found))
        return None

    def _add(self, pod: PodUid, holdings: AllocatedByContainer) -> set[ResourceName]:
        rows = tuple(
            [
                (resource, container, holding)
                for container, by_resource in holdings.items()
                for resource, holding in by_resource.items()
            ]
        )
        self._rows[pod] = rows
        for resource, container, holding in rows:
            holders, holder = self._of.setdefault(resource, {}), (Holder(pod, container),)
            for id_ in holding.ids:
                before = holders.get(id_)
                holders[id_] = holder if before is None else (*before, *holder)
        return {resource for resource, _, _ in rows}

    def _remove(self, pod: PodUid) -> set[ResourceName]:
        rows = self._rows.pop(pod, ())
        for resource, _, holding in rows:
            holders = self._of[resource]
            for id_ in holding.ids:
                left = tuple([each for each in holders.pop(id_, ()) if each.pod != pod])
                if left:
                    holders[id_] = left
        return {resource for resource, _, _ in rows}


# -- where devices are -----------------------------------------------------------------


class Layouts:
    """The latest layout of each resource, to be the same object until it changes."""

    def __init__(self) -> None:
        self._known: dict[ResourceName, tuple[DeviceIndex, Mapping[str, Nodes], Layout]] = {}

    def of(
        self, resource: ResourceName, device_index: DeviceIndex, others: Mapping[str, Nodes]
    ) -> Layout:
        """Of the listed devices, and of ``others`` that are not listed."""
        before = self._known.get(resource)
        if before is not None and before[0] is device_index and before[1] == others:
            return before[2]
        layout = _layout(device_index, others)
        if before is not None and (before[2].ids, before[2].numa) == (layout.ids, layout.numa):
            layout = before[2]
        self._known[resource] = device_index, others, layout
        return layout

    def keep_only(self, resources: Iterable[ResourceName]) -> None:
        """Forget those of all other resources."""
        self._known = {name: self._known[name] for name in resources if name in self._known}


def _layout(device_index: DeviceIndex, others: Mapping[str, Nodes]) -> Layout:
    ids = tuple(sorted(others))
    numa = (*device_index.numa, *(others[id_] for id_ in ids))
    return Layout((*device_index.ids, *ids), numa, by_node(numa))


def by_node(numa: Iterable[Nodes]) -> dict[int | None, tuple[int, ...]]:
    """``Layout.by_node`` of a column of NUMA nodes."""
    members: dict[int | None, list[int]] = {}
    for number, nodes in enumerate(numa):
        members.setdefault(_lowest(nodes), []).append(number)
    return {node: tuple(members[node]) for node in sorted(members, key=_none_last)}


def _lowest(nodes: Nodes) -> int | None:
    if not nodes:
        return None
    return min((node for node in nodes if 0 <= node < MAX_NUMA_NODES), default=None)


def _none_last(node: int | None) -> int:
    return MAX_NUMA_NODES if node is None else node


# -- what state they are in ------------------------------------------------------------


def resource_view(
    name: ResourceName,
    devices: DeviceList | None,
    connected: bool,
    holders: Holders,
    reserved: Iterable[Reserved],
    layouts: Layouts,
) -> ResourceView:
    """A resource as it is now; ``devices`` is None for one that nobody knows any more."""
    devices = devices or EMPTY
    held = holders.of(name)
    index = devices.device_index.index
    others = {id_: holders.nodes(name, id_) for id_ in held if id_ not in index}
    allocating = _reserved(name, held, reserved)
    return ResourceView(
        name,
        connected,
        devices.capacity,
        devices.allocatable,
        layouts.of(name, devices.device_index, others),
        _states(devices, held, allocating, len(others)),
        devices.health,
        held,
    )


def _reserved(
    name: ResourceName, held: dict[str, tuple[Holder, ...]], reserved: Iterable[Reserved]
) -> set[DeviceId]:
    """Adds holders of what is reserved to ``held``. Returns what is being allocated."""
    found = set[DeviceId]()
    for pod, resource, ids in reserved:
        if resource == name:
            for id_ in ids:
                if id_ not in held:
                    held[id_] = (Holder(pod),)
                    if pod != LEAKED:
                        found.add(id_)
    return found


def _states(
    devices: DeviceList,
    held: Iterable[str],
    allocating: Iterable[DeviceId],
    others: int,
) -> tuple[DeviceState, ...]:
    size = devices.capacity
    if devices.reported is None:  # no list since the plugin has left
        return (DeviceState.GONE,) * (size + others)
    states = [DeviceState.FREE] * size
    index = devices.device_index
    _put(states, index.bits(map(DeviceId, held)), DeviceState.HELD)
    _put(states, index.bits(allocating), DeviceState.ALLOCATING)
    _put(states, ((1 << size) - 1) & ~devices.healthy, DeviceState.UNHEALTHY)
    return (*states, *(DeviceState.GONE,) * others)


def _put(states: list[DeviceState], bits: int, state: DeviceState) -> None:
    for number in bitset.numbers(bits):
        states[number] = state
