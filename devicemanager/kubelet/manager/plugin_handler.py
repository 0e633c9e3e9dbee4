"""What plugins tell the manager: that they are there, what they have, that they left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from devicemanager.core import messages
from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.endpoints import Disconnection, PluginOptions
from devicemanager.core.errors import EndpointError
from devicemanager.core.ids import DeviceId, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import (
    EMPTY,
    Changes,
    Columns,
    DeviceList,
    changes,
    device_list_from,
    list_warnings,
)
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.manager.endpoint import PluginClient
from devicemanager.kubelet.manager.healthupdates import HealthUpdates
from devicemanager.kubelet.manager.state import State

_LEAVE_OPEN = frozenset({"Q1", "Q3", "Q24"})
"""Quirks with which the connection of a replaced plugin stays open."""


@attrs.frozen(eq=False, repr=False)
class _Change:
    """One list after another, and what can be said of that without the state's lock."""

    before: DeviceList
    after: DeviceList
    changes: Changes
    touched: frozenset[DeviceId]
    healthy: tuple[DeviceId, ...]
    """What the checkpoint says of the new list."""

    @classmethod
    def of(cls, before: DeviceList, after: DeviceList) -> _Change:
        found = changes(before, after)
        touched = frozenset((*found.changed, *found.removed, *found.added))
        healthy = after.device_index.select(after.healthy)
        return cls(before, after, found, touched, healthy)


@attrs.frozen(eq=False, repr=False)
class _Difference:
    """What a new list means: the changes, and which pods hold devices they concern."""

    changes: Changes
    held: Mapping[PodUid, set[DeviceId]]
    after: DeviceList
    is_news: bool
    """Whether the checkpoint says something else now."""


