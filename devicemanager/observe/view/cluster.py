"""View of many nodes in a cluster: one row per node, and the totals of their devices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import attrs

from devicemanager.core.nodestatus.conditions import NodeCondition
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.telemetry import NodeTelemetry

__all__ = ["ClusterNodeView", "ClusterView", "ClusterViewBuilder", "ResourceTotals"]

# A view is reused for this multiple of the time that building it took.
_SHARE = 10


@attrs.frozen
class ResourceTotals:
    """Numbers of devices of one resource, on one node or on all nodes."""

    name: str
    capacity: int
    allocatable: int
    """Number of healthy devices, allocated or not."""
    held: int
    """Number of allocated devices, healthy or not."""


@attrs.frozen
class ClusterNodeView:
    """View of one node in a cluster."""

    name: str
    ready: bool
    problems: tuple[str, ...]
    """Texts: why the node is not ready, the node's pressure conditions, and the faults in the
    node's annotation."""
    silent: bool
    """True if the node has stopped reporting."""
    resources: tuple[ResourceTotals, ...]
    """Numbers of devices by resource, sorted by resource name."""
    pods: tuple[tuple[str, int], ...]
    """Number of pods in each phase, sorted by phase."""
    rejection: str
    """Name, reason and message of the last rejected pod; empty if no pod was rejected."""


@attrs.frozen
class ClusterView:
    """View of the nodes that this process runs in a cluster."""

    source: str
    """URL of the cluster."""
    nodes: tuple[ClusterNodeView, ...]
    """Nodes, sorted by name; a number at the end of a name is compared as a number."""
    resources: tuple[ResourceTotals, ...]
    """Totals of all nodes by resource, sorted by resource name."""
    notes: tuple[str, ...] = ()


class _Kubelet(Protocol):
    @property
    def telemetry(self) -> NodeTelemetry: ...
    @property
    def pod_store(self) -> PodStore: ...


class _Faults(Protocol):
    @property
    def active(self) -> Iterable[object]: ...


class ObservedNode(Protocol):
    """The properties and methods of ``ClusterNode`` that a view needs."""

    @property
    def kubelet(self) -> _Kubelet: ...
    @property
    def faults(self) -> _Faults: ...
    @property
    def is_silent(self) -> bool: ...
    def conditions(self) -> tuple[NodeCondition, ...]: ...


class ClusterViewBuilder:
    """Builder of views of a changing set of nodes. Not thread-safe."""

    def __init__(
        self,
        source: str,
        nodes: Callable[[], Mapping[str, ObservedNode]],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create a builder. ``source`` is the URL of the cluster. ``nodes`` returns the current
        nodes by name. ``now`` returns a time in seconds, which is used only to measure durations.
        """
        self._source = source
        self._nodes = nodes
        self._now = now
        self._latest: ClusterView | None = None
        self._due = 0.0
        self._rejections: dict[str, str] = {}

    def refresh(self) -> ClusterView:
        """Return the current view or a recent one. With many nodes, a view is reused for some time,
        so that building views uses at most 10 % of a CPU."""
        began = self._now()
        if self._latest is None or began >= self._due:
            self._latest = self._build()
            ended = self._now()
            # The pause is proportional to the cost, which grows with the number of nodes.
            self._due = ended + (ended - began) * _SHARE
        return self._latest

    def _build(self) -> ClusterView:
        current = self._nodes()
        # Rejections of removed nodes are dropped, because a new node can have the same name.
        self._rejections = {
            name: text for name, text in self._rejections.items() if name in current
        }
        nodes = tuple([self._node(name, current[name]) for name in sorted(current, key=_natural)])
        return ClusterView(self._source, nodes, _totals(nodes))

    def _node(self, name: str, node: ObservedNode) -> ClusterNodeView:
        # Ready is the last condition, as in the kubelet's status (``defaultNodeStatusFuncs``).
        *pressures, ready = node.conditions()
        records = node.kubelet.pod_store.records()
        # Records are in order of arrival, so the newest rejection replaces earlier ones.
        for record in records:
            if record.rejected:
                # Stored, because the record is removed when the pod is deleted from the API server.
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
    """Return a sort key that puts ``virtual-9`` before ``virtual-10``."""
    prefix, _, number = name.rpartition("-")
    # The limit avoids converting numbers with thousands of digits.
    if number.isascii() and number.isdecimal() and len(number) < 10:
        return prefix, int(number), name
    return name, -1, name


def _totals(nodes: Iterable[ClusterNodeView]) -> tuple[ResourceTotals, ...]:
    sums: dict[str, list[int]] = {}
    for node in nodes:
        for each in node.resources:
            total = sums.setdefault(each.name, [0, 0, 0])
            total[0] += each.capacity
            total[1] += each.allocatable
            total[2] += each.held
    return tuple([ResourceTotals(name, *sums[name]) for name in sorted(sums)])
