"""Build the view of a resource from its device list and the kubelet's device allocations.

The kubelet stores the devices of each pod. ``Holders`` stores the inverse: the containers of each
device. ``Layouts`` reuses the layout of a resource while its device IDs and NUMA nodes are
unchanged. ``resource_view`` builds the view from ``Holders``, ``Layouts`` and the device list.

The state of a device is the first of these that applies:

1. GONE: its plugin has disconnected, or no longer lists the device.
2. UNHEALTHY: the device is listed as unhealthy, whether it is in use or not.
3. ALLOCATING: the device is reserved for an admission in progress.
4. ALLOCATED: the device is allocated.
5. FREE: none of these.
"""

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

# All allocations of one pod.
_Rows = tuple[tuple[ResourceName, ContainerName, AllocatedDevices], ...]


class Holders:
    """The containers to which devices are allocated. The cost of an update depends on the number of
    changed pods."""

    def __init__(self) -> None:
        self._current: Mapping[PodUid, AllocatedByContainer] = {}
        self._rows: dict[PodUid, _Rows] = {}
        self._by_resource: dict[ResourceName, dict[str, tuple[Holder, ...]]] = {}

    def update(self, held: Mapping[PodUid, AllocatedByContainer]) -> set[ResourceName]:
        """Replace the allocations of all pods. Return the resources with changed allocations."""
        before, changed = self._current, set[ResourceName]()
        # Identity is enough: the ledger replaces a pod's allocations and never changes them.
        for pod in [pod for pod in before if held.get(pod) is not before[pod]]:
            changed |= self._remove(pod)
        for pod, holdings in held.items():
            if before.get(pod) is not holdings:
                changed |= self._add(pod, holdings)
        self._current = held
        return changed

    def resources(self) -> set[ResourceName]:
        """Return the resources with at least one allocated device."""
        return {resource for resource, holders in self._by_resource.items() if holders}

    def of(self, resource: ResourceName) -> dict[str, tuple[Holder, ...]]:
        """Return a mapping from the ID of each allocated device of a resource to its containers."""
        return dict(self._by_resource.get(resource, ()))

    def nodes(self, resource: ResourceName, id_: str) -> Nodes:
        """Return the NUMA nodes that an allocated device had when it was allocated.

        Return None if the device had no topology then.
        """
        for holder in self._by_resource[resource][id_]:
            for name, _, holding in self._rows[PodUid(holder.pod)]:
                if name == resource:
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
        # Stored for ``_remove``, because the ledger no longer has the allocations then.
        self._rows[pod] = rows
        for resource, container, holding in rows:
            holders = self._by_resource.setdefault(resource, {})
            holder = (Holder(pod, container),)
            for id_ in holding.ids:
                # A device has several holders if containers reuse an init container's devices.
                before = holders.get(id_)
                holders[id_] = holder if before is None else (*before, *holder)
        return {resource for resource, _, _ in rows}

    def _remove(self, pod: PodUid) -> set[ResourceName]:
        rows = self._rows.pop(pod, ())
        for resource, _, holding in rows:
            holders = self._by_resource[resource]
            for id_ in holding.ids:
                left = tuple([each for each in holders.pop(id_, ()) if each.pod != pod])
                if left:
                    holders[id_] = left
        return {resource for resource, _, _ in rows}


# -- where devices are -----------------------------------------------------------------


class Layouts:
    """The latest layout of each resource: its device IDs and their NUMA nodes.

    An unchanged layout remains the same object.
    """

    def __init__(self) -> None:
        self._latest: dict[ResourceName, tuple[DeviceIndex, Mapping[str, Nodes], Layout]] = {}

    def of(
        self, resource: ResourceName, device_index: DeviceIndex, others: Mapping[str, Nodes]
    ) -> Layout:
        """Return the layout of a resource: first the devices that the plugin lists, then those in
        ``others``.

        ``others`` has the allocated devices that the plugin does not list. It maps their IDs to
        their NUMA nodes.
        """
        before = self._latest.get(resource)
        if before is not None and before[0] is device_index and before[1] == others:
            return before[2]
        layout = _layout(device_index, others)
        # A re-registered plugin has a new index object, usually with the same devices.
        if before is not None and (before[2].ids, before[2].numa) == (layout.ids, layout.numa):
            layout = before[2]
        self._latest[resource] = device_index, others, layout
        return layout

    def keep_only(self, resources: Iterable[ResourceName]) -> None:
        """Remove the layouts of all resources that are not in ``resources``."""
        self._latest = {name: self._latest[name] for name in resources if name in self._latest}


def _layout(device_index: DeviceIndex, others: Mapping[str, Nodes]) -> Layout:
    ids = tuple(sorted(others))
    numa = (*device_index.numa, *(others[id_] for id_ in ids))
    # Unlisted devices come last, so that they do not change the numbers of listed ones.
    return Layout((*device_index.ids, *ids), numa, by_node(numa))


def by_node(numa: Iterable[Nodes]) -> dict[int | None, tuple[int, ...]]:
    """Return a mapping from each NUMA node to the numbers of its devices (positions in ``numa``).

    A device on several nodes appears only under the lowest of them. Devices without a valid NUMA
    node have the key None.
    """
    members: dict[int | None, list[int]] = {}
    for number, nodes in enumerate(numa):
        members.setdefault(_lowest(nodes), []).append(number)
    return {node: tuple(members[node]) for node in sorted(members, key=_none_last)}


def _lowest(nodes: Nodes) -> int | None:
    if not nodes:
        return None
    # Plugins can send any number, but no machine has nodes outside this range.
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
    """Return a resource's devices with their states. ``devices`` is None if the kubelet has removed
    the resource."""
    devices = devices or EMPTY
    held = holders.of(name)
    index = devices.device_index.index
    # Devices that are allocated but no longer listed. Pods still have them, so they are shown.
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
    """Add the pods of reserved devices to ``held``. Return the IDs of these devices, without those
    that a failed admission left reserved (quirk Q4)."""
    allocating = set[DeviceId]()
    for pod, resource, ids in reserved:
        if resource == name:
            for id_ in ids:
                if id_ not in held:
                    held[id_] = (Holder(pod),)
                    # With quirk Q4, a failed admission leaves a device reserved without a pod.
                    if pod != LEAKED:
                        allocating.add(id_)
    return allocating


def _states(
    devices: DeviceList,
    held: Iterable[str],
    allocating: Iterable[DeviceId],
    others: int,
) -> tuple[DeviceState, ...]:
    size = devices.capacity
    if devices.reported is None:  # the plugin has sent no list since it disconnected
        return (DeviceState.GONE,) * (size + others)
    states = [DeviceState.FREE] * size
    index = devices.device_index
    # Later states have priority: each call replaces earlier states.
    _put(states, index.bits(map(DeviceId, held)), DeviceState.ALLOCATED)
    _put(states, index.bits(allocating), DeviceState.ALLOCATING)
    _put(states, ((1 << size) - 1) & ~devices.healthy, DeviceState.UNHEALTHY)
    return (*states, *(DeviceState.GONE,) * others)


def _put(states: list[DeviceState], bits: int, state: DeviceState) -> None:
    for number in bitset.numbers(bits):
        states[number] = state
