"""What is written to the API about a pod: its status, and in the end its deletion."""

from __future__ import annotations

import json

from devicemanager.cluster.client.api import pod_path
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.state import PodState, Stage, made_up_ip
from devicemanager.core.ids import PodUid
from devicemanager.core.podstatus.merge import status_patch
from devicemanager.core.podstatus.status import rejected_status
from devicemanager.objects.status.podstatus import allocated_devices, status_object

__all__ = ["PodWriter"]


class PodWriter:
    """Of the pods of one node. Calls block; those about one pod come one after another."""

    __slots__ = ("_node",)

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def write(self, pod: PodState, again: bool) -> None:
        """Patch its status, if it is another one than was written last, or ``again``. Raises
        ApiError, and RequestError if the kubelet cannot say.
        """
        ours = self.status(pod)
        if ours is None:
            return
        digest = _digest(ours)
        if digest == pod.digest and not again:
            return
        path = pod_path(pod.namespace, pod.name, "status")
        body = {"metadata": {"uid": pod.uid}, **status_patch(ours)}
        node = self._node
        answer = node.api.request("PATCH", path, body, patch="strategic", user=node.user)
        if self._drops_health(ours, answer):
            self._without_health(ours)
            digest = _digest(ours)
        pod.version, pod.digest = answer["metadata"]["resourceVersion"], digest

    def status(self, pod: PodState) -> JsonObject | None:
        """``status`` as we write it; None if that is nothing of ours."""
        node = self._node
        now = node.clock.time()
        if pod.rejection is not None:
            status = rejected_status(pod.rejection)
            made = status_object(PodUid(pod.uid), status, now=now)
            if pod.never_ran:
                del made["message"]
            return made
        if not node.kubelet.has_pod(pod.uid):
            return None  # it has ended before we came
        status = node.kubelet.pod_status(pod.uid, pod.gates)
        host = node.options.address
        made = status_object(
            PodUid(pod.uid),
            status,
            now=now,
            since={"PodScheduled": pod.scheduled},
            host_ip=host,
            pod_ip="" if pod.stage is Stage.PENDING else _pod_ip(pod, host),
        )
        self._without_health(made)
        return made

    def _without_health(self, ours: JsonObject) -> None:
        """Say nothing of what the API server does not keep."""
        if self._node.shared.keeps_health is False:
            for each in ours.get("containerStatuses", ()):
                each.pop("allocatedResourcesStatus", None)

    def _drops_health(self, ours: JsonObject, answer: JsonObject) -> bool:
        """Whether the API server was found not to keep the health of devices: it drops the
        field silently without the gate ResourceHealthStatus."""
        shared = self._node.shared
        if shared.keeps_health:
            return False
        if shared.keeps_health is None and allocated_devices(ours):
            shared.keeps_health = bool(allocated_devices(answer.get("status") or {}))
            if not shared.keeps_health:
                self._node.warn(
                    "the API server does not keep allocatedResourcesStatus: the health of "
                    "devices is not shown in pods (feature gate ResourceHealthStatus)"
                )
        return shared.keeps_health is False

    def delete(self, pod: PodState) -> None:
        """Delete it for good. Raises ApiError."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        path = pod_path(pod.namespace, pod.name)
        self._node.api.request("DELETE", path, body, user=self._node.user)


def _digest(status: JsonObject) -> int:
    return hash(json.dumps(status))


def _pod_ip(pod: PodState, host: str) -> str:
    return host if pod.is_on_host_network else made_up_ip(pod.uid)
