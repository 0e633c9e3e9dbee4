"""The status of a Node object, kept up to date (``pkg/kubelet/kubelet_node_status.go``)."""

from __future__ import annotations

import attrs

from devicemanager.cluster.client.api import node_path
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.nodes.runtimestate import RuntimeState
from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.amounts import digest, node_amounts, node_patch
from devicemanager.core.nodestatus.conditions import NodeCondition, node_conditions
from devicemanager.objects.status.node import node_status_object

__all__ = ["NodeStatusUpdater"]


class NodeStatusUpdater:
    """Of one node. Calls come one at a time, from the thread that has the node's key in the
    lane."""

    __slots__ = (
        "_digest",
        "_gone",
        "_made_of",
        "_node",
        "_state",
        "_was_ready",
        "_written",
        "_written_at",
        "_written_of",
        "boots",
    )

    def __init__(self, node: NodeContext, state: RuntimeState) -> None:
        self._node = node
        self._state = state
        self.boots = 0
        """How often the machine was started anew."""
        self._written: JsonObject = {}
        self._digest = 0
        # What the status is made of: of the one made last, and of the one written last.
        self._made_of = self._written_of = 0
        self._written_at = float("-inf")
        self._was_ready = False
        self._gone: tuple[str, ...] = ()

    def take_over(self, status: JsonObject) -> None:
        """A process before us wrote this one: the devices that it had and we do not stay, at 0
        (``reconcileExtendedResource``, v1.32)."""
        amounts = self._node.options.amounts
        self._gone = tuple(
            name for name in status.get("capacity") or () if "/" in name and name not in amounts
        )
        self._written = status

    def status(self) -> JsonObject:
        """``status`` as of now."""
        node = self._node
        options = node.options
        self._made_of = self._facts()  # before the rest: what changes meanwhile is new again
        amounts = node_amounts(options.amounts, self._with_gone(node.kubelet.node_status()))
        return node_status_object(
            node.name,
            self.conditions(),
            amounts,
            attrs.evolve(options.info, boot_id=str(self.boots or "")),
            now=node.clock.time(),
            before=self._written,
            address=options.address,
            port=options.port,
        )

    def conditions(self) -> tuple[NodeCondition, ...]:
        """Its conditions as of now. From any thread."""
        amounts = self._node.options.amounts
        return node_conditions(amounts, self._state.errors, self._state.pressures)

    def _with_gone(self, devices: NodeStatus) -> NodeStatus:
        gone = {name: 0 for name in self._gone if name not in devices.capacity}
        return NodeStatus({**gone, **devices.capacity}, {**gone, **devices.allocatable})

    def update(self, force: bool = False) -> None:
        """Write the status if it has changed or is due, or by ``force``. Raises ApiError."""
        node = self._node
        due = node.clock.monotonic() - self._written_at >= node.options.report_interval
        must = force or due
        if not must and self._facts() == self._written_of:
            return
        status = self.status()
        if not must and digest(status) == self._digest:
            self._written_of = self._made_of
            return
        path = node_path(node.name, "status")
        node.api.request("PATCH", path, node_patch(status), patch="strategic", user=node.user)
        self.was_written(status)

    def _facts(self) -> int:
        """The same as long as the status would be: every node looks every ten seconds, and this
        costs a fraction of making it."""
        devices = self._node.kubelet.node_status()
        counts = tuple(devices.capacity.items()), tuple(devices.allocatable.items())
        return hash((counts, self._state.errors, self._state.pressures, self.boots))

    def was_written(self, status: JsonObject) -> None:
        """The API has this one."""
        self._digest, self._written_of = digest(status), self._made_of
        self._written_at = self._node.clock.monotonic()
        # All of it that the next one has to know.
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
