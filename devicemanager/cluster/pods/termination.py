"""Termination: containers that exit by themselves, and pods that are deleted or evicted."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import ACTIVE, PodManager, PodState, Stage
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.core.podstatus.containers import Running

__all__ = ["PodTermination"]


class PodTermination:
    """Handler of the termination of one node's containers and pods."""

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
        """Set a timer for the exit of each running app container that exits by itself.

        Must be called in the sync loop.
        """
        run_for = pod.behaviour.run_for
        if run_for is None or pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        clock = self._node.clock
        record = self._node.kubelet.pod_store.known(pod.uid)
        for container in record.pod.containers:
            state = record.status(container.name).state
            if not isinstance(state, Running) or pod.is_timed(container.name, state.started_at):
                continue
            # If an earlier process started the container, the time since its start counts.
            ran = 0.0 if state.started_at is None else clock.time() - state.started_at
            over = partial(self._over, pod, container.name, state.started_at)
            self._loop.do_after(max(0.0, run_for - ran), over)

    def _over(self, pod: PodState, container: str, started_at: float | None) -> None:
        if pod.stage is not Stage.RUNNING:
            return
        record = self._node.kubelet.pod_store.known(pod.uid)
        state = record.status(record.container(container)[0].name).state
        # A container that was restarted in the meantime has another start time and another timer.
        if isinstance(state, Running) and state.started_at == started_at:
            self.exit_container(pod, container, pod.behaviour.exit_code)

    def exit_container(
        self, pod: PodState, container: str, exit_code: int, reason: str = ""
    ) -> None:
        """Make a container of a pod exit. Raises RequestError if it is not running."""
        with self._statuses.changing(pod):
            self._node.kubelet.exit_container(pod.uid, container, exit_code, reason=reason)

    # -- deletion ----------------------------------------------------------------------

    def delete(self, pod: PodState, grace: int | None) -> None:
        """Stop the containers of a deleted pod. Must be called in the sync loop.

        The status manager then writes the last status and deletes the pod. ``grace`` is the pod's
        ``deletionGracePeriodSeconds``.
        """
        if pod.stage in ACTIVE:
            # There is one write for all containers. It is queued after the stage has changed,
            # because the stage decides the priority.
            with pod.held(self._pods.lock):
                self._stop(pod)
        if not self._pods.move(pod, Stage.DELETING):
            return
        if grace == 0:
            # kube-apiserver marks the pod, then deletes it. A status that arrives in between makes
            # it delete by name, so it can delete the next pod with this name (Store.Update in
            # registry/generic/registry/store.go). A kubelet takes longer to stop containers.
            self._statuses.changed_later(pod)
        else:
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
        """Evict all pods of the node: the status of each becomes Failed, with ``reason`` and
        ``message``."""
        for pod in self._pods.all():
            self.evict(pod, reason, message)

    def evict(self, pod: PodState, reason: str, message: str) -> None:
        """Stop a pod: its status becomes Failed, with ``reason`` and ``message``.

        Does nothing if the pod has ended.
        """
        if pod.stage in ACTIVE:
            # As in the kubelet, the event is written before the containers stop.
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
                # The message of the condition DisruptionTarget.
                disruption=message,
            )
            self._pods.move(pod, Stage.FINISHED)
