"""What is told to the API of a pod: its status, and that it may go."""

from __future__ import annotations

import json

from devicemanager.apiobjects.podstatus import held_devices, status_object
from devicemanager.clock import Clock
from devicemanager.cluster.api import pod_path
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.podstate import PodState, Stage, made_up_ip
from devicemanager.cluster.protocol import Api, JsonObject
from devicemanager.cluster.telling import Warn
from devicemanager.core.ids import PodUid
from devicemanager.core.podstatus.merge import status_patch
from devicemanager.core.podstatus.status import refused_status

__all__ = ["PodTelling", "Shared"]


class Shared:
    """What the nodes of one cluster find out for each other."""

    def __init__(self) -> None:
        self.keeps_health: bool | None = None
        """Whether the API server keeps ``allocatedResourcesStatus``; None until one was sent."""


class PodTelling:
    """Of the pods of one node. Calls block; those about one pod come one after another."""

    def __init__(
        self,
        node: str,
        kubelet: NodeKubelet,
        options: NodeOptions,
        api: Api,
        clock: Clock,
        shared: Shared,
        warn: Warn,
    ) -> None:
        self._kubelet = kubelet
        self._options = options
        self._api = api
        self._clock = clock
        self._shared = shared
        self._warn = warn
        self._user = node if options.as_nodes else None

    def tell(self, pod: PodState, again: bool) -> None:
        """Tell its status, if it is another one than was told last, or ``again``. Raises ApiError,
        and RequestError if the kubelet cannot say.
        """
        ours = self.status(pod)
        if ours is None:
            return
        if _digest(ours) == pod.digest and not again:
            return
        path = pod_path(pod.namespace, pod.name, "status")
        body = {"metadata": {"uid": pod.uid}, **status_patch(ours)}
        answer = self._api.request("PATCH", path, body, patch="strategic", user=self._user)
        self._look_for_health(ours, answer)
        self._without_health(ours)
        pod.version, pod.digest = answer["metadata"]["resourceVersion"], _digest(ours)

    def status(self, pod: PodState) -> JsonObject | None:
        """``status`` as we tell it; None if that is nothing of ours."""
        now = self._clock.time()
        if pod.refusal is not None:
            status = refused_status(pod.refusal)
            made = status_object(PodUid(pod.uid), status, now=now)
            if pod.never_ran:
                del made["message"]
            return made
        if pod.uid not in self._kubelet.pods():
            return None  # it has ended before we came
        status = self._kubelet.pod_status(pod.uid, pod.gates)
        host = self._options.address
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
        if self._shared.keeps_health is False:
            for each in ours.get("containerStatuses", ()):
                each.pop("allocatedResourcesStatus", None)

    def _look_for_health(self, ours: JsonObject, answer: JsonObject) -> None:
        """Whether the API server keeps the health of devices: it drops the field silently
        without the gate ResourceHealthStatus."""
        if self._shared.keeps_health is not None or not held_devices(ours):
            return
        self._shared.keeps_health = bool(held_devices(answer.get("status") or {}))
        if not self._shared.keeps_health:
            self._warn(
                "the API server does not keep allocatedResourcesStatus: the health of devices is "
                "not shown in pods (feature gate ResourceHealthStatus)"
            )

    def remove(self, pod: PodState) -> None:
        """Delete it for good. Raises ApiError."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        path = pod_path(pod.namespace, pod.name)
        self._api.request("DELETE", path, body, user=self._user)


def _digest(status: JsonObject) -> int:
    return hash(json.dumps(status))


def _pod_ip(pod: PodState, host: str) -> str:
    return host if pod.is_on_host_network else made_up_ip(pod.uid)
