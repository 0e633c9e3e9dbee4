"""Containers that end by themselves, and pods that are stopped: deleted or evicted."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import ACTIVE, PodManager, PodState, Stage
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.core.podstatus.containers import Running

__all__ = ["PodTermination"]


class PodTermination:
    """Termination of the containers and pods of one node."""

    __slots__ = ("_loop", "_node", "_pods", "_statuses")

    def __init__(
        self, node: NodeContext, loop: SyncLoop, pods: PodManager, statuses: StatusManager
    ) -> None:
        self._node = node
        self._loop = loop
        self._pods = pods
        self._statuses = statuses

    # -- containers --------------------------------------------------------------------

    def start_timers(self, pod: PodState) -> None:
        """Time the end of each running app container. Call it in the sync loop."""
        run_for = pod.behaviour.run_for
        if run_for is None or pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        clock = self._node.clock
        record = self._node.kubelet.pod_store.known(pod.uid)
        for container in record.pod.containers:
            state = record.status(container.name).state
            if not isinstance(state, Running) or pod.is_timed(container.name, state.started_at):
                continue
            # The container may have been started by the process before this one: the time since
            # then counts.
            ran = 0.0 if state.started_at is None else clock.time() - state.started_at
            over = partial(self._over, pod, container.name, state.started_at)
            self._loop.do_after(max(0.0, run_for - ran), over)

    def _over(self, pod: PodState, container: str, started_at: float | None) -> None:
        if pod.stage is not Stage.RUNNING:
            return
        record = self._node.kubelet.pod_store.known(pod.uid)
        state = record.status(record.container(container)[0].name).state
        # A container that was restarted meanwhile has another start time, and another timer.
        if isinstance(state, Running) and state.started_at == started_at:
            self.exit_container(pod, container, pod.behaviour.exit_code)

    def exit_container(
        self, pod: PodState, container: str, exit_code: int, reason: str = ""
    ) -> None:
        """End a container. Raises RequestError if it is not running."""
        with self._statuses.changing(pod):
            self._node.kubelet.exit_container(pod.uid, container, exit_code, reason=reason)

    # -- deletion ----------------------------------------------------------------------

    def delete(self, pod: PodState) -> None:
        """Stop the containers; the status manager then writes the last status and deletes the
        pod. Call it in the sync loop."""
        if pod.stage in ACTIVE:
            # One write for all containers, and only after the stage has changed: it decides the
            # priority.
            with pod.held(self._pods.lock):
                self._stop(pod)
        if self._pods.move(pod, Stage.DELETING):
            self._statuses.changed(pod)

    def _stop(self, pod: PodState) -> None:
        kubelet = self._node.kubelet
        if self._node.options.all_events:
            for name in sorted(kubelet.pod_store.known(pod.uid).running):
                self._node.recorder.record(
                    pod.reference, "Normal", "Killing", f"Stopping container {name}"
                )
        kubelet.stop_pod(pod.uid, self._node.behaviour.exit_code_on_delete)

    # -- eviction ----------------------------------------------------------------------

    def evict_all(self, reason: str, message: str) -> None:
        """Evict all pods."""
        for pod in self._pods.all():
            self.evict(pod, reason, message)

    def evict(self, pod: PodState, reason: str, message: str) -> None:
        """Stop a pod, which becomes Failed with this reason; do nothing if it has ended."""
        if pod.stage in ACTIVE:
            # As the kubelet: the event comes before the containers stop.
            self._node.recorder.record(pod.reference, "Warning", reason, message)
            self._loop.do(partial(self._evict, pod, reason, message))

    def _evict(self, pod: PodState, reason: str, message: str) -> None:
        if pod.stage not in ACTIVE:
            return
        with self._statuses.changing(pod):
            self._node.kubelet.stop_pod(
                pod.uid,
                self._node.behaviour.exit_code_on_delete,
                reason=reason,
                message=message,
                # For the condition DisruptionTarget.
                disruption=message,
            )
            self._pods.move(pod, Stage.FINISHED)
