"""Handle plugin registrations, device lists and disconnects.

Theory of operation. Three kinds of calls come in, on the threads of the plugins' connections:
``connect`` (the plugin passed the checks of the registrar), ``update`` (it sent a list) and
``disconnect`` (its ListAndWatch stream ended). Each changes the state under the lock and then,
outside it, closes replaced connections, publishes events, queues health reports and writes the
checkpoint.

Calls can be late or in any order. These are the races:

* A replaced plugin's stream ends after its successor connected. Every registration has a number,
  so the late ``disconnect`` names a registration that no longer exists, and nothing happens. With
  quirk Q1 it disconnects the successor, as in the kubelet.
* Two plugins of one resource send lists at the same time. A list can have 4 MiB, so it is
  indexed and compared without the lock; ``update`` starts again if another list was applied
  meanwhile.
* A list arrives when the kubelet is stopping. After ``ignore`` nothing is applied any more.

A list is processed in four steps: index it, reusing the numbering of the previous list
(``device_list_from``); compare it (``_Change``); apply it under the lock and find the pods that
use changed devices (``_apply``); then report and write (``_follow_up``). The kubelet writes its
checkpoint after every list. Here a list that changes nothing in the file causes no write.
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
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.manager.state import Endpoint, State


class HealthUpdates(queue.SimpleQueue[PodUid]):
    """Queue of UIDs of pods whose devices changed health, oldest first.

    ``get_nowait`` raises ``queue.Empty``. Based on SimpleQueue, which needs a tenth of the
    memory of a ``queue.Queue``: every in-memory node has one.
    """

    __slots__ = ("maxsize",)

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize

    def report(self, pod: PodUid) -> bool:
        """Queue a pod, unless ``maxsize`` are waiting. True if it was queued.

        The limit is not exact: concurrent reports can exceed it by a few.
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
    """Healthy devices of the new list, as the checkpoint names them."""

    @classmethod
    def of(cls, before: DeviceList, after: DeviceList) -> _Change:
        difference = changes(before, after)
        touched = frozenset((*difference.changed, *difference.removed, *difference.added))
        healthy = after.device_index.select(after.healthy)
        return cls(before, after, difference, touched, healthy)


@attrs.frozen(eq=False, repr=False)
class _Applied:
    """Effects of a list that was applied."""

    changes: Changes
    held: Mapping[PodUid, set[DeviceId]]
    """Pods that use changed devices."""
    after: DeviceList
    must_write: bool
    """True if the contents of the checkpoint changed."""


