"""Values of a node's view. All are immutable.

Devices are stored in columns, by number: an object for each of 10,000 devices would cost more
than the rest of a refresh. ``ResourceView.device`` makes one on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from devicemanager.events.stream import Event
from devicemanager.kubelet.pods.pod_info import PodInfo

__all__ = [
    "DeviceState",
    "DeviceView",
    "Holder",
    "LastCall",
    "Layout",
    "NodeView",
    "Pending",
    "PluginView",
    "ResourceView",
    "Stream",
]


class DeviceState(StrEnum):
    """State of a device. An unhealthy or gone device can still be allocated."""

    FREE = "free"
    ALLOCATED = "held"
    ALLOCATING = "allocating"
    """Reserved for a pod whose admission is in progress."""
    UNHEALTHY = "unhealthy"
    GONE = "gone"
    """Its plugin has disconnected or no longer lists it."""

    @property
    def label(self) -> str:
        """Word for people. Public JSON has the value, because it says ``held`` everywhere."""
        return "allocated" if self is DeviceState.ALLOCATED else self.value


class Stream(StrEnum):
    """State of a plugin's ListAndWatch stream."""

    SERVING = "serving"
    STANDBY = "standby"
    """Open, but a newer plugin of the resource serves."""
    ENDED = "ended"
    """Ended; the resource stays until the grace period expires."""
    AWAITED = "awaited"
    """Restored from the checkpoint; no plugin has registered the resource since."""


@attrs.frozen
class Holder:
    """The container that a device is allocated to."""

    pod: str
    """The pod's UID, or ``namespace/name`` of a pod from PodResources. Empty if a failed
    admission left the device reserved (Q4)."""
    container: str = ""
    """Empty while the device is being allocated."""


@attrs.frozen(eq=False)
class Layout:
    """Devices of a resource and their NUMA nodes. The same object until one of them changes.

    Listed devices come first, sorted by ID, then those that are allocated but not listed.
    """

    ids: tuple[str, ...]
    numa: tuple[tuple[int, ...] | None, ...]
    """NUMA nodes of each device, as advertised; None for a device without topology."""
    by_node: Mapping[int | None, tuple[int, ...]]
    """Device numbers by NUMA node. A device on several nodes is under the lowest one. None has
    the devices without a node, or with one that no machine has."""


@attrs.frozen
class DeviceView:
    """One device."""

    id: str
    state: DeviceState
    health: str
    """Health as advertised; empty for a device that is not listed."""
    numa: tuple[int, ...] | None
    holders: tuple[Holder, ...] = ()
    """More than one if containers of a pod reuse the device one after another."""


@attrs.frozen
class ResourceView:
    """One resource and its devices, by number."""

    name: str
    connected: bool
    """True if a plugin serves it. Always True for PodResources, which does not report it."""
    capacity: int
    allocatable: int
    layout: Layout
    states: tuple[DeviceState, ...]
    health: tuple[str, ...] = attrs.field(repr=False)
    """Health of each listed device; shorter than ``states`` if others are allocated."""
    holders: Mapping[str, tuple[Holder, ...]] = attrs.field(repr=False)
    """Holders by device ID; unallocated devices are omitted."""

    def device(self, number: int) -> DeviceView:
        """Return one device by its number."""
        id_ = self.layout.ids[number]
        return DeviceView(
            id_,
            self.states[number],
            self.health[number] if number < len(self.health) else "",
            self.layout.numa[number],
            self.holders.get(id_, ()),
        )

    def count(self, state: DeviceState) -> int:
        """Return the number of devices in a state."""
        return self.states.count(state)


@attrs.frozen
class LastCall:
    """A finished call between the kubelet and a plugin, or a ListAndWatch response."""

    number: int
    time: float
    """Start, in seconds since the epoch."""
    rpc: str
    code: str
    message: str
    duration: float
    """Duration in seconds."""
    stream_message: int | None = None


@attrs.frozen
class Pending:
    """A call in progress."""

    time: float
    rpc: str


@attrs.frozen
class PluginView:
    """One registration of a resource."""

    resource: str
    endpoint: str
    """File name of the socket, or the path of a plugin found by the plugin watcher."""
    stream: Stream
    lists: int
    """Number of responses on the open stream, including those that changed nothing."""
    pre_start_required: bool
    get_preferred_allocation_available: bool
    calls: tuple[LastCall, ...] = ()
    """Latest calls, oldest first."""
    in_progress: tuple[Pending, ...] = ()


@attrs.frozen
class NodeView:
    """The whole node at one moment. Parts that have not changed since the view before are the
    same objects."""

    revision: int
    """Increases with each change; views of one builder with the same revision are one object."""
    source: str
    """Description of the kubelet that was read."""
    name: str = ""
    kubelet_version: str = ""
    serving: bool = True
    policy: str = ""
    """Topology Manager policy; empty if unknown."""
    scope: str = ""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes of the machine and of its devices."""
    resources: tuple[ResourceView, ...] = ()
    """Sorted by name."""
    plugins: tuple[PluginView, ...] | None = None
    """Sorted by resource, the serving one first. None if the source does not report plugins."""
    pods: tuple[PodInfo, ...] = ()
    """In order of arrival."""
    events: tuple[Event, ...] | None = None
    """Latest events, oldest first. None if the source does not report events."""
    notes: tuple[str, ...] = ()
    """What the source does not report, one line each."""
