"""Plugin registrations, and the current device list of each resource.

Q1, Q2, Q24 and Q30 are bugs of the kubelet that tests can enable (``versions.quirks``).
"""

# Theory of operation. Each registration is one ``EndpointInfo`` with a unique number. Plugins
# register, send lists and disconnect on different threads, so events arrive late and out of
# order. Every event has the number of its registration. There are four cases:
#
# * A plugin connects. It becomes the newest endpoint of its resource and serves it. It replaces
#   an older registration on the same socket path (Q2). If the kubelet version allows only one
#   plugin per resource, it replaces all older registrations of the resource.
# * A list arrives. It becomes the resource's current list only if its endpoint is the newest
#   connected one. A late list of a replaced endpoint is ignored, except with quirk Q24.
# * An endpoint disconnects and others of the resource are connected. The newest of them is
#   promoted, with the last list that it sent, so that the counts do not drop to 0
#   (k/k#135437).
# * The last endpoint disconnects. The devices remain, but none of them may be allocated. After
#   the grace period the resource is removed (``expire``).
#
# The number of a replaced registration is no longer known, so the late end of its stream changes
# nothing. In kubelets from v1.25 to v1.36 the late end unregisters the new plugin (Q1).
#
# Time is a parameter, in seconds of any clock that does not go back.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList

_MOST_REMOVED: Final = 10_000
"""Maximum size of the stored lists of removed resources. The size is the number of devices plus the
number of lists."""