class ClientHandler:
    """Handler of registrations, lists and disconnects; thread-safe.

    ``health_updates`` is the queue of pods whose devices changed health. ``write`` writes the
    checkpoint. ``stopped`` is called after a resource has lost its last plugin. ``make_room``
    is called with the lock held; it gets the NUMA nodes of devices and returns those that the
    machine does not have.
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
        """Returns a pod's name for events; must be set before the first plugin registers."""
        # Guarded by the state's lock. True: nothing is applied any more.
        self._closed = False
        self._left_open: list[Endpoint] = []  # Q3

    def connect(
        self,
        resource: ResourceName,
        name: str,
        options: PluginOptions,
        connection: Endpoint,
        socket: str = "",
    ) -> EndpointId:
        """Register a plugin and close the connections that it replaces (Q2, Q3).

        ``socket`` is the path of its socket, for error texts. Raises EndpointError if the
        kubelet is stopping, or because of quirk Q2.
        """
        state = self._state
        with state.lock:
            if self._closed:
                raise EndpointError("the kubelet is stopping")
            if "Q2" in self._quirks and self._connected(resource, name):
                raise EndpointError(messages.ALREADY_CONNECTED.format(socket=socket or name))
            endpoint, replaced = state.endpoints.connect(resource, name, options)
            # Under the same lock as the registration: an allocation that finds the endpoint also
            # finds its connection.
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
        """Apply the device list of a registration. Ignored if it is no longer connected."""
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
                # Before the next admission computes hints: the policy must know all nodes of the
                # devices.
                lacking = self._make_room(devices.device_index.per_node)
                break
        # Published before DEVICES_UPDATED, so that a test that waits for the list finds the
        # warnings.
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
            + _describe(applied.changes),
            resource=resource,
            capacity=devices.capacity,
            allocatable=devices.allocatable,
        )
        self._follow_up(resource, applied)

    def disconnect(self, endpoint: EndpointId, cause: str) -> None:
        """Handle the end of a ListAndWatch stream; ``cause`` is one line for people."""
        now = self._clock.monotonic()
        state = self._state
        with state.lock:
            if self._closed:
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
            f"{resource}: list stream of {departure.endpoint.name} ended: {cause}",
            resource=resource,
        )
        if departure.promoted is not None:
            self._events.publish(
                EventKind.PROMOTED,
                f"{resource}: {departure.promoted.name} serves now",
                resource=resource,
            )
        self._follow_up(resource, applied)
        # Last, because it takes the lock again to arm the timer.
        if departure.promoted is None:
            self._stopped()

    def _resource_of(self, endpoint: EndpointId) -> ResourceName | None:
        with self._state.lock:
            resource = self._state.endpoints.resource_of(endpoint)
        return None if self._closed else resource

    def is_connected(self, resource: ResourceName, name: str) -> bool:
        """True if a plugin of this name is connected for the resource."""
        with self._state.lock:
            return self._connected(resource, name)

    def _connected(self, resource: ResourceName, name: str) -> bool:
        connected = self._state.endpoints.connected()
        return any(each.resource == resource and each.name == name for each in connected)

    def _disconnect_successor(self, endpoint: EndpointId, now: float) -> Disconnection | None:
        """Handle the late end of a replaced registration: no effect, except with Q1.

        With Q1 it disconnects the plugin that replaced it.
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
        """Ignore everything that plugins report from now on; connections stay open."""
        with self._state.lock:
            self._closed = True

    def close_connection(self, endpoint: EndpointId) -> None:
        """Close a registration's connection; ``disconnect`` follows when it has ended."""
        connection = self._state.connections.get(endpoint)
        if connection is not None:
            connection.close()

    def keep_open(self, connection: Endpoint) -> None:
        """Leave the connection of a former registration open until ``close`` (Q3)."""
        with self._state.lock:
            self._left_open.append(connection)

    def close(self) -> None:
        """Ignore what plugins report, close every connection and wait for its end."""
        self.ignore()
        with self._state.lock:
            connections = [*self._state.connections.values(), *self._left_open]
            self._state.connections.clear()
            self._left_open.clear()
        # Close all before waiting for any: their threads end at the same time.
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.join()

    def _apply(self, resource: ResourceName, change: _Change, *, is_list: bool) -> _Applied:
        """Put a new list into the checkpoint and find the pods it concerns; needs the lock.

        Without ``is_list``, a plugin has disconnected.
        """
        # The first list of a resource is a change even if it has no devices: the file
        # names the resource from then on. A plugin that disconnects before it leaves no trace.
        is_first = is_list and not self._state.is_noted(resource)
        must_write = bool(change.changes) or is_first
        if must_write:
            self._state.note_list(resource, change.healthy)
        # After a restart the file can differ from the lists although the list did not change.
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
        # Q8: the kubelet compares IDs without the resource, so a device of another resource with
        # the same ID counts, too.
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
        """Queue a report of changed health; drop it if the queue is full."""
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
            f"{resource} {_states(ids, after)}, allocated to pod {self.title_of(pod)}",
            resource=resource,
            pod=pod,
        )


def _first_holders(held: Mapping[PodUid, set[DeviceId]]) -> dict[PodUid, set[DeviceId]]:
    """Return one pod for each device, as ``getPodAndContainerForDevice`` finds one (v1.36)."""
    left = set[DeviceId]().union(*held.values())
    first = {}
    for pod in sorted(held):
        if ids := held[pod] & left:
            first[pod] = ids
            left -= ids
    return first


def _reported_differently(change: _Change) -> frozenset[DeviceId]:
    """Return the devices that quirk Q9 updates: new ones, and those with changed health.

    Devices that vanished, or whose plugin disconnected, are not among them
    (``genericDeviceUpdateCallback``, v1.32).
    """
    before = dict(zip(change.before.device_index.ids, change.before.health, strict=True))
    columns = change.after.reported
    if columns is not None and change.after.mixed:
        # The kubelet compares each row of a device that is listed several times.
        after = zip(columns.ids, columns.health, strict=True)
    else:
        after = zip(change.after.device_index.ids, change.after.health, strict=True)
    return frozenset(id_ for id_, health in after if before.get(id_) != health)


def _states(ids: Iterable[DeviceId], devices: DeviceList) -> str:
    """Describe what happened to devices, grouped by their state."""
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
    # The list keeps the health that the plugin reported last, also after it disconnects.
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
