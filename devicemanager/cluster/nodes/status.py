"""Registration and status of a Node (``pkg/kubelet/kubelet_node_status.go``, v1.32).

Every node checks its status every ten seconds, and most checks find no change. To be cheap, a check
has up to three steps. First it compares a hash of the inputs (``_inputs``). If the hash differs, it
computes the whole status and compares a digest without heartbeat times. If the digest differs, it
sends a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from devicemanager.client.api import node_path
from devicemanager.client.errors import ClusterError, Conflict
from devicemanager.client.protocol import JsonObject
from devicemanager.client.validation import defect, version_number
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.nodes.runtime_state import RuntimeState
from devicemanager.cluster.options import SHARD_LABEL, VIRTUAL_LABEL
from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.amounts import digest, node_amounts, node_patch
from devicemanager.core.nodestatus.conditions import NodeCondition, node_conditions
from devicemanager.objects.status.node import (
    NodeSystemInfo,
    default_labels,
    node_object,
    node_status_object,
)

__all__ = ["NodeStatusUpdater", "register"]


class NodeStatusUpdater:
    """Writer of the status of one Node object.

    ``update`` runs in the work queue, which runs the tasks of one node one at a time. Other threads
    may call ``compare`` and ``conditions``.
    """

    __slots__ = (
        "_digest",
        "_inputs_of_last",
        "_inputs_of_written",
        "_node",
        "_removed_resources",
        "_seen",
        "_state",
        "_was_ready",
        "_written",
        "_written_amounts",
        "_written_at",
        "boots",
    )

    def __init__(self, node: NodeContext, state: RuntimeState) -> None:
        self._node = node
        self._state = state
        self.boots = 0
        """Number of reboots."""
        self._written: JsonObject = {}
        self._digest = 0
        self._inputs_of_last = self._inputs_of_written = 0
        self._written_at = float("-inf")
        self._was_ready = False
        self._removed_resources: tuple[str, ...] = ()
        self._written_amounts = self._seen = (0, 0)
        """Version of the Node, and hash of its capacity and allocatable. ``_written_amounts`` is
        from the response to the last write, ``_seen`` from the last event."""

    def take_over(self, status: JsonObject) -> None:
        """Continue with a status that an earlier process wrote.

        ``status`` can have extended resources that this kubelet does not have. In later statuses,
        their capacity is 0 (``reconcileExtendedResource``).
        """
        amounts = self._node.options.amounts
        self._removed_resources = tuple(
            name for name in status.get("capacity") or () if "/" in name and name not in amounts
        )
        self._written = status

    def status(self) -> JsonObject:
        """Return the ``status`` of the Node, computed from its devices, errors and pressures."""
        node = self._node
        options = node.options
        # Read first, so that later changes of the inputs count as a change in the next check.
        self._inputs_of_last = self._inputs()
        # As in the kubelet, a resource is never removed from a Node, but set to 0.
        devices = self._with_removed(node.kubelet.node_status())
        behaviour = node.kubelet.settings.behaviour
        return node_status_object(
            node.name,
            self.conditions(),
            node_amounts(options.amounts, devices),
            self._info(),
            now=node.clock.time(),
            before=self._written,
            address=options.address,
            port=options.port,
            # The names are those of their feature gates.
            features=[
                name for name in behaviour.declared_features if behaviour.gates.get(name, True)
            ],
        )

    def _info(self) -> NodeSystemInfo:
        info = self._node.options.info
        version = self._node.kubelet.settings.behaviour.version
        # The suffix marks virtual nodes in `kubectl get nodes`. The version is still valid.
        default = f"{version.release}+devicemanager"
        return attrs.evolve(
            info, boot_id=str(self.boots or ""), kubelet_version=info.kubelet_version or default
        )

    def conditions(self) -> tuple[NodeCondition, ...]:
        """Return the current conditions of the node. Thread-safe."""
        amounts = self._node.options.amounts
        return node_conditions(amounts, self._state.errors, self._state.pressures)

    def _with_removed(self, devices: NodeStatus) -> NodeStatus:
        zero = {name: 0 for name in self._removed_resources if name not in devices.capacity}
        return NodeStatus({**zero, **devices.capacity}, {**zero, **devices.allocatable})

    def update(self, force: bool = False) -> None:
        """Write the status if it has changed, if the report interval is over, or with ``force``.

        Raises ApiError if the request fails.
        """
        node = self._node
        # Like ``nodeStatusReportFrequency`` of the kubelet.
        due = node.clock.monotonic() - self._written_at >= node.options.report_interval
        must_write = force or due or self._is_changed()
        if not must_write and self._inputs() == self._inputs_of_written:
            return
        status = self.status()
        if not must_write and digest(status) == self._digest:
            self._inputs_of_written = self._inputs_of_last
            return
        path = node_path(node.name, "status")
        found = node.api.request(
            "PATCH", path, node_patch(status), patch="strategic", user=node.user
        )
        self.was_written(status, found)

    def _inputs(self) -> int:
        """Return a hash of all values from which the status is computed, except times."""
        devices = self._node.kubelet.node_status()
        counts = tuple(devices.capacity.items()), tuple(devices.allocatable.items())
        version = self._node.kubelet.settings.kubelet_version
        return hash((counts, self._state.errors, self._state.pressures, self.boots, version))

    def compare(self, node: JsonObject) -> None:
        """Compare capacity and allocatable of a Node with the values that were written last.

        If another client has changed them, the next ``update`` writes the status again.
        """
        self._seen = _amounts(node)

    def _is_changed(self) -> bool:
        """True if another client has changed capacity or allocatable after the last write."""
        # Events come on another thread, so one that is newer than a write can come before its
        # response.
        (written, ours), (seen, theirs) = self._written_amounts, self._seen
        return seen >= written and theirs != ours

    def was_written(self, status: JsonObject, node: JsonObject) -> None:
        """Record that ``status`` was written, and keep only the values that later updates need.

        ``node`` is the Node object that the server stored.
        """
        self._written_amounts = _amounts(node)
        self._digest, self._inputs_of_written = digest(status), self._inputs_of_last
        self._written_at = self._node.clock.monotonic()
        # Only transition times are stored, because a whole status would be the largest part of a
        # node's memory.
        self._written = {
            "conditions": [
                {name: each[name] for name in ("type", "status", "lastTransitionTime")}
                for each in status["conditions"]
            ]
        }
        is_ready = status["conditions"][-1]["status"] == "True"
        if is_ready != self._was_ready:
            self._was_ready = is_ready
            reason = "NodeReady" if is_ready else "NodeNotReady"
            text = f"Node {self._node.name} status is now: {reason}"
            self._node.record("Normal", reason, text)


def _amounts(node: JsonObject) -> tuple[int, int]:
    """Return the version of a Node object, and a hash of its capacity and allocatable."""
    status = node.get("status") or {}
    amounts = (status.get(each) or {} for each in ("capacity", "allocatable"))
    found = hash(tuple(tuple(sorted(each.items())) for each in amounts))
    return version_number(node["metadata"]), found


# -- registration ----------------------------------------------------------------------


def register(
    node: NodeContext, statuses: NodeStatusUpdater, update: Callable[[JsonObject], None]
) -> tuple[JsonObject, bool]:
    """Create the Node object with its status, or take over an existing Node object
    (``registerWithAPIServer``).

    Return the Node object and a bool: False if an earlier process of devicemanager created the
    object, True if it is new or adopted (``NodeOptions.adopted``).

    ``update`` is called with an existing Node object, and must write its status.

    Raises ApiError if a request fails. Raises ClusterError if another program created the Node
    object, and the node is not adopted.
    """
    # As kubelets do, the Node is created with its status, so that it is Ready from the start.
    status = statuses.status()
    options = node.options
    body = node_object(
        node.name,
        status,
        labels=_labels(node),
        annotations=_annotations(node),
        taints=options.taints,
    )
    if options.adopted:
        found = _take_over(node)
        update(found)
        return found, True
    try:
        found = _checked(node.api.request("POST", "/api/v1/nodes", body, user=node.user))
    except Conflict:
        found = _take_over(node)
        statuses.take_over(found.get("status") or {})
        update(found)
        return found, False
    statuses.was_written(status, found)
    return found, True


def _checked(response: JsonObject) -> JsonObject:
    if found := defect(response):
        raise ClusterError(f"the API server's response is not a valid Node object: {found}")
    return response


def _labels(node: NodeContext) -> dict[str, str]:
    options = node.options
    ours = {VIRTUAL_LABEL: "true", SHARD_LABEL: options.shard}
    return {**default_labels(node.name, options.info), **ours, **options.labels}


_METRICS_PATH: Final = "metrics.k8s.io/resource-metrics-path"
"""Annotation with the path at which metrics-server gets the metrics of a node."""


def _annotations(node: NodeContext) -> dict[str, str]:
    options = node.options
    # All nodes share one HTTP server, so the path contains the name of the node.
    path = f"/nodes/{node.name}/metrics/resource"
    return {**({_METRICS_PATH: path} if options.port else {}), **options.annotations}


def _take_over(node: NodeContext) -> JsonObject:
    """Set the labels and annotations of an existing Node. Return the Node as it was before this
    change (``updateDefaultLabels``).

    Raises ClusterError if devicemanager did not create the Node.
    """
    path = node_path(node.name)
    found = _checked(node.api.request("GET", path, user=node.user))
    labels = found["metadata"].get("labels") or {}
    # The preflight also checks this, but the Node can have been created since then.
    if VIRTUAL_LABEL not in labels and not node.options.adopted:
        raise ClusterError(
            f"node {node.name} exists without the label {VIRTUAL_LABEL}, so devicemanager did not "
            "create it: use another name"
        )
    wanted, notes = _labels(node), _annotations(node)
    annotations = found["metadata"].get("annotations") or {}
    if not (wanted.items() <= labels.items() and notes.items() <= annotations.items()):
        body = {"metadata": {"labels": wanted, "annotations": notes}}
        node.api.request("PATCH", path, body, patch="merge", user=node.user)
    return found
