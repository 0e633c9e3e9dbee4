"""The pods of one node: those of the API, and the kubelet's records of them (the kubelet's
pod manager, ``pkg/kubelet/pod/pod_manager.go``)."""

from __future__ import annotations

import threading
from typing import Final

from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.state import PodState, Stage
from devicemanager.core.errors import RequestError

__all__ = ["PodManager"]

_LAST: Final = (Stage.DELETING, Stage.DELETED)


class PodManager:
    """Pods by UID. May be used from any thread."""

    __slots__ = ("_node", "_pods", "lock")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self.lock = threading.Lock()
        """Guards who is here and what ``PodState`` says is guarded; nothing is called under it
        but what takes no lock."""
        self._pods: dict[str, PodState] = {}

    def get(self, uid: str) -> PodState | None:
        """A pod that the API has on this node, as far as we know."""
        return self._pods.get(uid)

    def known(self, uid: str) -> PodState:
        """Raises RequestError if there is none with this UID."""
        pod = self._pods.get(uid)
        if pod is None:
            raise RequestError(f"node {self._node.name} has no pod with the UID {uid!r}")
        return pod

    def all(self) -> tuple[PodState, ...]:
        """Every pod that the API has on this node, as far as we know."""
        with self.lock:
            return tuple(self._pods.values())

    def add(self, pod: PodState) -> None:
        """The API has it."""
        with self.lock:
            self._pods[pod.uid] = pod

    def remove(self, uid: str) -> PodState | None:
        """The API has it no more; None if it was not here."""
        with self.lock:
            return self._pods.pop(uid, None)

    def move(self, pod: PodState, to: Stage, *only_from: Stage) -> bool:
        """The pod comes to another stage, if it may. From the last two there is no way back."""
        with self.lock:
            may = pod.stage in only_from if only_from else pod.stage not in _LAST
            if may or to is Stage.DELETED:
                pod.stage = to
                return True
            return False

    def free(self, pod: PodState) -> None:
        """The kubelet forgets the pod: its devices are free."""
        if self._node.kubelet.has_pod(pod.uid):
            self._node.kubelet.terminate(pod.uid)
