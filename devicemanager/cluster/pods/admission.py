"""Pods that are new to the node: admitted and started, taken as they run, or rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.manager import PodManager
from devicemanager.cluster.pods.state import PodState, Stage
from devicemanager.cluster.pods.statusmanager import StatusManager
from devicemanager.cluster.pods.syncloop import SyncLoop
from devicemanager.cluster.pods.termination import PodTermination
from devicemanager.cluster.pods.timers import ContainerTimers
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import PodFacts
from devicemanager.core.rejection import Rejected
from devicemanager.objects.manifests import bound_pod
from devicemanager.objects.manifests.errors import ManifestError
from devicemanager.objects.status.podstatus import allocated_devices, container_statuses_of
from devicemanager.objects.status.times import seconds_of

__all__ = ["AdmitHandler", "PodAdmission"]

AdmitHandler = Callable[[Pod], Rejected | None]
"""Asked before the kubelet allocates anything: why it rejects a pod; None if it does not
(``lifecycle.PodAdmitHandler``)."""


class PodAdmission:
    """Of the pods of one node. To be called in the loop."""

    __slots__ = ("_handler", "_loop", "_node", "_pods", "_statuses", "_termination", "_timers")

    def __init__(
        self,
        node: NodeContext,
        loop: SyncLoop,
        pods: PodManager,
        statuses: StatusManager,
        timers: ContainerTimers,
        termination: PodTermination,
        handler: AdmitHandler,
    ) -> None:
        self._node = node
        self._loop = loop
        self._pods = pods
        self._statuses = statuses
        self._timers = timers
        self._termination = termination
        self._handler = handler

    def add(self, object_: JsonObject) -> None:
        """A pod was bound to the node, or was here before us."""
        metadata, status = object_["metadata"], object_.get("status") or {}
        play, faults = self._node.facts.of(metadata)
        pod = PodState.of(object_, play)
        for fault in faults:
            self._node.warn(f"pod {pod.title}: {fault}")
        self._pods.add(pod)
        if status.get("phase") in ("Succeeded", "Failed"):
            self._pods.move(pod, Stage.FINISHED)
        else:
            try:
                self._begin(pod, bound_pod(object_), status, metadata)
            except ManifestError as error:
                self._node.say(f"{error}; it stays as it is")
                self._pods.move(pod, Stage.FINISHED)
                return
            except RequestError:
                self._pods.remove(pod.uid)
                raise
        if metadata.get("deletionTimestamp"):
            self._termination.delete(pod)

    def _begin(
        self,
        pod: PodState,
        known: Pod,
        status: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> None:
        kubelet = self._node.kubelet
        was_here = status.get("startTime") is not None
        if metadata.get("deletionTimestamp") and not was_here:
            # Nothing was started, and nothing will be.
            pod.rejection = PodFacts(known, Phase.FAILED, start_time=self._node.clock.time())
            pod.never_ran = True
            self._pods.move(pod, Stage.FINISHED)
            return
        rejected = None if was_here else self._handler(known)
        if rejected is not None:
            self._reject_unseen(pod, known, rejected)
            return
        ran = container_statuses_of(status)
        with self._statuses.changing(pod):
            if was_here:
                answer = kubelet.restore(
                    known,
                    allocated_devices(status),
                    statuses={str(name): each for name, each in ran.items()},
                    start_time=seconds_of(status.get("startTime")),
                )
            else:
                answer = kubelet.admit(known, start=False)
            if not answer.admitted:
                self._reject(pod, answer.reason, answer.message)
            else:
                self._admitted(pod, known)

    # -- admitted ----------------------------------------------------------------------

    def _admitted(self, pod: PodState, known: Pod) -> None:
        record = self._node.kubelet.pod(pod.uid)
        if pod.play.never_ready:
            record.unready = frozenset(str(each.name) for each in known.containers)
        if record.has_sandbox:
            self._pods.move(pod, Stage.RUNNING)
            self._timers.start(pod)
        elif pod.play.start_delay > 0:
            self._pods.move(pod, Stage.PENDING)
            self._loop.do_after(pod.play.start_delay, lambda: self._start(pod))
        else:
            self._start(pod)

    def _start(self, pod: PodState) -> None:
        if not self._pods.move(pod, Stage.RUNNING, Stage.NEW, Stage.PENDING):
            return
        kubelet = self._node.kubelet
        if not kubelet.pod(pod.uid).is_active:
            return  # rejected meanwhile, after a reboot
        with self._statuses.changing(pod):
            kubelet.start_pod(pod.uid)
        if self._node.options.all_events:
            for container, _ in kubelet.pod(pod.uid).pod.all_containers():
                image = f'Container image "{container.image}" already present on machine'
                self._record(pod, "Pulled", image)
                self._record(pod, "Created", f"Created container: {container.name}")
                self._record(pod, "Started", f"Started container {container.name}")

    def _record(self, pod: PodState, reason: str, message: str) -> None:
        self._node.recorder.record(pod.subject, "Normal", reason, message)

    def start_again(self, pod: PodState) -> None:
        """Try again what could not be started."""
        if pod.stage is Stage.RUNNING:
            with self._statuses.changing(pod):
                self._node.kubelet.start_pod(pod.uid)

    # -- rejected -----------------------------------------------------------------------

    def _reject_unseen(self, pod: PodState, known: Pod, rejected: Rejected) -> None:
        """The kubelet proper never hears of it."""
        pod.rejection = PodFacts(
            known, Phase.FAILED, rejected.reason, rejected.message, self._node.clock.time()
        )
        self._reject(pod, rejected.reason, rejected.message)
        self._statuses.changed(pod)

    def _reject(self, pod: PodState, reason: str, message: str) -> None:
        if self._pods.move(pod, Stage.REJECTED):
            self._node.recorder.record(pod.subject, "Warning", reason, message)

    def rejected_later(self, pod: PodState) -> None:
        """One that ran: rejected after a reboot."""
        if pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        record = self._node.kubelet.pod(pod.uid)
        self._reject(pod, record.reason, record.message)
        self._statuses.changed(pod)
