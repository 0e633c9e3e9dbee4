"""A node as one looks at it. All values are immutable.

Devices stand in columns, by number: a value for each of 10,000 devices would cost more than
everything else that a look does. ``ResourceView.device`` makes one when somebody asks for it.
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
    """What may be done with a device. One that is unhealthy or gone may be held all the same."""

    FREE = "free"
    HELD = "held"
    ALLOCATING = "allocating"
    """Chosen for a pod whose admission is under way."""
    UNHEALTHY = "unhealthy"
    GONE = "gone"
    """Its plugin has left, or does not list it any more."""


class Stream(StrEnum):
    """The list stream of a registration."""

    SERVING = "serving"
    STANDBY = "standby"
    """Open, but a newer plugin of the resource serves."""
    ENDED = "ended"
    """Until the grace period is over."""
    AWAITED = "awaited"
    """No plugin has registered the resource since the kubelet read it in its checkpoint."""


@attrs.frozen
class Holder:
    """Who has a device."""

    pod: str
    """The pod's UID; of a pod that PodResources told of, ``namespace/name``. Empty for
    nobody (Q4)."""
    container: str = ""
    """Empty as long as the device is being allocated."""


@attrs.frozen(eq=False)
class Layout:
    """Which devices a resource has, and where. The same object until that changes.

    Listed devices come first, sorted by id, then those that are held and not listed.
    """

    ids: tuple[str, ...]
    numa: tuple[tuple[int, ...] | None, ...]
    """The NUMA nodes of each device, as its plugin named them; None for one without topology."""
    by_node: Mapping[int | None, tuple[int, ...]]
    """NUMA node to the numbers of its devices. A device on several nodes stands with the
    lowest; with None stand those on none, or on one that no machine has."""


@attrs.frozen
class DeviceView:
    """One device."""

    id: str
    state: DeviceState
    health: str
    """What the plugin said; empty for a device that is not listed."""
    numa: tuple[int, ...] | None
    holders: tuple[Holder, ...] = ()
    """Several for a device that containers of a pod use after one another."""


@attrs.frozen
class ResourceView:
    """One resource and its devices, by number."""

    name: str
    connected: bool
    """Whether a plugin serves it. Always true of a real kubelet, which does not say."""
    capacity: int
    allocatable: int
    layout: Layout
    states: tuple[DeviceState, ...]
    health: tuple[str, ...] = attrs.field(repr=False)
    """What the plugin said of each listed device; shorter than ``states`` if others are held."""
    holders: Mapping[str, tuple[Holder, ...]] = attrs.field(repr=False)
    """Device id to who has it; without devices that nobody has."""

    def device(self, number: int) -> DeviceView:
        """One device by its number."""
        id_ = self.layout.ids[number]
        return DeviceView(
            id_,
            self.states[number],
            self.health[number] if number < len(self.health) else "",
            self.layout.numa[number],
            self.holders.get(id_, ()),
        )

    def count(self, state: DeviceState) -> int:
        """How many devices are in a state."""
        return self.states.count(state)


@attrs.frozen
class LastCall:
    """A call between the kubelet and a plugin that has ended, or a list that came."""

    number: int
    time: float
    """When it began, in seconds since the epoch."""
    rpc: str
    code: str
    message: str
    duration: float
    """Seconds."""
    stream_message: int | None = None


@attrs.frozen
class Pending:
    """A call that is not answered yet."""

    time: float
    rpc: str


@attrs.frozen
class PluginView:
    """One registration of a resource."""

    resource: str
    endpoint: str
    """The socket's file name, or the path of a plugin found by the watcher."""
    stream: Stream
    lists: int
    """Messages of the list stream that is open, also those that changed nothing."""
    pre_start_required: bool
    get_preferred_allocation_available: bool
    calls: tuple[LastCall, ...] = ()
    """The latest calls, the latest last."""
    in_progress: tuple[Pending, ...] = ()


@attrs.frozen
class NodeView:
    """The whole node at one moment. Parts that have not changed since the picture before are
    the same objects."""

    revision: int
    """Grows when something changed; pictures of one builder with one revision are one object."""
    source: str
    """What was looked at, for people."""
    name: str = ""
    kubelet_version: str = ""
    serving: bool = True
    policy: str = ""
    """The topology manager's policy; empty if nobody says."""
    scope: str = ""
    numa_nodes: tuple[int, ...] = ()
    """Those of the machine, and those that devices are on."""
    resources: tuple[ResourceView, ...] = ()
    """Sorted by name."""
    plugins: tuple[PluginView, ...] | None = None
    """Sorted by resource, the serving one first. None: this source does not tell."""
    pods: tuple[PodInfo, ...] = ()
    """In the order in which they came."""
    events: tuple[Event, ...] | None = None
    """The latest, oldest first. None: this source does not tell."""
    notes: tuple[str, ...] = ()
    """What this source cannot tell, a line each."""
