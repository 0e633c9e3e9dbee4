"""The parts of a node's view. All are immutable.

Devices are stored in columns: each property is a tuple, and the number of a device is its index.
Creating 10,000 device objects for each view would be slow. ``ResourceView.device`` creates one
device object on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from devicemanager.core.dra.report import DraStatus
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
    """State of a device in a view. A device that is UNHEALTHY or GONE can still be allocated."""

    FREE = "free"
    ALLOCATED = "held"
    ALLOCATING = "allocating"
    """Reserved for a pod whose admission is in progress."""
    UNHEALTHY = "unhealthy"
    GONE = "gone"
    """The plugin has disconnected or no longer lists the device."""

    @property
    def label(self) -> str:
        """The word that users see. It equals the value of the member, except for ALLOCATED, whose
        value is ``held`` in public JSON."""
        return "allocated" if self is DeviceState.ALLOCATED else self.value


class Stream(StrEnum):
    """State of a plugin's ListAndWatch stream."""

    SERVING = "serving"
    STANDBY = "standby"
    """The stream is open, but a newer plugin serves the resource."""
    ENDED = "ended"
    """The stream has ended; the resource remains until the grace period expires."""
    AWAITED = "awaited"
    """The resource was restored from the checkpoint, and no plugin has registered it since."""


@attrs.frozen
class Holder:
    """The container to which a device is allocated."""

    pod: str
    """The pod's UID, or ``namespace/name`` for a pod from PodResources. Empty if a failed admission
    left the device reserved (a kubelet bug, which quirk Q4 enables)."""
    container: str = ""
    """Name of the container; empty while the device is being allocated."""


@attrs.frozen(eq=False)
class Layout:
    """Device IDs of a resource, and the NUMA nodes of these devices. If nothing has changed, a new
    view reuses the object of the previous view.

    The devices that the plugin lists come first, sorted by ID. Allocated devices that it no longer
    lists follow.
    """

    ids: tuple[str, ...]
    numa: tuple[tuple[int, ...] | None, ...]
    """NUMA nodes of each device, in the order of ``ids``; None for a device without topology."""
    by_node: Mapping[int | None, tuple[int, ...]]
    """Mapping from each NUMA node to the numbers of its devices. A device on several nodes appears
    only under the lowest of them. Devices without a valid NUMA node have the key None."""


@attrs.frozen
class DeviceView:
    """View of one device."""

    id: str
    state: DeviceState
    health: str
    """Health as advertised by the plugin; empty if the device is not listed, and in views from
    PodResources."""
    numa: tuple[int, ...] | None
    holders: tuple[Holder, ...] = ()
    """Containers to which the device is allocated. Several containers of one pod can reuse the
    device."""


@attrs.frozen
class ResourceView:
    """View of one resource. The number of a device is its index in ``layout.ids``, ``states`` and
    ``health``."""

    name: str
    connected: bool
    """True if a plugin serves the resource. In views from PodResources it is always True."""
    capacity: int
    allocatable: int
    layout: Layout
    states: tuple[DeviceState, ...]
    health: tuple[str, ...] = attrs.field(repr=False)
    """Health of each device that the plugin lists. Devices that it no longer lists have no item,
    so this tuple can be shorter than ``states``. Empty in views from PodResources."""
    holders: Mapping[str, tuple[Holder, ...]] = attrs.field(repr=False)
    """Containers of each device that is allocated or being allocated, by device ID."""

    def device(self, number: int) -> DeviceView:
        """Return the view of the device at the index ``number``."""
        id_ = self.layout.ids[number]
        return DeviceView(
            id_,
            self.states[number],
            self.health[number] if number < len(self.health) else "",
            self.layout.numa[number],
            self.holders.get(id_, ()),
        )

    def count(self, state: DeviceState) -> int:
        """Return the number of devices of the resource in the given state."""
        return self.states.count(state)


@attrs.frozen
class LastCall:
    """A finished call between the kubelet and a plugin, or a ListAndWatch response."""

    number: int
    time: float
    """Start of the call, in seconds since the epoch."""
    rpc: str
    code: str
    message: str
    duration: float
    """Duration in seconds."""
    stream_message: int | None = None


@attrs.frozen
class Pending:
    """A call in progress between the kubelet and a plugin."""

    time: float
    rpc: str


@attrs.frozen
class PluginView:
    """View of one plugin registration for a resource."""

    resource: str
    endpoint: str
    """File name of the plugin's socket, or the path of a socket that the plugin watcher found."""
    stream: Stream
    lists: int
    """Number of ListAndWatch responses on the open stream, including those without changes."""
    pre_start_required: bool
    get_preferred_allocation_available: bool
    calls: tuple[LastCall, ...] = ()
    """Latest calls, oldest first."""
    in_progress: tuple[Pending, ...] = ()


@attrs.frozen
class NodeView:
    """View of a whole node at one moment. An unchanged part is the same object as in the previous
    view."""

    revision: int
    """Number that increases with each change of the node."""
    source: str
    """Description of the kubelet that this view shows."""
    name: str = ""
    kubelet_version: str = ""
    serving: bool = True
    policy: str = ""
    """Topology Manager policy; empty if unknown."""
    scope: str = ""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes of the machine and of the devices."""
    resources: tuple[ResourceView, ...] = ()
    """Resources, sorted by name."""
    plugins: tuple[PluginView, ...] | None = None
    """Plugins, sorted by resource; the serving plugin of a resource is first. None if the source
    does not report plugins."""
    pods: tuple[PodInfo, ...] = ()
    """Pods, in the order of their arrival at the kubelet. In views from PodResources, in the order
    of the response."""
    dra: DraStatus = attrs.field(factory=DraStatus)
    """DRA drivers, ResourceClaims and ResourceSlices; empty if the source reports none."""
    events: tuple[Event, ...] | None = None
    """Latest events, oldest first. None if the source does not report events."""
    notes: tuple[str, ...] = ()
    """Notes on information that the source does not report, one line per note."""