@attrs.frozen
class PluginOptions:
    """The options of a plugin, as GetDevicePluginOptions returns them."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@attrs.frozen(eq=False)
class EndpointInfo:
    """One plugin registration with its last device list (the kubelet's ``endpointInfo``).

    Immutable: a new list creates a new object. ``Endpoints.is_connected`` says whether the plugin
    is connected.
    """

    id: EndpointId
    resource: ResourceName
    name: str
    """File name of the socket; the socket's path if the plugin watcher found the plugin."""
    options: PluginOptions = PluginOptions()
    devices: DeviceList | None = None
    """The last device list that the plugin sent; None before the first list."""


@attrs.define(eq=False, repr=False)
class _Resource:
    """Endpoints and current device list of one resource; mutable, private to ``Endpoints``."""

    endpoints: list[EndpointInfo] = attrs.field(factory=list)
    """The connected endpoints, newest last."""
    devices: DeviceList = EMPTY
    is_listed: bool = False
    """True if a plugin has sent a device list, or the checkpoint names the resource."""
    has_stopped: bool = False
    """True once the resource has lost its last connected plugin, even if a plugin connects
    later."""
    stopped_at: float | None = None
    last: EndpointInfo | None = None
    """The endpoint that serves the resource while no endpoint is connected. It is the endpoint that
    disconnected last, or a placeholder if only the checkpoint names the resource."""

    @property
    def is_counted(self) -> bool:
        """True if the node's capacity includes the resource, possibly with 0 devices."""
        # A plugin that disconnects before its first list leaves a resource without devices, also
        # for the next plugin (``markResourceUnhealthy``, v1.36).
        return self.is_listed or self.has_stopped


@attrs.frozen(eq=False, repr=False)
class Disconnection:
    """The effects of a plugin's disconnect on its resource.

    ``endpoint`` disconnected. ``promoted`` is the endpoint that serves the resource from now on;
    None if the serving endpoint has not changed or no endpoint is left. ``before`` is the
    resource's device list before the disconnect, and ``after`` is the list after it.
    """

    endpoint: EndpointInfo
    promoted: EndpointInfo | None = None
    before: DeviceList = EMPTY
    after: DeviceList = EMPTY


class Endpoints:
    """All plugin registrations, and the current device list of each resource."""

    def __init__(
        self, *, several: bool = True, lists_of_all: bool = False, list_stays: bool = False
    ) -> None:
        """Create an empty registry; the arguments select the rules of a kubelet version.

        Without ``several``, a resource has one plugin, and a new plugin replaces the old one
        (before v1.37). With ``lists_of_all``, the resource has the last list that any of its
        plugins sent, not the last list of the newest plugin (Q24). With ``list_stays``, the list of
        a plugin that disconnects stays current while another plugin serves the resource (Q30).
        """
        self._list_stays = list_stays
        self._several = several
        self._lists_of_all = lists_of_all
        self._resources: dict[ResourceName, _Resource] = {}
        self._by_id: dict[EndpointId, EndpointInfo] = {}
        self._last_id = 0
        self._replaced: dict[EndpointId, ResourceName] = {}
        self._removed: dict[ResourceName, DeviceList] = {}

    def __contains__(self, resource: object) -> bool:
        """True if the resource has a device list.

        A plugin that has registered but not sent a list does not count
        (``isDevicePluginResource`` reads ``healthyDevices``, v1.36). After the last plugin
        disconnects, the resource keeps its list until the grace period ends.
        """
        found = self._resources.get(resource)  # type: ignore[call-overload]
        return found is not None and found.is_listed

    def resources(self) -> Iterator[tuple[ResourceName, DeviceList]]:
        """Iterate over the resources in the node's capacity, sorted by name, as pairs of name and
        current device list."""
        for name in sorted(self._resources):
            if self._resources[name].is_counted:
                yield name, self._resources[name].devices

    def devices(self, resource: ResourceName) -> DeviceList | None:
        """Return the current device list of a resource; None if the node's capacity does not
        include the resource."""
        found = self._resources.get(resource)
        return found.devices if found is not None and found.is_counted else None

    def last_list(self, resource: ResourceName) -> DeviceList | None:
        """Return the last device list of a resource, even if the resource was removed (the
        kubelet's ``allDevices``). Returns None if no list of the resource is stored."""
        found = self._resources.get(resource)
        # A plugin that registers again leaves the last list as it is until it sends its own.
        if found is not None and found.is_listed:
            return found.devices
        return self._removed.get(resource)

    def forget_lists(self, is_in_use: Callable[[ResourceName], bool]) -> None:
        """Forget device lists of removed resources, oldest first, until their total size is at
        most ``_MOST_REMOVED``.

        The total size is the number of devices plus the number of lists. Lists of resources that
        are in use are not forgotten.
        """
        # The kubelet keeps all lists, so plugins with ever new resource names could fill its
        # memory.
        excess = sum(each.capacity + 1 for each in self._removed.values()) - _MOST_REMOVED
        for resource, devices in list(self._removed.items()):
            if excess > 0 and not is_in_use(resource):
                del self._removed[resource]
                excess -= devices.capacity + 1

    def serving(self, resource: ResourceName) -> EndpointInfo | None:
        """Return the endpoint on which Allocate is called for a resource; None if the resource is
        unknown.

        This is the newest connected endpoint. If no endpoint is connected, it is the endpoint that
        disconnected last.
        """
        found = self._resources.get(resource)
        if found is None:
            return None
        return found.endpoints[-1] if found.endpoints else found.last

    def connected(self) -> tuple[EndpointInfo, ...]:
        """Return the connected endpoints, oldest first."""
        return tuple(self._by_id.values())

    def is_connected(self, endpoint: EndpointId) -> bool:
        """True if the endpoint is connected. A replaced endpoint does not count as connected."""
        return endpoint in self._by_id

    def connect(
        self, resource: ResourceName, name: str, options: PluginOptions
    ) -> tuple[EndpointInfo, tuple[EndpointInfo, ...]]:
        """Add an endpoint for a plugin that has registered; ``name`` identifies its socket.

        Returns the new endpoint, and the endpoints that it replaces. Since v1.37, a new endpoint
        replaces only the resource's endpoints with the same ``name`` (see quirk Q2). Before v1.37,
        a new endpoint replaces all endpoints of the resource.
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
        """Return the resource of an endpoint; None if the endpoint disconnected or was replaced.

        With quirk Q24, the resource of a replaced endpoint is returned, too, because the kubelet
        still accepts the lists of this endpoint.
        """
        current = self._by_id.get(endpoint)
        if current is not None:
            return current.resource
        return self._replaced.get(endpoint) if self._lists_of_all else None

    def pop_replaced(self, endpoint: EndpointId) -> ResourceName | None:
        """Return the resource of a replaced endpoint, and delete the record of the endpoint.

        Returns None if the endpoint was not replaced, or if its record is already deleted.
        """
        return self._replaced.pop(endpoint, None)

    def update(self, endpoint: EndpointId, devices: DeviceList) -> bool:
        """Store a device list that an endpoint sent. Return True if the list is now the current
        list of the resource.

        The list of a disconnected endpoint is ignored. The list of a replaced endpoint is ignored,
        too, except with quirk Q24.
        """
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
        """Store a device list of a replaced endpoint if quirk Q24 is enabled; return True if it
        is now the current list of the resource."""
        resource = self.resource_of(endpoint)
        if resource is None or resource not in self._resources:
            return False
        entry = self._resources[resource]
        entry.devices, entry.is_listed = devices, True
        return True

    def disconnect(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """Remove an endpoint whose ListAndWatch stream ended at the time ``now``.

        Returns what changed for the resource, or None if the endpoint was not connected.
        """
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
            # The devices are kept: containers use them, and the node status includes them in
            # the capacity until the grace period is over.
            entry.devices = entry.devices.disconnected()
            entry.has_stopped, entry.stopped_at = True, now
            entry.last = stopped
            return None
        promoted = entry.endpoints[-1]
        if promoted.devices is not None and not self._list_stays:
            entry.devices, entry.is_listed = promoted.devices, True
        return promoted

    def restore(self, resource: ResourceName, now: float) -> None:
        """Add a resource that a checkpoint names, with 0 devices and a stopped endpoint.

        The grace period after which the resource is removed starts now (``readCheckpoint``, v1.32).
        """
        if resource not in self._resources:
            last = EndpointInfo(EndpointId(0), resource, resource)
            self._resources[resource] = _Resource(stopped_at=now, last=last, is_listed=True)

    def expire(self, now: float, grace: float) -> tuple[ResourceName, ...]:
        """Remove resources whose last endpoint stopped more than ``grace`` seconds ago
        (``GetCapacity``, v1.32). Returns their names, sorted."""
        expired = [name for name, at in self._stopped() if now - at > grace]
        for name in expired:
            removed = self._resources.pop(name)
            if removed.is_listed:
                self._removed[name] = removed.devices
        return tuple(sorted(expired))

    def oldest_stop(self) -> float | None:
        """Return the earliest time at which a resource lost its last plugin; None if every
        resource has a plugin."""
        return min((at for _, at in self._stopped()), default=None)

    def _stopped(self) -> Iterator[tuple[ResourceName, float]]:
        for name, entry in self._resources.items():
            if entry.stopped_at is not None:
                yield name, entry.stopped_at
