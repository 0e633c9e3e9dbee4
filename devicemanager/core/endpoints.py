"""The life of plugin endpoints, per resource.

Each registration is one endpoint with a number of its own; late events of an old
connection name that number and so cannot touch a newer one (Q1). Several plugins may
serve a resource at a time: the newest connected one serves, and when it leaves a
surviving one is promoted with the last list it sent, so the counts do not dip
(k/k#135437). When the last one leaves, the devices stay but none may be allocated;
once that has lasted for more than the grace period, the resource is forgotten.

Time is a parameter, in seconds on any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from devicemanager.core.ids import EndpointId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList


@attrs.frozen
class PluginOptions:
    """DevicePluginOptions, from GetDevicePluginOptions alone."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@attrs.frozen(eq=False)
class EndpointInfo:
    """One registration. Immutable: a new list gives a new value. Whether it is still
    connected is ``Endpoints.is_connected``."""

    id: EndpointId
    resource: ResourceName
    name: str
    """The socket's file name, or the path of a plugin found by the watcher."""
    options: PluginOptions = PluginOptions()
    devices: DeviceList | None = None
    """The last list that this registration sent; None before the first."""


@attrs.define(eq=False, repr=False)
class _Resource:
    """Mutable, private to ``Endpoints``: one resource's registrations, newest last."""

    endpoints: list[EndpointInfo] = attrs.field(factory=list)
    devices: DeviceList = EMPTY
    stopped_at: float | None = None
    last: EndpointInfo | None = None
    """The endpoint that served last, for its name and options, once none is connected."""


@attrs.frozen(eq=False, repr=False)
class Disconnection:
    """What the end of one registration changed for its resource."""

    endpoint: EndpointInfo
    promoted: EndpointInfo | None = None
    before: DeviceList = EMPTY
    after: DeviceList = EMPTY


class Endpoints:
    """All registrations and the device list that counts for each resource."""

    def __init__(self, *, several: bool = True, lists_of_all: bool = False) -> None:
        """``several`` plugins serve a resource at a time (from v1.37 on); if not, the newest
        replaces the others. ``lists_of_all``: the last list of any counts (Q24)."""
        self._several = several
        self._lists_of_all = lists_of_all
        self._resources: dict[ResourceName, _Resource] = {}
        self._by_id: dict[EndpointId, EndpointInfo] = {}
        self._last_id = 0
        self._replaced: dict[EndpointId, ResourceName] = {}

    def __contains__(self, resource: object) -> bool:
        """Whether the resource is known: connected, or stopped within its grace time."""
        return resource in self._resources

    def resources(self) -> Iterator[tuple[ResourceName, DeviceList]]:
        """Every known resource and its list, sorted by name."""
        for name in sorted(self._resources):
            yield name, self._resources[name].devices

    def devices(self, resource: ResourceName) -> DeviceList | None:
        """The list that counts for a resource, None when the resource is unknown."""
        found = self._resources.get(resource)
        return None if found is None else found.devices

    def serving(self, resource: ResourceName) -> EndpointInfo | None:
        """The endpoint that is asked to allocate: the newest one, else the last one
        that was (stopped), else None."""
        found = self._resources.get(resource)
        if found is None:
            return None
        return found.endpoints[-1] if found.endpoints else found.last

    def connected(self) -> tuple[EndpointInfo, ...]:
        """Every connected registration, oldest first."""
        return tuple(self._by_id.values())

    def is_connected(self, endpoint: EndpointId) -> bool:
        return endpoint in self._by_id

    def connect(
        self, resource: ResourceName, name: str, options: PluginOptions
    ) -> tuple[EndpointInfo, tuple[EndpointInfo, ...]]:
        """A plugin has registered. Returns its endpoint and those it replaces, now gone:
        older registrations of the resource on the same socket (Q2) or, without ``several``,
        on any."""
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
        """The resource of a registration whose lists are looked at; None if they are not."""
        current = self._by_id.get(endpoint)
        if current is not None:
            return current.resource
        return self._replaced.get(endpoint) if self._lists_of_all else None

    def pop_replaced(self, endpoint: EndpointId) -> ResourceName | None:
        """The resource of a registration that was replaced and has not ended until now;
        it has with this call."""
        return self._replaced.pop(endpoint, None)

    def update(self, endpoint: EndpointId, devices: DeviceList) -> bool:
        """A registration sent a list. Returns whether it is the one that counts; a
        list of one that is no longer connected is ignored."""
        old = self._by_id.get(endpoint)
        if old is None:
            return self._update_late(endpoint, devices)
        new = attrs.evolve(old, devices=devices)
        entry = self._resources[old.resource]
        entry.endpoints[entry.endpoints.index(old)] = new
        self._by_id[endpoint] = new
        if entry.endpoints[-1] is not new and not self._lists_of_all:
            return False
        entry.devices = devices
        return True

    def _update_late(self, endpoint: EndpointId, devices: DeviceList) -> bool:
        """A replaced registration sent a list, which counts with Q24 only."""
        resource = self.resource_of(endpoint)
        if resource is None or resource not in self._resources:
            return False
        self._resources[resource].devices = devices
        return True

    def disconnect(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """A registration's list stream has ended. None if it was no longer connected."""
        old = self._by_id.pop(endpoint, None)
        if old is None:
            return None
        entry = self._resources[old.resource]
        was_serving = entry.endpoints[-1] is old
        entry.endpoints.remove(old)
        before = entry.devices
        promoted = self._promote(entry, old, now) if was_serving else None
        return Disconnection(old, promoted, before, entry.devices)

    @staticmethod
    def _promote(entry: _Resource, stopped: EndpointInfo, now: float) -> EndpointInfo | None:
        if not entry.endpoints:
            entry.devices = entry.devices.disconnected()
            entry.stopped_at = now
            entry.last = stopped
            return None
        promoted = entry.endpoints[-1]
        if promoted.devices is not None:
            entry.devices = promoted.devices
        return promoted

    def restore(self, resource: ResourceName, now: float) -> None:
        """A resource that a checkpoint names: 0 devices and a stopped endpoint whose
        grace time starts now (``readCheckpoint``, v1.32)."""
        if resource not in self._resources:
            last = EndpointInfo(EndpointId(0), resource, resource)
            self._resources[resource] = _Resource(stopped_at=now, last=last)

    def expire(self, now: float, grace: float) -> tuple[ResourceName, ...]:
        """Forget resources whose last endpoint stopped more than ``grace`` seconds ago
        (``GetCapacity``, v1.32). Returns their names, sorted."""
        expired = [name for name, at in self._stopped() if now - at > grace]
        for name in expired:
            del self._resources[name]
        return tuple(sorted(expired))

    def oldest_stop(self) -> float | None:
        """When the first of the stopped resources stopped; None if none has."""
        return min((at for _, at in self._stopped()), default=None)

    def _stopped(self) -> Iterator[tuple[ResourceName, float]]:
        for name, entry in self._resources.items():
            if entry.stopped_at is not None:
                yield name, entry.stopped_at
