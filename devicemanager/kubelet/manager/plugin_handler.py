"""Handle plugin registrations, device lists and disconnects.

Theory of operation. The threads of the plugins' connections call three methods: ``connect`` (a
plugin passed the checks of the registrar), ``update`` (it sent a list) and ``disconnect`` (its
ListAndWatch stream ended). They change the state under the lock. After that, without the lock,
they close replaced connections, publish events, queue health reports and write the checkpoint.

These calls can be late or in any order. The races are:

* A replaced plugin's stream ends after its successor connected. Every registration has a number,
  so the late ``disconnect`` names a registration that no longer exists, and nothing happens. With
  quirk Q1 it disconnects the successor, as in the kubelet.
* Two plugins of one resource send lists at the same time. A list can have 4 MiB, so its devices are
  numbered and compared without the lock. If another list was applied in the meantime, ``update``
  starts again.
* A list arrives when the kubelet is stopping. After ``ignore``, no list is applied any more.

A list is processed in four steps:

1. Number its devices (``device_list_from``). If the devices are the same as in the previous list of
   the resource, they keep their numbers.
2. Compare the new list with the previous list (``_Change``).
3. Apply the new list under the lock, and find the pods that use changed devices (``_apply``).
4. Report the changes and write the checkpoint (``_follow_up``).

The real kubelet writes its checkpoint after every list. The mock writes only if the contents have
changed.
"""

from __future__ import annotations

import queue
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
from devicemanager.core.printable import counted, listed
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.manager.state import Endpoint, State


class HealthUpdates(queue.SimpleQueue[PodUid]):
    """Queue of UIDs of pods whose devices changed health, the earliest change first.

    ``get_nowait`` raises ``queue.Empty`` if the queue is empty. The base class is SimpleQueue
    to save memory: every in-memory node has a queue, and a ``queue.Queue`` is ten times larger.
    """

    __slots__ = ("maxsize",)

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize

    def report(self, pod: PodUid) -> bool:
        """Add a pod to the queue. Return False if the queue already has ``maxsize`` pods.

        The limit is not exact: concurrent calls can exceed it by a few pods.
        """
        # Never wait for the reader: the kubelet's channel is bounded and drops updates, too
        # (``genericDeviceUpdateCallback``, v1.32).
        if self.qsize() >= self.maxsize:
            return False
        self.put(pod)
        return True


_LEAVE_OPEN = frozenset({"Q1", "Q3", "Q24"})
"""Quirks with which the connection of a replaced plugin stays open."""


@attrs.frozen(eq=False, repr=False)
class _Change:
    """The difference between two lists of a resource, computed without the state's lock."""

    before: DeviceList
    after: DeviceList
    changes: Changes
    touched: frozenset[DeviceId]
    healthy: tuple[DeviceId, ...]
    """IDs of the healthy devices of the new list, for the checkpoint."""

    @classmethod
    def of(cls, before: DeviceList, after: DeviceList) -> _Change:
        difference = changes(before, after)
        touched = frozenset((*difference.changed, *difference.removed, *difference.added))
        healthy = after.device_index.select(after.healthy)
        return cls(before, after, difference, touched, healthy)


@attrs.frozen(eq=False, repr=False)
class _Applied:
    """The effects of a device list that was applied."""

    changes: Changes
    held: Mapping[PodUid, set[DeviceId]]
    """Changed devices, by the UID of the pod that uses them."""
    after: DeviceList
    must_write: bool
    """True if the contents of the checkpoint changed."""


