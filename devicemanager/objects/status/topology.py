"""NodeResourceTopology objects (``topology.node.k8s.io/v1alpha2``) for NUMA-aware schedulers.

An object describes one node. For each NUMA node and resource, it has the number of all devices, of
healthy devices, and of free healthy devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from devicemanager.core.topology import NumaTopology

__all__ = ["PlacedDevice", "topology_object"]

Object = dict[str, Any]

_POLICIES = {
    ("none", "container"): "None",
    ("none", "pod"): "None",
    ("best-effort", "container"): "BestEffortContainerLevel",
    ("best-effort", "pod"): "BestEffortPodLevel",
    ("restricted", "container"): "RestrictedContainerLevel",
    ("restricted", "pod"): "RestrictedPodLevel",
    ("single-numa-node", "container"): "SingleNUMANodeContainerLevel",
    ("single-numa-node", "pod"): "SingleNUMANodePodLevel",
}
"""Value of ``topologyPolicies`` by policy and scope. Older schedulers read this field."""


@attrs.frozen
class PlacedDevice:
    """Device with the values that a scheduler needs: its resource, its NUMA nodes, whether it is
    healthy, and whether it is free."""

    resource: str
    nodes: tuple[int, ...]
    is_healthy: bool
    is_free: bool


def topology_object(
    name: str,
    policy: str,
    scope: str,
    numa: NumaTopology,
    devices: Iterable[PlacedDevice],
    *,
    owner: Mapping[str, Any] | None = None,
) -> Object:
    """Return the NodeResourceTopology object of one node, with device counts by NUMA node.

    Devices without a NUMA node are omitted. A device on several NUMA nodes counts for each of
    them, as in the objects of topology exporters.
    """
    # By NUMA node and resource: capacity, allocatable (healthy), available (healthy and free).
    counts: dict[int, dict[str, list[int]]] = {node: {} for node in numa.nodes}
    for device in devices:
        for node in device.nodes:
            # A plugin can report a NUMA node that the machine does not have.
            if node in counts:
                found = counts[node].setdefault(device.resource, [0, 0, 0])
                found[0] += 1
                found[1] += device.is_healthy
                found[2] += device.is_healthy and device.is_free
    metadata: Object = {"name": name}
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": metadata,
        "topologyPolicies": [_POLICIES[policy, scope]],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [_zone(node, numa, counts[node]) for node in numa.nodes],
    }


def _zone(node: int, numa: NumaTopology, resources: Mapping[str, list[int]]) -> Object:
    return {
        "name": f"node-{node}",
        "type": "Node",
        "costs": [
            {"name": f"node-{other}", "value": numa.distance(node, other)} for other in numa.nodes
        ],
        "resources": [
            {
                "name": resource,
                "capacity": str(capacity),
                "allocatable": str(allocatable),
                "available": str(available),
            }
            for resource, (capacity, allocatable, available) in sorted(resources.items())
        ],
    }
