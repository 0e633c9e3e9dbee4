"""Containers that run for a time and then end."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.state import PodState, Stage
from devicemanager.cluster.pods.statusmanager import StatusManager
from devicemanager.cluster.pods.syncloop import SyncLoop
from devicemanager.core.podstatus.containers import Running

__all__ = ["ContainerTimers"]


class ContainerTimers:
    """Of the pods of one node."""

    __slots__ = ("_loop", "_node", "_statuses")

    def __init__(self, node: NodeContext, loop: SyncLoop, statuses: StatusManager) -> None:
        self._node = node
        self._loop = loop
        self._statuses = statuses

    def start(self, pod: PodState) -> None:
        """See to it that each container that runs ends in time. To be called in the loop."""
        run_for = pod.play.run_for
        if run_for is None or pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        clock = self._node.clock
        record = self._node.kubelet.pod_store.known(pod.uid)
        for container in record.pod.containers:
            state = record.status(container.name).state
            if not isinstance(state, Running) or pod.is_timed(container.name, state.started_at):
                continue
            ran = 0.0 if state.started_at is None else clock.time() - state.started_at
            over = partial(self._over, pod, container.name, state.started_at)
            self._loop.do_after(max(0.0, run_for - ran), over)

    def _over(self, pod: PodState, container: str, started_at: float | None) -> None:
        if pod.stage is not Stage.RUNNING:
            return
        record = self._node.kubelet.pod_store.known(pod.uid)
        state = record.status(record.container(container)[0].name).state
        if isinstance(state, Running) and state.started_at == started_at:
            self.exit(pod, container, pod.play.exit_code)

    def exit(self, pod: PodState, container: str, exit_code: int, reason: str = "") -> None:
        """The container ends by itself. Raises RequestError for one that does not run."""
        with self._statuses.changing(pod):
            self._node.kubelet.exit_container(pod.uid, container, exit_code, reason=reason)
