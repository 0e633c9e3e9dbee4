"""The NodeResourceTopology object of a node, for schedulers that consider NUMA nodes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import Final

from devicemanager.client.errors import ApiError, Conflict, Forbidden, NotFound
from devicemanager.client.protocol import Api, JsonObject
from devicemanager.client.rate_limited_warning import Warn
from devicemanager.client.work_queue import Priority, Queue
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.core.status import Health
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import Event, EventKind
from devicemanager.objects.status.node import node_reference
from devicemanager.objects.status.topology import PlacedDevice, topology_object

__all__ = ["NodeTopology"]

_PATH: Final = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_CHANGES: Final = frozenset(
    {EventKind.ALLOCATED, EventKind.TERMINATED, EventKind.FINISHED, EventKind.DEVICES_UPDATED}
)
"""Kinds of kubelet events after which the available devices can differ."""


class NodeTopology:
    """Writer of the NodeResourceTopology object of one node. Thread-safe.

    The object has the number of available devices of each NUMA node.
    """

    def __init__(
        self,
        node: str,
        kubelet: NodeKubelet,
        *,
        api: Api,
        work_queue: Queue,
        uid: Callable[[], str],
        warn: Warn,
    ) -> None:
        """Create the writer of a node's object.

        ``uid`` returns the UID of the Node; an empty text before the Node exists.
        """
        self._node = node
        self._kubelet = kubelet
        self._api = api
        self._work_queue = work_queue
        self._uid = uid
        self._warn = warn
        # Guards the next field.
        self._lock = threading.Lock()
        self._is_queued = False
        # Only work under the key of this object in the work queue uses the fields below. The
        # exception is ``remove``, when the node leaves.
        self._digest = 0
        self._is_over = False

    def on_kubelet_event(self, event: Event) -> None:
        """Queue a write if the event can change the available devices.

        The kubelet can hold locks during the call, so this method does not block.
        """
        if event.kind in _CHANGES:
            self.refresh()

    def refresh(self) -> None:
        """Queue a write of the NodeResourceTopology object; skip it if the object is unchanged."""
        with self._lock:
            # The Node owns the object, so the Node must exist first.
            if self._is_queued or not self._uid():
                return
            self._is_queued = True
        self._work_queue.put(Priority.NODE_STATUS, f"topology/{self._node}", self._sync)

    def _sync(self) -> None:
        with self._lock:
            self._is_queued = False
        if self._is_over:
            return
        made = self._object()
        digest = hash(json.dumps(made))
        if digest == self._digest:
            return
        try:
            self._write(made)
        except (NotFound, Forbidden) as error:
            # Another attempt would also fail until the CustomResourceDefinition is installed.
            self._is_over = True
            self._warn(
                f"node {self._node}: cannot write its NodeResourceTopology object, no further "
                f"attempts: {error.message} (is the CustomResourceDefinition installed?)"
            )
        else:
            self._digest = digest

    def _write(self, made: JsonObject) -> None:
        if not self._digest:
            try:
                self._api.request("POST", _PATH, made)
            except Conflict:
                pass  # an earlier process created the object
            else:
                return
        self._api.request("PATCH", f"{_PATH}/{self._node}", made, patch="merge")

    def _object(self) -> JsonObject:
        settings = self._kubelet.settings
        rows = self._kubelet.inventory()
        nodes = {node for row in rows for node in row.numa_nodes or ()}
        numa = settings.numa or NumaTopology.equidistant(nodes or {0})
        devices = {
            (row.resource, row.id): PlacedDevice(
                row.resource, row.numa_nodes or (), row.health is Health.HEALTHY, row.pod is None
            )
            for row in rows
        }
        owner = node_reference(self._node, self._uid())
        policy, scope = settings.topology_policy, settings.topology_scope
        return topology_object(
            self._node, str(policy), str(scope), numa, devices.values(), owner=owner
        )

    def remove(self) -> None:
        """Delete the NodeResourceTopology object if this process wrote it. Blocks."""
        self._is_over = True
        if self._digest:
            with contextlib.suppress(ApiError):
                self._api.request("DELETE", f"{_PATH}/{self._node}")
