"""Pods that the kubelet ends: because they are deleted, or because the node needs them gone."""

from __future__ import annotations

from functools import partial

from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.manager import PodManager
from devicemanager.cluster.pods.state import ACTIVE, PodState, Stage
from devicemanager.cluster.pods.statusmanager import StatusManager
from devicemanager.cluster.pods.syncloop import SyncLoop

__all__ = ["PodTermination"]


class PodTermination:
    """Of the pods of one node."""

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
        """Its containers stop, its last status is written, then it is deleted. To be called in
        the loop."""
        if pod.stage in ACTIVE:
            with pod.held(self._pods.lock):
                self._stop(pod)
        if self._pods.move(pod, Stage.DELETING):
            self._statuses.changed(pod)

    def _stop(self, pod: PodState) -> None:
        kubelet = self._node.kubelet
        if self._node.options.all_events:
            for name in sorted(kubelet.pod_store.known(pod.uid).running):
                self._node.recorder.record(
                    pod.subject, "Normal", "Killing", f"Stopping container {name}"
                )
        kubelet.stop_pod(pod.uid, self._node.facts.exit_code_on_delete)

    # -- eviction ----------------------------------------------------------------------

    def evict_all(self, reason: str, message: str) -> None:
        """The kubelet ends every pod, each Failed for this reason."""
        for pod in self._pods.all():
            self.evict(pod, reason, message)

    def evict(self, pod: PodState, reason: str, message: str) -> None:
        """The kubelet ends one pod, unless it has ended."""
        if pod.stage in ACTIVE:
            self._node.recorder.record(pod.subject, "Warning", reason, message)
            self._loop.do(partial(self._evict, pod, reason, message))

    def _evict(self, pod: PodState, reason: str, message: str) -> None:
        if pod.stage not in ACTIVE:
            return
        with self._statuses.changing(pod):
            self._node.kubelet.stop_pod(
                pod.uid,
                self._node.facts.exit_code_on_delete,
                reason=reason,
                message=message,
                disruption=message,
            )
            self._pods.move(pod, Stage.FINISHED)
