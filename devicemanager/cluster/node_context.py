"""Settings and services that the components of a node share."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import attrs

from devicemanager.client.protocol import Api, JsonObject
from devicemanager.client.rate_limited_warning import Warn
from devicemanager.client.recorder import EventRecorder, EventType, ObjectReference
from devicemanager.client.work_queue import PausableQueue, WorkQueue
from devicemanager.cluster.addresses import PodAddresses
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.resource_group import ResourceGroup
from devicemanager.io.clock import Clock

__all__ = ["NodeContext", "ServerFeatures"]


# All nodes of a cluster share one object, so that there is only one probe and one warning.
class ServerFeatures:
    """Features of the API server. One node detects them, and all nodes use the result."""

    def __init__(self) -> None:
        self.stores_resource_health: bool | None = None
        """True if the server stores ``allocatedResourcesStatus``; None if not detected yet."""
        self.resource_group = ResourceGroup()
        """API group of ResourceSlices and ResourceClaims."""
        self._warned: set[str] = set()

    def warn_once(self, warn: Warn, text: str) -> None:
        """Show a warning that concerns all nodes, unless the same text was already shown."""
        # Without a lock: two nodes can at most show the same warning twice.
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


class Placement:
    """Current labels and taints of the Node object. Users can change them at any time."""

    __slots__ = ("labels", "taints")

    def __init__(self) -> None:
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Mapping[str, str], ...] = ()
        """Taints with the effect NoExecute: the kubelet reads no others."""

    def update(self, node: JsonObject) -> None:
        """Store the labels and taints of a Node object."""
        labels = node["metadata"].get("labels") or {}
        if labels != self.labels:
            # Interned, because the labels of most nodes are equal.
            self.labels = {sys.intern(key): sys.intern(str(labels[key])) for key in labels}
        taints = (node.get("spec") or {}).get("taints") or ()
        self.taints = tuple(each for each in taints if each.get("effect") == "NoExecute")


@attrs.frozen(eq=False)
class NodeContext:
    """Name, kubelet, settings and services of one node."""

    name: str
    kubelet: NodeKubelet
    options: NodeOptions
    behaviour: ContainerBehaviour
    api: Api
    work_queue: WorkQueue
    writes: PausableQueue
    """Queue of the node's writes to the API server. It passes each write to ``work_queue``. While
    the node simulates a loss of its network (``ClusterNode.silent``), the queue keeps the writes.
    """
    clock: Clock
    recorder: EventRecorder
    features: ServerFeatures
    addresses: PodAddresses
    warn: Warn
    placement: Placement = attrs.field(factory=Placement)

    @property
    def user(self) -> str | None:
        """Name of the node to impersonate in requests; None for no impersonation."""
        return self.name if self.options.as_nodes else None

    def record(self, kind: EventType, reason: str, message: str) -> None:
        """Write a Kubernetes event about the node."""
        # The kubelet uses the node's name as UID in events about the node.
        self.recorder.record(ObjectReference("Node", self.name, self.name), kind, reason, message)

    def say(self, text: str) -> None:
        """Show a warning about this node to the user."""
        self.warn(f"node {self.name}: {text}")