class ClientHandler:
    """Takes registrations, lists and departures into the state.

    ``health_updates`` is the kubelet's queue of pods whose devices changed health.
    ``write`` brings the checkpoint up to date; it is called after every changed list.
    ``stopped`` is called after a resource has lost its last plugin. ``make_room`` is told,
    with the state's lock held, on which NUMA nodes devices are, and returns those that the
    machine lacks.
    """

    def __init__(
        self,
        state: State,
        clock: Clock,
        events: EventStream,
        health_updates: HealthUpdates,
        write: Callable[[], None],
        stopped: Callable[[], None] = lambda: None,
        make_room: Callable[[Iterable[int]], tuple[int, ...]] = lambda _: (),
        quirks: frozenset[str] = frozenset(),
    ) -> None:
        self._state = state
        self._clock = clock
        self._events = events
        self._health_updates = health_updates
        self._write = write
        self._stopped = stopped
        self._make_room = make_room
        self._quirks = quirks
        self.title_of: Callable[[PodUid], str] = str
        """How events name a pod; set before the first plugin comes, if at all."""
        # Guarded by the state's lock: nothing is taken in any more.
        self._closed = False
        self._kept_open: list[PluginClient] = []  # Q3

    def connect(
        self,
        resource: ResourceName,
        name: str,
        options: PluginOptions,
        client: PluginClient,
        socket: str = "",
    ) -> EndpointId:
        """A plugin has registered; what it replaces is closed (Q2, Q3).

        ``socket`` is the path of its socket, for texts. Raises EndpointError when the kubelet
        is stopping, or by quirk Q2.
        """
        state = self._state
        with state.lock:
            if self._closed:
                raise EndpointError("the kubelet is stopping")
            if "Q2" in self._quirks and self._connected(resource, name):
                raise EndpointError(messages.ALREADY_CONNECTED.format(socket=socket or name))
            endpoint, replaced = state.endpoints.connect(resource, name, options)
            state.clients[endpoint.id] = client
            closed = [(old, state.clients.pop(old.id)) for old in replaced]
            state.changed()
        for old, its_client in closed:
            leaks = not self._quirks.isdisjoint(_LEAVE_OPEN)
            if leaks:
                self.keep_open(its_client)
            else:
                its_client.close()
            what = (
                f"{name} registered again, its older connection"
                if old.name == name
                else f"{name} replaces {old.name}, whose connection"
            )
            self._events.publish(
                EventKind.REPLACED,
                f"{resource}: {what} {'stays open' if leaks else 'is closed'}",
                resource=resource,
            )
        self._events.publish(
            EventKind.REGISTERED, f"{resource}: plugin {name} registered", resource=resource
        )
        return endpoint.id

    def update(self, endpoint: EndpointId, columns: Columns) -> None:
        """A registration sent its whole list. Ignored if it is no longer connected."""
        resource = self._resource_of(endpoint)
        if resource is None:
            return
        state = self._state
        while True:
            # A list may have 4 MiB: nobody else waits while its devices are numbered.
            before = state.endpoints.devices(resource) or EMPTY
            devices = device_list_from(columns, before)
            change = _Change.of(before, devices)
            with state.lock:
                if (state.endpoints.devices(resource) or EMPTY) is not before:
                    continue  # another plugin of the resource was faster
                if self._closed or not state.endpoints.update(endpoint, devices):
                    return
                difference = self._note(resource, change)
                lacking = self._make_room(devices.device_index.per_node)
                break
        warnings = list_warnings(columns, devices)
        if lacking:
            warnings += (messages.NO_SUCH_NUMA_NODE.format(node=lacking[0]),)
        for warning in warnings:
            self._events.publish(
                EventKind.LIST_SUSPECT, f"{resource}: {warning}", resource=resource
            )
        self._events.publish(
            EventKind.DEVICES_UPDATED,
            f"{resource}: {devices.capacity} devices, {devices.allocatable} healthy"
            + _describe(difference.changes),
            resource=resource,
            capacity=devices.capacity,
            allocatable=devices.allocatable,
        )
        self._follow_up(resource, difference)

    def disconnect(self, endpoint: EndpointId, cause: str) -> None:
        """A registration's list stream has ended; ``cause`` is one line for people."""
        now = self._clock.monotonic()
        state = self._state
        with state.lock:
            if self._closed:
                return
            departure = state.endpoints.disconnect(endpoint, now)
            if departure is None:
                departure = self._disconnect_successor(endpoint, now)
            ended = endpoint if departure is None else departure.endpoint.id
            client = state.clients.pop(ended, None)
            if departure is not None:
                resource = departure.endpoint.resource
                difference = self._note(resource, _Change.of(departure.before, departure.after))
        if client is not None:
            client.close()
        if departure is None:
            return
        self._events.publish(
            EventKind.STREAM_ENDED,
            f"{resource}: list stream of {departure.endpoint.name} ended: {cause}",
            resource=resource,
        )
        if departure.promoted is not None:
            self._events.publish(
                EventKind.PROMOTED,
                f"{resource}: {departure.promoted.name} serves now",
                resource=resource,
            )
        self._follow_up(resource, difference)
        if departure.promoted is None:
            self._stopped()

    def _resource_of(self, endpoint: EndpointId) -> ResourceName | None:
        with self._state.lock:
            resource = self._state.endpoints.resource_of(endpoint)
        return None if self._closed else resource

    def is_connected(self, resource: ResourceName, name: str) -> bool:
        """Whether a plugin of this name is connected for the resource."""
        with self._state.lock:
            return self._connected(resource, name)

    def _connected(self, resource: ResourceName, name: str) -> bool:
        connected = self._state.endpoints.connected()
        return any(each.resource == resource and each.name == name for each in connected)

    def _disconnect_successor(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """The end of a replaced registration is no news, but with Q1 it hits the one that
        is there now."""
        endpoints = self._state.endpoints
        resource = endpoints.pop_replaced(endpoint)
        if resource is None or "Q1" not in self._quirks:
            return None
        current = endpoints.serving(resource)
        return None if current is None else endpoints.disconnect(current.id, now)

    @property
    def is_closed(self) -> bool:
        """Whether the kubelet stops or has stopped."""
        return self._closed

    def ignore(self) -> None:
        """What plugins say from now on is ignored; their connections stay."""
        with self._state.lock:
            self._closed = True

    def close_connection(self, endpoint: EndpointId) -> None:
        """Close the connection of one registration; its end is told by ``disconnect``."""
        client = self._state.clients.get(endpoint)
        if client is not None:
            client.close()

    def keep_open(self, client: PluginClient) -> None:
        """Keep the connection of a registration that is none any more until ``close`` (Q3)."""
        with self._state.lock:
            self._kept_open.append(client)

    def close(self) -> None:
        """Ignore what plugins say, close every connection and wait for its end."""
        self.ignore()
        with self._state.lock:
            clients = [*self._state.clients.values(), *self._kept_open]
            self._state.clients.clear()
            self._kept_open.clear()
        for client in clients:
            client.close()
        for client in clients:
            client.join()

    def _note(self, resource: ResourceName, change: _Change) -> _Difference:
        """With the lock held: take a changed list into the checkpoint and tell whose
        devices it concerns."""
        # A resource without devices is in the checkpoint, too, once it was listed.
        is_news = bool(change.changes) or not self._state.is_noted(resource)
        if is_news:
            self._state.note_list(resource, change.healthy)
        # The kubelet writes after every list, also when it equals the one before.
        is_news |= self._state.is_stale
        touched = _listed_otherwise(change) if "Q9" in self._quirks else change.touched
        held = self._holders(resource, touched)
        return _Difference(change.changes, held, change.after, is_news)

    def _holders(
        self, resource: ResourceName, touched: frozenset[DeviceId]
    ) -> dict[PodUid, set[DeviceId]]:
        ledger = self._state.ledger
        if "Q8" not in self._quirks:
            return ledger.pods_using(resource, touched)
        held: dict[PodUid, set[DeviceId]] = {}
        for name, _ in ledger.resources():
            for pod, ids in ledger.pods_using(name, touched).items():
                held.setdefault(pod, set()).update(ids)
        return held

    def _follow_up(self, resource: ResourceName, difference: _Difference) -> None:
        for pod, ids in difference.held.items():
            self._report(resource, pod, sorted(ids), difference.after)
        if difference.is_news:
            self._write()

    def _report(
        self, resource: ResourceName, pod: PodUid, ids: Sequence[DeviceId], after: DeviceList
    ) -> None:
        """Queue a pod whose device changed health; dropped when the queue is full."""
        if not self._health_updates.report(pod):
            self._events.publish(
                EventKind.HEALTH_DROPPED,
                f"{resource} {', '.join(ids)}: report of changed health dropped, "
                f"{self._health_updates.maxsize} are waiting",
                resource=resource,
                pod=pod,
            )
            return
        self._events.publish(
            EventKind.DEVICE_HEALTH,
            f"{resource} {_states(ids, after)}, held by pod {self.title_of(pod)}",
            resource=resource,
            pod=pod,
        )


def _listed_otherwise(change: _Change) -> frozenset[DeviceId]:
    """Q9: the devices that are new, or of which the plugin wrote another health than the last
    time. Those that vanished, or whose plugin left, have not changed
    (``genericDeviceUpdateCallback``, v1.32)."""
    before = dict(zip(change.before.device_index.ids, change.before.health, strict=True))
    after = zip(change.after.device_index.ids, change.after.health, strict=True)
    return frozenset(id_ for id_, health in after if before.get(id_) != health)


def _states(ids: Iterable[DeviceId], devices: DeviceList) -> str:
    """What has become of devices, those of one state together."""
    together: dict[str, list[str]] = {}
    for id_ in ids:
        together.setdefault(_state(id_, devices), []).append(id_)
    return "; ".join(f"{', '.join(together[state])}: {state}" for state in sorted(together))


def _state(id_: DeviceId, devices: DeviceList) -> str:
    number = devices.device_index.index.get(id_)
    if number is None:
        return "gone"
    if devices.is_healthy(number):
        return "now Healthy"
    # What the plugin said last stays when it leaves.
    left = devices.health[number] == HEALTHY
    return "now Unhealthy, its plugin has left" if left else "now Unhealthy"


def _describe(difference: Changes) -> str:
    parts = [
        f"{len(ids)} {word}"
        for word, ids in (
            ("added", difference.added),
            ("removed", difference.removed),
            ("changed", difference.changed),
        )
        if ids
    ]
    return f" ({', '.join(parts)})" if parts else ""
