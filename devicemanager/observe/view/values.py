"""Immutable values that a node's view consists of.

Devices are stored in columns: each property is a tuple, and the number of a device is its index.
Creating 10,000 device objects would take longer than the rest of a refresh. ``ResourceView.device``
creates one device object on demand.
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
    """State of a device in a view. A device that is unhealthy or gone can still be allocated."""

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
    """Devices of a resource and their NUMA nodes. The object is reused until a device or its NUMA
    nodes change.

    Listed devices come first, sorted by ID. Devices that are allocated but not listed follow.
    """

    ids: tuple[str, ...]
    numa: tuple[tuple[int, ...] | None, ...]
    """NUMA nodes of each device, as advertised by the plugin; None for a device without
    topology."""
    by_node: Mapping[int | None, tuple[int, ...]]
    """Device numbers by NUMA node. A device on several nodes is listed only under the lowest of
    them. The key None has the devices without a valid NUMA node."""


@attrs.frozen
class DeviceView:
    """View of one device."""

    id: str
    state: DeviceState
    health: str
    """Health as advertised by the plugin; empty for a device that is not listed."""
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
    """Health of each listed device. Shorter than ``states`` if devices are allocated but not
    listed."""
    holders: Mapping[str, tuple[Holder, ...]] = attrs.field(repr=False)
    """Mapping from the IDs of devices that are allocated, or being allocated, to their
    containers."""

    def device(self, number: int) -> DeviceView:
        """Return the view of one device by its number."""
        id_ = self.layout.ids[number]
        return DeviceView(
            id_,
            self.states[number],
            self.health[number] if number < len(self.health) else "",
            self.layout.numa[number],
            self.holders.get(id_, ()),
        )

    def count(self, state: DeviceState) -> int:
        """Return the number of devices of the resource that are in a state."""
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
    """View of a whole node at one moment. Parts that have not changed since the previous view are
    reused objects."""

    revision: int
    """Number that increases with each change of the node."""
    source: str
    """Description of the kubelet that was read."""
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
    """Pods, in order of arrival."""
    dra: DraStatus = attrs.field(factory=DraStatus)
    """DRA drivers, ResourceClaims and ResourceSlices; empty if the source reports none."""
    events: tuple[Event, ...] | None = None
    """Latest events, oldest first. None if the source does not report events."""
    notes: tuple[str, ...] = ()
    """Notes on information that the source does not report, one line per note."""
