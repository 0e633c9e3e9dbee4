"""Count the devices of each node and the further pods that fit on it, and find its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from devicemanager.core.ids import ResourceName
from devicemanager.core.printable import counted
from devicemanager.fleet.kubelets import KubeletOfNode
from devicemanager.fleet.model import Fleet, FleetNode
from devicemanager.fleet.parallel import in_processes
from devicemanager.fleet.snapshots import device_pods, devices_of, requested, snapshot_of
from devicemanager.snapshot import Severity, findings
from devicemanager.snapshot.node import Node

__all__ = ["SIZES", "NodeFinding", "NodeUsage", "Usage", "usage"]

SIZES = (1, 2, 4, 8)
"""Pod sizes for ``Usage.fits``. The size of a pod is the number of devices that it requests."""
_ALIGNING = ("restricted", "single-numa-node")
"""Policies of the Topology Manager that reject pods."""
# Reasons of pods whose devices the kubelet could not allocate or could not align.
_ADMISSION = ("UnexpectedAdmissionError", "TopologyAffinityError")


@attrs.frozen
class Usage:
    """Numbers of devices of one resource on one node, and of further pods that fit."""

    resource: str
    capacity: int
    healthy: int
    allocated: int
    free: int
    """Number of healthy devices that are not allocated."""
    fits: tuple[int, ...]
    """Numbers of further pods that the kubelet would admit: one number for each pod size in
    ``SIZES``. The size of a pod is the number of devices that it requests."""
    aligned: bool = False
    """True if ``fits`` takes NUMA alignment into account. This is the case if the node has a
    snapshot and its topology policy rejects pods that cannot be aligned."""

    @property
    def lost_to_alignment(self) -> tuple[int, ...]:
        """How many more pods than ``fits`` would fit without NUMA alignment: one number for each
        pod size (number of devices) in ``SIZES``."""
        return tuple(self.free // size - fit for size, fit in zip(SIZES, self.fits, strict=True))


@attrs.frozen
class NodeFinding:
    """A problem on a node."""

    severity: Severity
    kind: str
    """Kind of the problem, such as ``devices-unhealthy``."""
    text: str


@attrs.frozen
class NodeUsage:
    """Devices and problems of one node, as ``fleet show`` reports them."""

    name: str
    version: str
    """Version of the kubelet; empty if it is unknown."""
    has_snapshot: bool
    resources: tuple[Usage, ...]
    findings: tuple[NodeFinding, ...]


def usage(fleet: Fleet, processes: int | None = None) -> Iterable[NodeUsage]:
    """Count devices and find problems on each node. The results are sorted by node name.

    ``processes`` is the number of parallel processes; None means one per CPU. Raises FleetError for
    a node whose data cannot be used, and SnapshotError for an invalid snapshot.
    """
    return in_processes(usage_of, fleet.nodes, processes)


def usage_of(node: FleetNode) -> NodeUsage:
    """Count the devices of one node, and find the problems of the node."""
    if node.archive is None:
        used, found = list(_from_api(node)), []
    else:
        facts = Node(snapshot_of(node))
        used = list(_from_snapshot(KubeletOfNode.of(node, facts)))
        found = [NodeFinding(one.severity, one.kind, one.message) for one in findings(facts)]
    version = "" if node.version is None else str(node.version)
    every = tuple(sorted([*_problems(node), *found], key=_rank))
    return NodeUsage(node.name, version, node.archive is not None, tuple(used), every)


def _rank(finding: NodeFinding) -> int:
    return list(Severity).index(finding.severity)


def _from_api(node: FleetNode) -> Iterator[Usage]:
    # The kubelet reports healthy devices as allocatable, and all devices as capacity.
    healthy = devices_of(node, "allocatable")
    allocated = requested(device_pods(node))
    for name, capacity in sorted(devices_of(node, "capacity").items()):
        used = allocated.get(ResourceName(name), 0)
        # Devices in use can be unhealthy, so the difference can be negative.
        free = max(healthy.get(name, 0) - used, 0)
        fits = tuple(free // size for size in SIZES)
        yield Usage(name, capacity, healthy.get(name, 0), used, free, fits)


def _from_snapshot(kubelet: KubeletOfNode) -> Iterator[Usage]:
    allocated: dict[str, set[str]] = {}
    for entry in kubelet.node.saved.entries or ():
        held = allocated.setdefault(entry.resource_name, set())
        # Each container has an entry of its own. Go writes null for an empty list.
        held.update(*((ids or ()) for ids in (entry.device_ids or {}).values()))
    is_aligned = kubelet.node.aligned.policy in _ALIGNING
    for resource, devices in sorted(kubelet.node.inventory().items()):
        used = allocated.get(resource, set())
        healthy = [each for each in devices.values() if each.is_healthy]
        free = [each for each in healthy if each.id not in used]
        # Without alignment, a division gives the same number without admitting any pod.
        fits = tuple(
            kubelet.room(resource, size, len(free) // size) if is_aligned else len(free) // size
            for size in SIZES
        )
        yield Usage(resource, len(devices), len(healthy), len(used), len(free), fits, is_aligned)


def _problems(node: FleetNode) -> Iterator[NodeFinding]:
    conditions = {each.get("type"): each for each in node.object["status"].get("conditions") or ()}
    ready = conditions.get("Ready", {})
    # The status can also be Unknown: the node controller sets it when a kubelet is silent.
    if ready.get("status", "True") != "True":
        text = f"the node is not ready: {ready.get('reason') or ready['status']}"
        yield NodeFinding(Severity.ERROR, "not-ready", text)
    rejected = Counter(pod["status"].get("reason") for pod in node.pods)
    for reason in _ADMISSION:
        if count := rejected[reason]:
            text = f"the kubelet rejected {count} pod{'s' if count > 1 else ''}: {reason}"
            yield NodeFinding(Severity.ERROR, "pods-rejected", text)
    healthy = devices_of(node, "allocatable")
    for name, capacity in devices_of(node, "capacity").items():
        if (missing := capacity - healthy.get(name, 0)) > 0:
            text = f"unhealthy devices of {name}: {missing} of {capacity}"
            yield NodeFinding(Severity.WARNING, "devices-unhealthy", text)
    for name, count in requested(device_pods(node)).items():
        # Devices can become unhealthy while pods use them, and running pods keep their devices.
        if count > healthy.get(name, 0):
            devices = counted(count, "device")
            text = f"pods request {devices} of {name}; healthy: {healthy.get(name, 0)}"
            yield NodeFinding(Severity.ERROR, "devices-missing", text)
