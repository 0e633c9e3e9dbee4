"""Device lists as plugins advertise them.

A device list numbers its devices in ID order, so the lowest numbers are the first IDs. Sets of
devices are integers (``bitset``). A list in which only health has changed shares the numbering
of the previous list. This makes one health change among 10,000 devices cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import attrs

from devicemanager.core import bitset
from devicemanager.core.api.deviceplugin import HEALTHY, MAX_NUMA_NODES, UNHEALTHY
from devicemanager.core.devices import Device, Nodes
from devicemanager.core.ids import DeviceId
from devicemanager.core.printable import counted


@attrs.frozen(eq=False, repr=False)
class DeviceIndex:
    """Numbering of the devices in a device list, with the devices of each NUMA node.

    Compared by identity: successive lists with the same IDs and topology share one object.
    """

    ids: tuple[DeviceId, ...]
    index: Mapping[DeviceId, int]
    numa: tuple[Nodes, ...]
    per_node: Mapping[int, int]
    """The set of devices on each NUMA node, by node ID (below ``MAX_NUMA_NODES``). A device can be
    on several nodes."""
    with_topology: int
    """The set of devices that name at least one NUMA node."""
    without_nodes: int
    """The set of devices with a topology that names no NUMA node (see quirk Q13 in
    ``versions.quirks``)."""
    impossible_node: int | None = None
    """The smallest invalid NUMA node ID that a device names; None if all IDs are valid.

    An invalid ID is not a key of ``per_node``.
    """

    def bits(self, ids: Iterable[DeviceId]) -> int:
        """Return the set of devices with the given IDs; unknown IDs are ignored."""
        index = self.index
        return bitset.of([index[id_] for id_ in ids if id_ in index])

    def select(self, bits: int) -> tuple[DeviceId, ...]:
        """Return the sorted IDs of the devices in the set ``bits``."""
        return bitset.select(self.ids, bits)


def _number(devices: Mapping[DeviceId, Nodes]) -> DeviceIndex:
    ids = tuple(sorted(devices))
    numa = tuple([devices[id_] for id_ in ids])
    return DeviceIndex(ids, dict(zip(ids, range(len(ids)), strict=True)), numa, *_nodes(numa))


def _nodes(numa: Sequence[Nodes]) -> tuple[Mapping[int, int], int, int, int | None]:
    """Return four fields of ``DeviceIndex`` for devices with these NUMA nodes.

    The fields are ``per_node``, ``with_topology``, ``without_nodes`` and ``impossible_node``.
    """
    # A plugin can send any message, so the cost must be linear in its size. Each node that a
    # device names costs one step, and at most ``MAX_NUMA_NODES`` sets are created.
    by_nodes: dict[Nodes, list[int]] = {}
    for number, nodes in enumerate(numa):
        by_nodes.setdefault(nodes, []).append(number)
    without_nodes = bitset.of(by_nodes.pop((), ()))
    by_nodes.pop(None, None)
    on_node: dict[int, list[int]] = {}
    for nodes, members in by_nodes.items():
        for node in nodes or ():
            on_node.setdefault(node, []).extend(members)
    impossible = sorted(node for node in on_node if not 0 <= node < MAX_NUMA_NODES)
    for node in impossible:
        del on_node[node]
    per_node = {node: bitset.of(on_node[node]) for node in sorted(on_node)}
    with_topology = bitset.of(chain.from_iterable(by_nodes.values()))
    return per_node, with_topology, without_nodes, impossible[0] if impossible else None


@attrs.frozen(eq=False, repr=False)
class Columns:
    """Devices of one ListAndWatch response, as one list per field, in the order of the message."""

    # Columns are used because one Python object per device would cost more than all other work
    # on a list.

    ids: list[DeviceId]
    health: list[str]
    numa: list[Nodes]

    @classmethod
    def of(cls, devices: Iterable[Device]) -> Columns:
        """Return columns with the given devices, in the given order."""
        rows = list(devices)
        return cls([d.id for d in rows], [d.health for d in rows], [d.numa for d in rows])


@attrs.frozen(eq=False, repr=False)
class DeviceList:
    """Devices of one resource as its plugin last advertised them; immutable."""

    device_index: DeviceIndex
    health: tuple[str, ...]
    """Health text that the plugin sent for each device. The index is the device's number."""
    healthy: int
    """The set of devices that may be allocated."""
    mixed: int = 0
    """The set of devices that the ListAndWatch response lists several times, as healthy and as
    unhealthy. They may be allocated, and the kubelet counts each of them twice."""
    reported: Columns | None = None
    """The ListAndWatch response from which the list was made. It is compared with the next
    response. None for the empty list ``EMPTY``, and after the plugin has disconnected."""

    @property
    def capacity(self) -> int:
        """Number of devices in the node's capacity. A device that the plugin lists both as healthy
        and as unhealthy counts twice."""
        # The kubelet adds the size of its set of healthy devices to that of its set of unhealthy
        # devices (``GetCapacity``, v1.36).
        return len(self.device_index.ids) + self.mixed.bit_count()

    @property
    def allocatable(self) -> int:
        """Number of devices that may be allocated."""
        return self.healthy.bit_count()

    @property
    def has_topology(self) -> bool:
        """True if any device names a NUMA node (``deviceHasTopologyAlignment``, v1.32)."""
        return self.device_index.with_topology != 0

    def is_healthy(self, number: int) -> bool:
        """True if the device with this number may be allocated."""
        if self.mixed and self.mixed >> number & 1:
            return True
        # A test of the device's bit in ``healthy`` would create an integer as long as the list,
        # which is quadratic for callers that test all devices.
        return self.healthy != 0 and self.health[number] == HEALTHY

    def disconnected(self) -> DeviceList:
        """Return the list as it is after the plugin has disconnected: no device may be
        allocated."""
        return attrs.evolve(self, healthy=0, mixed=0, reported=None)

    def device(self, id_: DeviceId) -> Device:
        """Return the device with this ID; raises KeyError for an unknown ID."""
        number = self.device_index.index[id_]
        return Device(id_, self.health[number], self.device_index.numa[number])

    def devices(self) -> tuple[Device, ...]:
        """Return all devices, sorted by ID."""
        return tuple(map(Device, self.device_index.ids, self.health, self.device_index.numa))


