"""Plugin registrations and the device list that counts, per resource."""

# Theory of operation. Each registration is one ``EndpointInfo`` with a unique number. Plugins
# register, send lists and disconnect on different threads, so events arrive late and out of
# order. Every event names its registration's number, and four cases cover them:
#
# * A plugin connects. It becomes the newest endpoint of its resource and serves it. A
#   registration on the same socket path is replaced (Q2), and so is any other if the kubelet
#   version allows one plugin per resource only.
# * A list arrives. It counts only if its endpoint is the newest connected one. A late list of
#   a replaced endpoint is ignored, or counts with quirk Q24.
# * An endpoint disconnects and others of the resource are connected. The newest of them is
#   promoted, with the last list that it sent, so that the counts do not drop to 0
#   (k/k#135437).
# * The last endpoint disconnects. The devices remain, but none of them may be allocated. After
#   the grace period the resource is removed (``expire``).
#
# A registration that was replaced is no longer known by its number, so the late end of its
# stream changes nothing. In kubelets from v1.25 to v1.36 it unregisters the new plugin (Q1).
#
# Time is a parameter, in seconds of any clock that does not go back.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList

_MOST_REMOVED: Final = 10_000
"""Most devices of removed resources whose last lists are kept; a resource counts as one more."""


@attrs.frozen
class PluginOptions:
    """DevicePluginOptions, as returned by GetDevicePluginOptions."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@attrs.frozen(eq=False)
class EndpointInfo:
    """One registration (the kubelet's ``endpointInfo``). Immutable: a new list makes a new
    value. ``Endpoints.is_connected`` says whether it is connected."""

    id: EndpointId
    resource: ResourceName
    name: str
    """File name of the socket, or its path if the plugin watcher found it."""
    options: PluginOptions = PluginOptions()
    devices: DeviceList | None = None
    """The last list that this endpoint sent; None before the first."""


@attrs.define(eq=False, repr=False)
class _Resource:
    """State of one resource; mutable and private to ``Endpoints``."""

    endpoints: list[EndpointInfo] = attrs.field(factory=list)
    """The connected endpoints, newest last."""
    devices: DeviceList = EMPTY
    is_listed: bool = False
    """True if a plugin has sent a list, or the checkpoint names the resource."""
    stopped_at: float | None = None
    last: EndpointInfo | None = None
    """The endpoint that disconnected last; it is the stopped endpoint of the resource."""

    @property
    def is_counted(self) -> bool:
        """True if the node's capacity has the resource, possibly with 0 devices."""
        # A plugin that disconnects before its first list leaves a resource without devices.
        return self.is_listed or self.stopped_at is not None


@attrs.frozen(eq=False, repr=False)
class Disconnection:
    """What the end of one endpoint changed for its resource."""

    endpoint: EndpointInfo
    promoted: EndpointInfo | None = None
    before: DeviceList = EMPTY
    after: DeviceList = EMPTY


class Endpoints:
    """All registered endpoints, and the device list that counts for each resource."""

    def __init__(
        self, *, several: bool = True, lists_of_all: bool = False, list_stays: bool = False
    ) -> None:
        """Without ``several``, a resource has one plugin and the newest replaces the others
        (before v1.37). With ``lists_of_all``, the last list of any plugin counts (Q24). With
        ``list_stays``, it also counts after its plugin has disconnected, if another one serves
        (Q30)."""
        self._list_stays = list_stays
        self._several = several
        self._lists_of_all = lists_of_all
        self._resources: dict[ResourceName, _Resource] = {}
        self._by_id: dict[EndpointId, EndpointInfo] = {}
        self._last_id = 0
        self._replaced: dict[EndpointId, ResourceName] = {}
        self._removed: dict[ResourceName, DeviceList] = {}

    def __contains__(self, resource: object) -> bool:
        """True if admissions know the resource: it has a device list, and a connected endpoint
        or one in its grace period.

        A registered plugin that has not sent a list yet does not make its resource known
        (``isDevicePluginResource`` reads ``healthyDevices``, v1.36).
        """
        found = self._resources.get(resource)  # type: ignore[call-overload]
        return found is not None and found.is_listed

    def resources(self) -> Iterator[tuple[ResourceName, DeviceList]]:
        """Iterate over the resources with a device list, sorted by name."""
        for name in sorted(self._resources):
            if self._resources[name].is_counted:
                yield name, self._resources[name].devices

    def devices(self, resource: ResourceName) -> DeviceList | None:
        """Return the list that counts for a resource; None if there is none."""
        found = self._resources.get(resource)
        return found.devices if found is not None and found.is_counted else None

    def last_list(self, resource: ResourceName) -> DeviceList | None:
        """Return the list that counts, or that counted when the grace period ended; None if there
        was none (the kubelet's ``allDevices``)."""
        return self.devices(resource) or self._removed.get(resource)

    def forget_lists(self, is_in_use: Callable[[ResourceName], bool]) -> None:
        """Forget the oldest lists of removed resources while they have too many devices.

        Lists of resources that are in use stay.
        """
        # The kubelet keeps all of them. Plugins with ever new resource names could fill the
        # memory.
        excess = sum(each.capacity + 1 for each in self._removed.values()) - _MOST_REMOVED
        for resource, devices in list(self._removed.items()):
            if excess > 0 and not is_in_use(resource):
                del self._removed[resource]
                excess -= devices.capacity + 1

    def serving(self, resource: ResourceName) -> EndpointInfo | None:
        """Return the endpoint that allocates: the newest connected one, else the stopped one;
        None if the resource is unknown."""
        found = self._resources.get(resource)
        if found is None:
            return None
        return found.endpoints[-1] if found.endpoints else found.last

    def connected(self) -> tuple[EndpointInfo, ...]:
        """Return the connected endpoints, oldest first."""
        return tuple(self._by_id.values())

    def is_connected(self, endpoint: EndpointId) -> bool:
        """True if the endpoint is connected."""
        return endpoint in self._by_id

    def connect(
        self, resource: ResourceName, name: str, options: PluginOptions
    ) -> tuple[EndpointInfo, tuple[EndpointInfo, ...]]:
        """Add the endpoint of a plugin that has registered.

        Returns it and the endpoints that it replaces: older ones of the resource on the same
        socket (Q2) or, without ``several``, on any socket.
        """
        self._last_id += 1
        endpoint = EndpointInfo(EndpointId(self._last_id), resource, name, options)
        entry = self._resources.setdefault(resource, _Resource())
        replaced = [old for old in entry.endpoints if old.name == name or not self._several]
        for old in replaced:
            entry.endpoints.remove(old)
            del self._by_id[old.id]
            self._replaced[old.id] = resource
        entry.endpoints.append(endpoint)
        entry.stopped_at = None
        self._by_id[endpoint.id] = endpoint
        return endpoint, tuple(replaced)

    def resource_of(self, endpoint: EndpointId) -> ResourceName | None:
        """Return the resource of an endpoint whose lists count; None if they are ignored."""
        current = self._by_id.get(endpoint)
        if current is not None:
            return current.resource
        return self._replaced.get(endpoint) if self._lists_of_all else None

    def pop_replaced(self, endpoint: EndpointId) -> ResourceName | None:
        """Return and forget the resource of a replaced endpoint; None if it was not replaced
        or its end has been handled before."""
        return self._replaced.pop(endpoint, None)

    def update(self, endpoint: EndpointId, devices: DeviceList) -> bool:
        """Store a list that an endpoint sent. Returns whether it now counts for the resource;
        the list of an endpoint that is not connected is ignored."""
        old = self._by_id.get(endpoint)
        if old is None:
            return self._update_late(endpoint, devices)
        new = attrs.evolve(old, devices=devices)
        entry = self._resources[old.resource]
        entry.endpoints[entry.endpoints.index(old)] = new
        self._by_id[endpoint] = new
        if entry.endpoints[-1] is not new and not self._lists_of_all:
            return False
        entry.devices, entry.is_listed = devices, True
        self._removed.pop(old.resource, None)
        return True

    def _update_late(self, endpoint: EndpointId, devices: DeviceList) -> bool:
        """Handle a list of a replaced endpoint; it counts only with Q24."""
        resource = self.resource_of(endpoint)
        if resource is None or resource not in self._resources:
            return False
        entry = self._resources[resource]
        entry.devices, entry.is_listed = devices, True
        return True

    def disconnect(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """Remove an endpoint whose ListAndWatch stream has ended. Returns None if it was not
        connected."""
        old = self._by_id.pop(endpoint, None)
        if old is None:
            return None
        entry = self._resources[old.resource]
        was_serving = entry.endpoints[-1] is old
        entry.endpoints.remove(old)
        before = entry.devices
        promoted = self._promote(entry, old, now) if was_serving else None
        return Disconnection(old, promoted, before, entry.devices)

    def _promote(self, entry: _Resource, stopped: EndpointInfo, now: float) -> EndpointInfo | None:
        if not entry.endpoints:
            # The devices stay known: containers use them, and the kubelet's node status keeps
            # the capacity until the grace period is over.
            entry.devices = entry.devices.disconnected()
            entry.stopped_at = now
            entry.last = stopped
            return None
        promoted = entry.endpoints[-1]
        if promoted.devices is not None and not self._list_stays:
            entry.devices, entry.is_listed = promoted.devices, True
        return promoted

    def restore(self, resource: ResourceName, now: float) -> None:
        """Add a resource from a checkpoint: 0 devices, and a stopped endpoint whose grace
        period starts now (``readCheckpoint``, v1.32)."""
        if resource not in self._resources:
            last = EndpointInfo(EndpointId(0), resource, resource)
            self._resources[resource] = _Resource(stopped_at=now, last=last, is_listed=True)

    def expire(self, now: float, grace: float) -> tuple[ResourceName, ...]:
        """Remove resources whose last endpoint stopped more than ``grace`` seconds ago
        (``GetCapacity``, v1.32). Returns their names, sorted."""
        expired = [name for name, at in self._stopped() if now - at > grace]
        for name in expired:
            self._removed[name] = self._resources.pop(name).devices
        return tuple(sorted(expired))

    def oldest_stop(self) -> float | None:
        """Return the time of the earliest stop among stopped resources; None without any."""
        return min((at for _, at in self._stopped()), default=None)

    def _stopped(self) -> Iterator[tuple[ResourceName, float]]:
        for name, entry in self._resources.items():
            if entry.stopped_at is not None:
                yield name, entry.stopped_at
