"""Registration and status of a Node (``pkg/kubelet/kubelet_node_status.go``, v1.32).

Every node checks its status every ten seconds, and most checks find no change. They are made
cheap in two steps: first a hash of the inputs (``_inputs``), then, if it differs, a digest of
the whole status without heartbeat times. Only then is a request sent.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from devicemanager.cluster.client.api import node_path
from devicemanager.cluster.client.errors import ClusterError, Conflict
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import defect
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.nodes.runtime_state import RuntimeState
from devicemanager.cluster.options import SHARD_LABEL, VIRTUAL_LABEL
from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.amounts import digest, node_amounts, node_patch
from devicemanager.core.nodestatus.conditions import NodeCondition, node_conditions
from devicemanager.objects.status.node import default_labels, node_object, node_status_object

__all__ = ["NodeStatusUpdater", "register"]


class NodeStatusUpdater:
    """Writer of the status of one Node.

    Calls come one at a time, from the work queue's thread for the node's key. Only
    ``conditions`` is thread-safe.
    """

    __slots__ = (
        "_digest",
        "_inputs_of_last",
        "_inputs_of_written",
        "_node",
        "_removed_resources",
        "_state",
        "_was_ready",
        "_written",
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

    def take_over(self, status: JsonObject) -> None:
        """Continue from the status that a process before this one wrote.

        Its extended resources that this kubelet does not have stay, with capacity 0
        (``reconcileExtendedResource``).
        """
        amounts = self._node.options.amounts
        self._removed_resources = tuple(
            name for name in status.get("capacity") or () if "/" in name and name not in amounts
        )
        self._written = status

    def status(self) -> JsonObject:
        """Return the current ``status``."""
        node = self._node
        options = node.options
        # Before the rest: what changes from now on must count as a change next time.
        self._inputs_of_last = self._inputs()
        # A resource is never removed from a Node, only set to 0, as in the kubelet.
        devices = self._with_removed(node.kubelet.node_status())
        return node_status_object(
            node.name,
            self.conditions(),
            node_amounts(options.amounts, devices),
            attrs.evolve(options.info, boot_id=str(self.boots or "")),
            now=node.clock.time(),
            before=self._written,
            address=options.address,
            port=options.port,
        )

    def conditions(self) -> tuple[NodeCondition, ...]:
        """Return the current conditions. Thread-safe."""
        amounts = self._node.options.amounts
        return node_conditions(amounts, self._state.errors, self._state.pressures)

    def _with_removed(self, devices: NodeStatus) -> NodeStatus:
        zero = {name: 0 for name in self._removed_resources if name not in devices.capacity}
        return NodeStatus({**zero, **devices.capacity}, {**zero, **devices.allocatable})

    def update(self, force: bool = False) -> None:
        """Write the status if it has changed, if it is due, or if ``force``. Raises ApiError."""
        node = self._node
        # ``nodeStatusReportFrequency`` of the kubelet.
        due = node.clock.monotonic() - self._written_at >= node.options.report_interval
        must_write = force or due
        if not must_write and self._inputs() == self._inputs_of_written:
            return
        status = self.status()
        if not must_write and digest(status) == self._digest:
            self._inputs_of_written = self._inputs_of_last
            return
        path = node_path(node.name, "status")
        node.api.request("PATCH", path, node_patch(status), patch="strategic", user=node.user)
        self.was_written(status)

    def _inputs(self) -> int:
        """Return a hash of everything that the status is made of, except times."""
        devices = self._node.kubelet.node_status()
        counts = tuple(devices.capacity.items()), tuple(devices.allocatable.items())
        return hash((counts, self._state.errors, self._state.pressures, self.boots))

    def was_written(self, status: JsonObject) -> None:
        """Store what later updates need of a status that was written."""
        self._digest, self._inputs_of_written = digest(status), self._inputs_of_last
        self._written_at = self._node.clock.monotonic()
        # Transition times only: a whole status per node would be the largest part of its memory.
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


# -- registration ----------------------------------------------------------------------


def register(
    node: NodeContext, statuses: NodeStatusUpdater, update: Callable[[], None]
) -> JsonObject:
    """Create the Node with its status and return it (``registerWithAPIServer``).

    If a process before this one created it, take it over and call ``update`` to write its
    status. Raises ApiError, and ClusterError for a Node that devicemanager did not create.
    """
    # With the status, as kubelets do: the node is Ready from its first moment.
    status = statuses.status()
    options = node.options
    body = node_object(
        node.name,
        status,
        labels=_labels(node),
        annotations=options.annotations,
        taints=options.taints,
    )
    try:
        found = _checked(node.api.request("POST", "/api/v1/nodes", body, user=node.user))
    except Conflict:
        found = _take_over(node)
        statuses.take_over(found.get("status") or {})
        update()
    else:
        statuses.was_written(status)
    return found


def _checked(response: JsonObject) -> JsonObject:
    if found := defect(response):
        raise ClusterError(f"the API server's response is not a Node: {found}")
    return response


def _labels(node: NodeContext) -> dict[str, str]:
    options = node.options
    ours = {VIRTUAL_LABEL: "true", SHARD_LABEL: options.shard}
    return {**default_labels(node.name, options.info), **ours, **options.labels}


def _take_over(node: NodeContext) -> JsonObject:
    """Return the existing Node, after setting its labels (``updateDefaultLabels``)."""
    path = node_path(node.name)
    found = _checked(node.api.request("GET", path, user=node.user))
    labels = found["metadata"].get("labels") or {}
    # The preflight checks this, too, but the Node may have been created after it.
    if VIRTUAL_LABEL not in labels:
        raise ClusterError(
            f"node {node.name} exists without the label {VIRTUAL_LABEL}, so devicemanager did not "
            "create it: use another name"
        )
    wanted = _labels(node)
    if any(labels.get(name) != value for name, value in wanted.items()):
        body = {"metadata": {"labels": wanted}}
        node.api.request("PATCH", path, body, patch="merge", user=node.user)
    return found
