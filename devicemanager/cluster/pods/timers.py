"""Containers that end by themselves after a time."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import PodState, Stage
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.core.podstatus.containers import Running

__all__ = ["ContainerTimers"]


class ContainerTimers:
    """Ends the containers of one node's pods on time."""

    __slots__ = ("_loop", "_node", "_statuses")

    def __init__(self, node: NodeContext, loop: SyncLoop, statuses: StatusManager) -> None:
        self._node = node
        self._loop = loop
        self._statuses = statuses

    def start(self, pod: PodState) -> None:
        """Time the end of each running app container. Call it in the sync loop."""
        run_for = pod.behaviour.run_for
        if run_for is None or pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        clock = self._node.clock
        record = self._node.kubelet.pod(pod.uid)
        for container in record.pod.containers:
            state = record.status(container.name).state
            if not isinstance(state, Running) or pod.is_timed(container.name, state.started_at):
                continue
            # The container may have been started by the process before this one.
            ran = 0.0 if state.started_at is None else clock.time() - state.started_at
            over = partial(self._over, pod, container.name, state.started_at)
            self._loop.do_after(max(0.0, run_for - ran), over)

    def _over(self, pod: PodState, container: str, started_at: float | None) -> None:
        if pod.stage is not Stage.RUNNING:
            return
        record = self._node.kubelet.pod(pod.uid)
        state = record.status(record.container(container)[0].name).state
        # A container that was restarted meanwhile has a timer of its own.
        if isinstance(state, Running) and state.started_at == started_at:
            self.exit(pod, container, pod.behaviour.exit_code)

    def exit(self, pod: PodState, container: str, exit_code: int, reason: str = "") -> None:
        """End a container. Raises RequestError if it is not running."""
        with self._statuses.changing(pod):
            self._node.kubelet.exit_container(pod.uid, container, exit_code, reason=reason)
