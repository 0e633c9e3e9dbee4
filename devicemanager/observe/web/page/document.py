"""The document that a page is shown: rows in JSON values, made of the picture of a node.

What has not changed since the document before is the same object, so that the difference is
found without a look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from devicemanager.faults.states import FaultState
from devicemanager.observe.view import (
    LastCall,
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
_CALLS = 10
"""Calls of each plugin that a page is shown."""


class Documents:
    """Documents of pictures of one builder, one after another. For one thread at a time."""

    def __init__(self) -> None:
        self._picture: NodeView | None = None
        self._document: Document = EMPTY
        self._sources: dict[At, dict[str, object]] = {}

    def of(self, picture: NodeView, faults: Sequence[FaultState]) -> Document:
        """The document of a picture and of the faults that are set."""
        tables: dict[At, Table] = {}
        tables[_NODE, ""] = self._kept((_NODE, ""), [(_NODE, picture)], _node)
        if self._picture is not None and self._picture.resources is picture.resources:
            for at, table in self._document.items():
                if at[0] in ("resources", "devices"):
                    tables[at] = table
        else:
            self._take_resources(picture, tables)
        plugins = _numbered(picture.plugins or ())
        tables["plugins", ""] = self._kept(("plugins", ""), plugins, _plugin)
        pods = [(pod.uid, pod) for pod in picture.pods]
        tables["pods", ""] = self._kept(("pods", ""), pods, _pod)
        set_ = [(str(fault.id), fault) for fault in faults]
        tables["faults", ""] = self._kept(("faults", ""), set_, _fault)
        self._picture, self._document = picture, tables
        return tables

    def _take_resources(self, picture: NodeView, tables: dict[At, Table]) -> None:
        resources = [(each.name, each) for each in picture.resources]
        tables["resources", ""] = self._kept(("resources", ""), resources, _resource)
        changed: dict[str, Sequence[int]] = {}
        if self._picture is not None:
            found = delta(self._picture, picture)
            changed = {each.resource.name: each.numbers for each in found.devices}
            before = {each.name: each for each in self._picture.resources}
            changed |= {e.name: () for e in picture.resources if before.get(e.name) is e}
        for resource in picture.resources:
            at = ("devices", resource.name)
            tables[at] = self._devices(at, resource, changed.get(resource.name))

    def _devices(self, at: At, resource: ResourceView, changed: Sequence[int] | None) -> Table:
        """``changed`` has the numbers of devices that are different; None: all may be."""
        if changed is None:
            numbers: Iterable[int] = range(len(resource.layout.ids))
            table: dict[str, Row] = {}
        elif not changed:
            return self._document[at]
        else:
            numbers, table = changed, dict(self._document[at])
        areas = _areas(resource.layout)
        for number in numbers:
            table[resource.layout.ids[number]] = _device(resource, number, areas)
        return table

    def _kept(self, at: At, sources: Sequence[tuple[str, T]], row: Callable[[T], Row]) -> Table:
        """A table with a row of each source; rows of the same sources are not made again."""
        before, table = self._sources.get(at, {}), self._document.get(at, {})
        self._sources[at] = dict(sources)
        if len(before) == len(sources) and all(before.get(key) is one for key, one in sources):
            return table
        return {
            key: table[key] if key in before and before[key] is one else row(one)
            for key, one in sources
        }


def _numbered(plugins: Sequence[PluginView]) -> list[tuple[str, PluginView]]:
    """A resource may have several registrations, which have nothing else that tells them
    apart for good."""
    counts: dict[str, int] = {}
    keyed = []
    for plugin in plugins:
        counts[plugin.resource] = number = counts.get(plugin.resource, 0) + 1
        keyed.append((f"{number} {plugin.resource}", plugin))
    return keyed


# -- rows ------------------------------------------------------------------------------


def _node(picture: NodeView) -> Row:
    return {
        "name": picture.name,
        "version": picture.kubelet_version,
        "serving": picture.serving,
        "policy": picture.policy,
        "scope": picture.scope,
        "numa_nodes": picture.numa_nodes,
        "source": picture.source,
    }


def _resource(resource: ResourceView) -> Row:
    return {
        "capacity": resource.capacity,
        "allocatable": resource.allocatable,
        "connected": resource.connected,
    }


def _areas(layout: Layout) -> list[int | None]:
    """The NUMA node with which each device is shown."""
    areas: list[int | None] = [None] * len(layout.ids)
    for node, numbers in layout.by_node.items():
        for number in numbers:
            areas[number] = node
    return areas


def _device(resource: ResourceView, number: int, areas: Sequence[int | None]) -> Row:
    """``[state, area, holders]``, and where that says more ``health, NUMA nodes``."""
    device = resource.device(number)
    holders = [(holder.pod, holder.container) for holder in device.holders]
    area = areas[number]
    row: list[Any] = [device.state.value, area, holders]
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
        "calls": [_call(call) for call in plugin.calls[-_CALLS:]],
        "in_progress": [attrs.asdict(call) for call in plugin.in_progress],
    }


def _call(call: LastCall) -> Row:
    return attrs.asdict(call)


def _pod(pod: PodInfo) -> Row:
    # The UID is the row's key, and the stream has a version of its own.
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