class ClientHandler:
    """Handler of registrations, device lists and disconnects of plugins; thread-safe.

    ``health_updates`` is the queue of pods whose devices changed health. ``write`` writes the
    checkpoint. ``stopped`` is called after a resource has lost its last plugin.

    ``make_room`` is called with the IDs of the NUMA nodes in a device list, with the lock held. If
    the node's topology can grow, ``make_room`` adds missing NUMA nodes to the topology. The
    function returns the IDs of the nodes that are still missing.
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
        """Returns a pod's name for events. Set this function before the first plugin registers."""
        # Guarded by the state's lock. If true, no list is applied any more.
        self._closed = False
        self._left_open: list[Endpoint] = []  # Q3
        self._unnoticed: set[EndpointId] = set()  # Q2

    def connect(
        self,
        resource: ResourceName,
        name: str,
        options: PluginOptions,
        connection: Endpoint,
        socket: str = "",
    ) -> EndpointId:
        """Register a plugin, and close the connections that it replaces.

        Returns the number of the registration. ``name`` distinguishes plugins of the same resource.
        It is the file name of the plugin's socket. If the plugin watcher found the plugin, it is
        the path of the socket. ``socket`` is the path of the socket, for error texts. Raises
        EndpointError if the kubelet is stopping.

        With the kubelet bug (quirk) Q1, Q3 or Q24, replaced connections stay open. With Q2,
        EndpointError is also raised if the plugin is already connected.
        """
        state = self._state
        with state.lock:
            if self._closed:
                raise EndpointError("the kubelet is stopping")
            same = self._connected(resource, name)
            if "Q2" in self._quirks and same is not None:
                # The rejection also removes the client of the connected plugin, so that the
                # end of its stream is not noticed (``connectClient``, v1.37).
                self._unnoticed.add(same)
                raise EndpointError(messages.ALREADY_CONNECTED.format(socket=socket or name))
            endpoint, replaced = state.endpoints.connect(resource, name, options)
            # Stored in the same critical section as the registration: an allocation that finds
            # the endpoint also finds its connection.
            state.connections[endpoint.id] = connection
            closed = [(old, state.connections.pop(old.id)) for old in replaced]
            state.changed()
        for old, old_connection in closed:
            # Outside the lock: closing a channel can block.
            leaks = not self._quirks.isdisjoint(_LEAVE_OPEN)
            if leaks:
                self.keep_open(old_connection)
            else:
                old_connection.close()
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
        """Store a device list that a plugin sent, and report what has changed.

        A list of a replaced registration is ignored, except with quirk Q24 (a kubelet bug).
        """
        resource = self._resource_of(endpoint)
        if resource is None:
            return
        state = self._state
        while True:
            # A list can be 4 MiB: index it without the lock.
            before = state.endpoints.last_list(resource) or EMPTY
            devices = device_list_from(columns, before)
            change = _Change.of(before, devices)
            with state.lock:
                if (state.endpoints.last_list(resource) or EMPTY) is not before:
                    continue  # the list of another plugin was applied meanwhile
                if self._closed or not state.endpoints.update(endpoint, devices):
                    return
                applied = self._apply(resource, change, is_list=True)
                # Called under the lock: the topology policy must know all NUMA nodes of devices
                # before the next admission computes hints.
                lacking = self._make_room(devices.device_index.per_node)
                is_renumbered = devices.device_index is not before.device_index
                unlisted = (
                    state.ledger.unlisted(resource, devices.device_index) if is_renumbered else ()
                )
                break
        # Published before DEVICES_UPDATED, so that a test that waits for the list finds the
        # warnings.
        warnings = list_warnings(columns, devices)
        if lacking:
            warnings += (messages.NO_SUCH_NUMA_NODE.format(node=lacking[0]),)
        if unlisted and devices.has_topology:
            warnings += (messages.UNLISTED_DEVICES.format(devices=listed(unlisted, most=3)),)
        for warning in warnings:
            self._events.publish(
                EventKind.LIST_SUSPECT, f"{resource}: {warning}", resource=resource
            )
        self._events.publish(
            EventKind.DEVICES_UPDATED,
            f"{resource}: {counted(devices.capacity, 'device')}, {devices.allocatable} healthy"
            + _describe(applied.changes),
            resource=resource,
            capacity=devices.capacity,
            allocatable=devices.allocatable,
        )
        self._follow_up(resource, applied)

    def disconnect(self, endpoint: EndpointId, cause: str) -> None:
        """Mark a plugin as disconnected, because its ListAndWatch stream has ended.

        ``cause`` is the reason as one line of text, for the event.
        """
        now = self._clock.monotonic()
        state = self._state
        with state.lock:
            if self._closed or endpoint in self._unnoticed:
                return
            departure = state.endpoints.disconnect(endpoint, now)
            if departure is None:
                departure = self._disconnect_successor(endpoint, now)
            ended = endpoint if departure is None else departure.endpoint.id
            connection = state.connections.pop(ended, None)
            if departure is not None:
                resource = departure.endpoint.resource
                change = _Change.of(departure.before, departure.after)
                applied = self._apply(resource, change, is_list=False)
        if connection is not None:
            connection.close()
        if departure is None:
            return
        self._events.publish(
            EventKind.STREAM_ENDED,
            f"{resource}: ListAndWatch stream of {departure.endpoint.name} ended: {cause}",
            resource=resource,
        )
        if departure.promoted is not None:
            self._events.publish(
                EventKind.PROMOTED,
                f"{resource}: plugin {departure.promoted.name} now serves the resource",
                resource=resource,
            )
        self._follow_up(resource, applied)
        # Called without the lock, because it takes the lock to start the grace period's timer.
        if departure.promoted is None:
            self._stopped()

    def _resource_of(self, endpoint: EndpointId) -> ResourceName | None:
        with self._state.lock:
            resource = self._state.endpoints.resource_of(endpoint)
        return None if self._closed else resource

    def is_connected(self, resource: ResourceName, name: str) -> bool:
        """True if a plugin with this socket name is connected for the resource."""
        with self._state.lock:
            return self._connected(resource, name) is not None

    def _connected(self, resource: ResourceName, name: str) -> EndpointId | None:
        for each in self._state.endpoints.connected():
            if each.resource == resource and each.name == name:
                return each.id
        return None

    def _disconnect_successor(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """Handle the late end of a replaced registration.

        With quirk Q1, disconnect the plugin that replaced it, and return the result. Otherwise do
        nothing and return None.
        """
        endpoints = self._state.endpoints
        resource = endpoints.pop_replaced(endpoint)
        if resource is None or "Q1" not in self._quirks:
            return None
        current = endpoints.serving(resource)
        return None if current is None else endpoints.disconnect(current.id, now)

    @property
    def is_closed(self) -> bool:
        """True if the kubelet is stopping or has stopped."""
        return self._closed

    def ignore(self) -> None:
        """Ignore all later reports of plugins; their connections stay open."""
        with self._state.lock:
            self._closed = True

    def close_connection(self, endpoint: EndpointId) -> None:
        """Close the connection of a registration; the connection's thread calls ``disconnect``."""
        connection = self._state.connections.get(endpoint)
        if connection is not None:
            connection.close()

    def keep_open(self, connection: Endpoint) -> None:
        """Leave the connection of a replaced or rejected registration open until ``close``.

        Called only with the kubelet bug (quirk) Q1, Q3 or Q24.
        """
        with self._state.lock:
            self._left_open.append(connection)

    def close(self) -> None:
        """Ignore all later reports of plugins, close all connections and wait for their threads."""
        self.ignore()
        with self._state.lock:
            connections = [*self._state.connections.values(), *self._left_open]
            self._state.connections.clear()
            self._left_open.clear()
        # Close all connections before waiting, so that their threads end at the same time.
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.join()

    def _apply(self, resource: ResourceName, change: _Change, *, is_list: bool) -> _Applied:
        """Note a changed list for the next checkpoint write, and find pods with changed devices.

        The checkpoint is not written here. With ``is_list`` false, the change comes from a
        disconnect. Must be called with the lock held.
        """
        # The first list of a resource changes the file even if it has no devices, because the file
        # also has the resource's name. A plugin that disconnects before it leaves no trace.
        is_first = is_list and not self._state.is_noted(resource)
        must_write = bool(change.changes) or is_first
        if must_write:
            self._state.note_list(resource, change.healthy)
        # After a restart, the file can differ from the lists even if this list did not change.
        must_write |= self._state.is_stale
        if "Q29" in self._quirks:
            must_write = is_list
        touched = change.touched
        if "Q9" in self._quirks:
            touched = _reported_differently(change) if is_list else frozenset()
        held = self._holders(resource, touched)
        return _Applied(change.changes, held, change.after, must_write)

    def _holders(
        self, resource: ResourceName, touched: frozenset[DeviceId]
    ) -> dict[PodUid, set[DeviceId]]:
        ledger = self._state.ledger
        # Q8: the kubelet compares IDs without the resource, so it also finds pods that use a device
        # of another resource with the same ID.
        names = [name for name, _ in ledger.resources()] if "Q8" in self._quirks else [resource]
        held: dict[PodUid, set[DeviceId]] = {}
        for name in names:
            for pod, ids in ledger.pods_using(name, touched).items():
                held.setdefault(pod, set()).update(ids)
        return _first_holders(held) if "Q32" in self._quirks else held

    def _follow_up(self, resource: ResourceName, applied: _Applied) -> None:
        for pod, ids in applied.held.items():
            self._report(resource, pod, sorted(ids), applied.after)
        if applied.must_write:
            self._write()

    def _report(
        self, resource: ResourceName, pod: PodUid, ids: Sequence[DeviceId], after: DeviceList
    ) -> None:
        """Add a pod to the queue of changed health, and publish an event.

        If the queue is full, the event says that the report was dropped.
        """
        if not self._health_updates.report(pod):
            self._events.publish(
                EventKind.HEALTH_DROPPED,
                f"{resource} {', '.join(ids)}: report of changed health dropped: "
                f"the queue has {counted(self._health_updates.maxsize, 'unread report')}",
                resource=resource,
                pod=pod,
            )
            return
        self._events.publish(
            EventKind.DEVICE_HEALTH,
            f"{resource} {_states(ids, after)}, allocated to pod {self.title_of(pod)}",
            resource=resource,
            pod=pod,
        )


def _first_holders(held: Mapping[PodUid, set[DeviceId]]) -> dict[PodUid, set[DeviceId]]:
    """Assign every device to only one of the pods that use it. Return the devices by pod UID.

    Follows ``getPodAndContainerForDevice``, v1.36, which returns one pod for a device.
    """
    left = set[DeviceId]().union(*held.values())
    first = {}
    for pod in sorted(held):
        if ids := held[pod] & left:
            first[pod] = ids
            left -= ids
    return first


def _reported_differently(change: _Change) -> frozenset[DeviceId]:
    """Return the IDs of new devices and of devices with changed health, for quirk Q9.

    With Q9, removed devices and devices of a disconnected plugin are not reported
    (``genericDeviceUpdateCallback``, v1.32).
    """
    before = dict(zip(change.before.device_index.ids, change.before.health, strict=True))
    columns = change.after.reported
    if columns is not None and change.after.mixed:
        # The kubelet compares every entry of a device that is listed several times.
        after = zip(columns.ids, columns.health, strict=True)
    else:
        after = zip(change.after.device_index.ids, change.after.health, strict=True)
    return frozenset(id_ for id_, health in after if before.get(id_) != health)


def _states(ids: Iterable[DeviceId], devices: DeviceList) -> str:
    """Describe devices in one line, grouped by state: ``gpu-0, gpu-1: now Unhealthy``."""
    by_state: dict[str, list[str]] = {}
    for id_ in ids:
        by_state.setdefault(_state(id_, devices), []).append(id_)
    return "; ".join(f"{', '.join(by_state[state])}: {state}" for state in sorted(by_state))


def _state(id_: DeviceId, devices: DeviceList) -> str:
    number = devices.device_index.index.get(id_)
    if number is None:
        return "gone"
    if devices.is_healthy(number):
        return "now Healthy"
    # The list keeps the last reported health, also after the plugin has disconnected.
    disconnected = devices.health[number] == HEALTHY
    return "now Unhealthy: plugin disconnected" if disconnected else "now Unhealthy"


def _describe(difference: Changes) -> str:
    parts = [
        f"{len(ids)} {verb}"
        for verb, ids in (
            ("added", difference.added),
            ("removed", difference.removed),
            ("changed", difference.changed),
        )
        if ids
    ]
    return f" ({', '.join(parts)})" if parts else ""
