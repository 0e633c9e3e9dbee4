"""Pods that the kubelet stops because they are deleted or evicted."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import ACTIVE, PodManager, PodState, Stage
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop

__all__ = ["PodTermination"]


class PodTermination:
    """Stops the pods of one node."""

    __slots__ = ("_loop", "_node", "_pods", "_statuses")

    def __init__(
        self, node: NodeContext, loop: SyncLoop, pods: PodManager, statuses: StatusManager
    ) -> None:
        self._node = node
        self._loop = loop
        self._pods = pods
        self._statuses = statuses

    # -- deletion ----------------------------------------------------------------------

    def delete(self, pod: PodState) -> None:
        """Stop the containers; the status manager then writes the last status and deletes the
        pod. Call it in the sync loop."""
        if pod.stage in ACTIVE:
            with pod.held(self._pods.lock):
                self._stop(pod)
        if self._pods.move(pod, Stage.DELETING):
            self._statuses.changed(pod)

    def _stop(self, pod: PodState) -> None:
        kubelet = self._node.kubelet
        if self._node.options.all_events:
            for name in sorted(kubelet.pod(pod.uid).running):
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
                disruption=message,
            )
            self._pods.move(pod, Stage.FINISHED)