EMPTY = DeviceList(_number({}), (), 0)


def device_list_from(columns: Columns, previous: DeviceList = EMPTY) -> DeviceList:
    """Return the device list for a ListAndWatch response.

    If several entries of the response have the same ID, the last of them decides the health text
    and the NUMA nodes of the device. The device may be allocated if any of these entries is
    healthy (``genericDeviceUpdateCallback``, v1.36).

    The result shares the numbering of ``previous`` if both have the same IDs and topology.
    """
    before = previous.reported
    # Most messages differ from the previous one only in health. Comparing columns runs at C
    # speed; building rows is a loop over all devices.
    if before is not None and columns.ids == before.ids and columns.numa == before.numa:
        return _with_health(columns, previous.device_index)
    rows = dict(zip(columns.ids, columns.numa, strict=True))
    device_index = previous.device_index
    if not _same_devices(device_index, rows):
        device_index = _number(rows)
    return _with_health(columns, device_index)


def _same_devices(device_index: DeviceIndex, rows: Mapping[DeviceId, Nodes]) -> bool:
    return len(rows) == len(device_index.ids) and all(
        id_ in rows and rows[id_] == nodes
        for id_, nodes in zip(device_index.ids, device_index.numa, strict=True)
    )


def _with_health(columns: Columns, device_index: DeviceIndex) -> DeviceList:
    if len(columns.ids) == len(device_index.ids) and tuple(columns.ids) == device_index.ids:
        health = tuple(columns.health)  # most plugins send sorted IDs
    else:
        by_id = dict(zip(columns.ids, columns.health, strict=True))
        health = tuple([by_id[id_] for id_ in device_index.ids])
    healthy = bitset.from_flags([text == HEALTHY for text in health])
    mixed = 0
    if len(columns.ids) > len(device_index.ids):
        rows = list(zip(columns.ids, columns.health, strict=True))
        well = device_index.bits({id_ for id_, text in rows if text == HEALTHY})
        mixed = well & device_index.bits({id_ for id_, text in rows if text != HEALTHY})
    return DeviceList(device_index, health, healthy | mixed, mixed, columns)


@attrs.frozen(eq=False, repr=False)
class Changes:
    """Difference between two successive device lists of a resource; IDs are sorted."""

    added: tuple[DeviceId, ...] = ()
    removed: tuple[DeviceId, ...] = ()
    changed: tuple[DeviceId, ...] = ()
    """Devices in both lists with a different health or topology."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def changes(before: DeviceList, after: DeviceList) -> Changes:
    """Return the difference between two device lists.

    The health of a device differs if one list allows its allocation and the other does not.
    """
    old, new = before.device_index, after.device_index
    if old is new:
        return Changes(changed=old.select(before.healthy ^ after.healthy))
    common = old.index.keys() & new.index.keys()
    return Changes(
        added=tuple(sorted(new.index.keys() - common)),
        removed=tuple(sorted(old.index.keys() - common)),
        changed=tuple(sorted(id_ for id_ in common if _differs(before, after, id_))),
    )


def _differs(before: DeviceList, after: DeviceList, id_: DeviceId) -> bool:
    old, new = before.device_index.index[id_], after.device_index.index[id_]
    return before.device_index.numa[old] != after.device_index.numa[new] or before.is_healthy(
        old
    ) != after.is_healthy(new)


def list_warnings(columns: Columns, devices: DeviceList) -> tuple[str, ...]:
    """Return a warning for each problem of a device list. The kubelet accepts lists with such
    problems."""
    device_index = devices.device_index
    found = []
    if repeated := len(columns.ids) - len(device_index.ids):
        ids = counted(repeated, "duplicate device ID")
        found.append(f"{ids}: the kubelet can count a device twice")
    if "" in device_index.index:
        found.append("a device has an empty ID")
    unknown = sorted(set(columns.health) - {HEALTHY, UNHEALTHY})
    if unknown:
        found.append(f"invalid health {unknown[0][:80]!r}: counts as Unhealthy")
    node = device_index.impossible_node
    if node is not None:
        last = MAX_NUMA_NODES - 1
        found.append(f"invalid NUMA node {node}: the device fits no node; use 0 to {last}")
    return tuple(found)
