"""Build the document of a page from the view of a node. A document consists of tables of JSON rows.

Rows and tables that have not changed since the previous document are the same objects, so
``deltas`` need not compare their content. This matters for devices: a node can have 10,000 devices,
and an admission changes only a few. The function ``delta`` of the view returns the devices whose
rows must be built again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from devicemanager.faults.states import FaultState
from devicemanager.observe.view import (
    Layout,
    NodeView,
    PluginView,
    PodInfo,
    ResourceView,
    delta,
)
from devicemanager.observe.web.page.deltas import EMPTY, At, Document, Table

__all__ = ["Documents"]

T = TypeVar("T")
Row = Any

_NODE = "node"
# Number of calls of each plugin that a page shows.
_CALLS = 10


class Documents:
    """Builder of the documents that the live page shows, from the views of one node. Not
    thread-safe."""

    def __init__(self) -> None:
        self._view: NodeView | None = None
        self._document: Document = EMPTY
        self._sources: dict[At, dict[str, object]] = {}

    def of(self, view: NodeView, faults: Sequence[FaultState]) -> Document:
        """Return the document for a view and the faults that are set."""
        tables: dict[At, Table] = {}
        tables[_NODE, ""] = self._table((_NODE, ""), [(_NODE, view)], _node)
        # The same object means that no device has changed, so all these tables are reused.
        if self._view is not None and self._view.resources is view.resources:
            for at, table in self._document.items():
                if at[0] in ("resources", "devices"):
                    tables[at] = table
        else:
            self._add_resources(view, tables)
        plugins = _numbered(view.plugins or ())
        tables["plugins", ""] = self._table(("plugins", ""), plugins, _plugin)
        pods = [(pod.uid, pod) for pod in view.pods]
        tables["pods", ""] = self._table(("pods", ""), pods, _pod)
        drivers = [(f"{each.driver} {each.endpoint}", each) for each in view.dra.drivers]
        tables["drivers", ""] = self._table(("drivers", ""), drivers, msgspec.to_builtins)
        claims = [(each.title, each) for each in view.dra.claims]
        tables["claims", ""] = self._table(("claims", ""), claims, msgspec.to_builtins)
        slices = [(each.name, each) for each in view.dra.slices]
        tables["slices", ""] = self._table(("slices", ""), slices, msgspec.to_builtins)
        set_ = [(str(fault.id), fault) for fault in faults]
        tables["faults", ""] = self._table(("faults", ""), set_, _fault)
        self._view, self._document = view, tables
        return tables

    def _add_resources(self, view: NodeView, tables: dict[At, Table]) -> None:
        resources = [(each.name, each) for each in view.resources]
        tables["resources", ""] = self._table(("resources", ""), resources, _resource)
        # Numbers of changed devices by resource; empty for an unchanged resource. A resource that
        # is missing is new or has another layout, so all its rows are built.
        changed: dict[str, Sequence[int]] = {}
        if self._view is not None:
            difference = delta(self._view, view)
            changed = {each.resource.name: each.numbers for each in difference.devices}
            before = {each.name: each for each in self._view.resources}
            changed |= {e.name: () for e in view.resources if before.get(e.name) is e}
        for resource in view.resources:
            at = ("devices", resource.name)
            tables[at] = self._devices(at, resource, changed.get(resource.name))

    def _devices(self, at: At, resource: ResourceView, changed: Sequence[int] | None) -> Table:
        """Return the table of a resource's devices. ``changed`` has the numbers of changed devices;
        None if any device can have changed."""
        if changed is None:
            numbers: Iterable[int] = range(len(resource.layout.ids))
            table: dict[str, Row] = {}
        elif not changed:
            return self._document[at]
        else:
            numbers, table = changed, dict(self._document[at])
        areas = _areas(resource.layout)
        for number in numbers:
            # Keyed by ID, because numbers change when a plugin adds a device.
            table[resource.layout.ids[number]] = _device(resource, number, areas)
        return table

    def _table(self, at: At, sources: Sequence[tuple[str, T]], row: Callable[[T], Row]) -> Table:
        """Return a table with one row per source. Rows of unchanged sources are reused."""
        before, table = self._sources.get(at, {}), self._document.get(at, {})
        self._sources[at] = dict(sources)
        # From the same table object, ``deltas`` knows quickly that no row has changed.
        if len(before) == len(sources) and all(before.get(key) is one for key, one in sources):
            return table
        return {
            key: table[key] if key in before and before[key] is one else row(one)
            for key, one in sources
        }


def _numbered(plugins: Sequence[PluginView]) -> list[tuple[str, PluginView]]:
    """Return pairs of a key and a plugin. The key has a number, counted per resource, and the
    resource: ``1 vendor.com/gpu``."""
    # A resource can have several registrations, even from the same socket.
    counts: dict[str, int] = {}
    keyed = []
    for plugin in plugins:
        counts[plugin.resource] = number = counts.get(plugin.resource, 0) + 1
        keyed.append((f"{number} {plugin.resource}", plugin))
    return keyed


# -- rows ------------------------------------------------------------------------------


def _node(view: NodeView) -> Row:
    return {
        "name": view.name,
        "version": view.kubelet_version,
        "serving": view.serving,
        "policy": view.policy,
        "scope": view.scope,
        "numa_nodes": view.numa_nodes,
        "source": view.source,
    }


def _resource(resource: ResourceView) -> Row:
    return {
        "capacity": resource.capacity,
        "allocatable": resource.allocatable,
        "connected": resource.connected,
    }


def _areas(layout: Layout) -> list[int | None]:
    """Return, for each device, the NUMA node under which the page shows it."""
    areas: list[int | None] = [None] * len(layout.ids)
    for node, numbers in layout.by_node.items():
        for number in numbers:
            areas[number] = node
    return areas


def _device(resource: ResourceView, number: int, areas: Sequence[int | None]) -> Row:
    """Return a device's row ``[state, area, holders]``. Health and NUMA nodes are appended if the
    page cannot derive them from the state and the area."""
    # A short array, because most of a document can be 10,000 such rows.
    device = resource.device(number)
    holders = [(holder.pod, holder.container) for holder in device.holders]
    area = areas[number]
    row: list[Any] = [device.state.label, area, holders]
    nodes = None if area is None else (area,)
    if device.numa != nodes or device.health not in ("", "Healthy", "Unhealthy"):
        row += [device.health, device.numa]
    return row


def _plugin(plugin: PluginView) -> Row:
    return {
        "resource": plugin.resource,
        "endpoint": plugin.endpoint,
        "stream": plugin.stream.value,
        "lists": plugin.lists,
        "pre_start_required": plugin.pre_start_required,
        "get_preferred_allocation_available": plugin.get_preferred_allocation_available,
        "calls": [attrs.asdict(call) for call in plugin.calls[-_CALLS:]],
        "in_progress": [attrs.asdict(call) for call in plugin.in_progress],
    }


def _pod(pod: PodInfo) -> Row:
    # The UID is the key of the row, and this stream does not need ``schema``.
    row = msgspec.to_builtins(pod)
    del row["schema"], row["uid"]
    return row


def _fault(fault: FaultState) -> Row:
    return {
        "spec": str(fault.fault),
        "seen": fault.seen,
        "fired": fault.fired,
        "holding": fault.holding,
        "spent": fault.is_spent,
    }
