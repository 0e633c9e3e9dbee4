"""Many nodes in a cluster as one picture: a row for each, and their devices together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import attrs

from devicemanager.core.nodestatus.conditions import NodeCondition
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.telemetry import NodeTelemetry

__all__ = ["ClusterNodeView", "ClusterPictures", "ClusterView", "ResourceTotals"]

_SHARE = 10
"""A picture lasts so many times as long as it took to make."""


@attrs.frozen
class ResourceTotals:
    """Devices of one resource, on one node or on all."""

    name: str
    capacity: int
    allocatable: int
    """Healthy ones, held or not."""
    held: int
    """Those that containers hold, healthy or not."""


@attrs.frozen
class ClusterNodeView:
    """One node."""

    name: str
    ready: bool
    problems: tuple[str, ...]
    """Why it is not ready, what it is short of, and the faults that its annotation lists."""
    silent: bool
    resources: tuple[ResourceTotals, ...]
    """Sorted by name."""
    pods: tuple[tuple[str, int], ...]
    """How many are in each phase, sorted by phase."""
    rejection: str
    """Of the latest pod that was rejected: its name, why, and what the node said; empty if none
    was."""


@attrs.frozen
class ClusterView:
    """The nodes of one process."""

    source: str
    """Which cluster."""
    nodes: tuple[ClusterNodeView, ...]
    """Sorted by name, numbers in names as numbers."""
    resources: tuple[ResourceTotals, ...]
    """Of all nodes together, sorted by name."""
    notes: tuple[str, ...] = ()


class _Kubelet(Protocol):
    @property
    def telemetry(self) -> NodeTelemetry: ...
    @property
    def pod_store(self) -> PodStore: ...


class _Faults(Protocol):
    @property
    def active(self) -> Iterable[object]: ...


class SeenNode(Protocol):
    """A node that can be looked at; see ``ClusterNode``."""

    @property
    def kubelet(self) -> _Kubelet: ...
    @property
    def faults(self) -> _Faults: ...
    @property
    def is_silent(self) -> bool: ...
    def conditions(self) -> tuple[NodeCondition, ...]: ...


class ClusterPictures:
    """Makes pictures of nodes that come and go. To be used by one thread."""

    def __init__(
        self,
        source: str,
        nodes: Callable[[], Mapping[str, SeenNode]],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``nodes`` gives those that there are, by name; ``now`` is in seconds."""
        self._source = source
        self._nodes = nodes
        self._now = now
        self._latest: ClusterView | None = None
        self._due = 0.0
        self._rejections: dict[str, str] = {}

    def look(self) -> ClusterView:
        """A picture as of now; of many nodes one that lasts a while, so that looking takes no
        more than a tenth of a processor."""
        began = self._now()
        if self._latest is None or began >= self._due:
            self._latest = self._made()
            ended = self._now()
            self._due = ended + (ended - began) * _SHARE
        return self._latest

    def _made(self) -> ClusterView:
        found = self._nodes()
        self._rejections = {name: text for name, text in self._rejections.items() if name in found}
        nodes = tuple([self._node(name, found[name]) for name in sorted(found, key=_natural)])
        return ClusterView(self._source, nodes, _together(nodes))

    def _node(self, name: str, node: SeenNode) -> ClusterNodeView:
        *pressures, ready = node.conditions()
        records = node.kubelet.pod_store.records()
        for record in records:
            if record.rejected:
                text = f"{record.pod.namespace}/{record.pod.name} {record.reason}: {record.message}"
                self._rejections[name] = text
        return ClusterNodeView(
            name,
            ready.status,
            (
                *([] if ready.status else [ready.message]),
                *(each.type for each in pressures if each.status),
                *map(str, node.faults.active),
            ),
            node.is_silent,
            tuple(
                [
                    ResourceTotals(resource, counts.capacity, counts.allocatable, counts.held)
                    for resource, counts in node.kubelet.telemetry.device_counts().items()
                ]
            ),
            tuple(sorted(Counter(str(record.phase) for record in records).items())),
            self._rejections.get(name, ""),
        )


def _natural(name: str) -> tuple[str, int, str]:
    """``virtual-9`` before ``virtual-10``."""
    prefix, _, number = name.rpartition("-")
    if number.isascii() and number.isdecimal() and len(number) < 10:
        return prefix, int(number), name
    return name, -1, name


def _together(nodes: Iterable[ClusterNodeView]) -> tuple[ResourceTotals, ...]:
    sums: dict[str, list[int]] = {}
    for node in nodes:
        for each in node.resources:
            of = sums.setdefault(each.name, [0, 0, 0])
            of[0] += each.capacity
            of[1] += each.allocatable
            of[2] += each.held
    return tuple([ResourceTotals(name, *sums[name]) for name in sorted(sums)])
