"""Admission of pods that are new to the node: a pod is admitted, restored or rejected.

The first case that applies to a pod decides:
1. Its phase is Succeeded or Failed: nothing to do.
2. It was deleted before it started: report it as Failed without starting it.
3. It has a start time, so an earlier process ran it: restore it with its devices.
4. The node rejects it because of pressure or a shutdown: the kubelet never gets it.
5. All other pods: the kubelet admits or rejects the pod. Then the node rejects it if the pod
   requires labels or an operating system that the node does not have.
"""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.container_behaviour import PodBehaviour, own_annotations
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import ACTIVE, PodManager, PodState, Stage
from devicemanager.cluster.pods.predicates import node_predicates
from devicemanager.cluster.pods.resize_events import resize_summary
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.cluster.pods.termination import PodTermination
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.resize import resized
from devicemanager.core.podstatus.status import PodFacts
from devicemanager.core.rejection import Rejected
from devicemanager.core.usage import PodUsage
from devicemanager.objects.manifests import bound_pod
from devicemanager.objects.manifests.errors import ManifestError
from devicemanager.objects.status.podstatus import (
    allocated_devices,
    container_statuses_of,
    with_allocated,
)
from devicemanager.objects.status.times import seconds_of

__all__ = ["AdmitHandler", "PodAdmission"]

AdmitHandler = Callable[[Pod, JsonObject], Rejected | None]
"""Function that is called with a pod and its object before the kubelet allocates devices.
It returns a rejection, or None to admit the pod (``lifecycle.PodAdmitHandler``)."""


class PodAdmission:
    """Handler of the new pods of one node. Its methods must be called in the sync loop."""

    __slots__ = ("_handler", "_loop", "_node", "_pods", "_statuses", "_termination")

    def __init__(
        self,
        node: NodeContext,
        loop: SyncLoop,
        pods: PodManager,
        statuses: StatusManager,
        termination: PodTermination,
        handler: AdmitHandler,
    ) -> None:
        self._node = node
        self._loop = loop
        self._pods = pods
        self._statuses = statuses
        self._termination = termination
        self._handler = handler

    def add(self, object_: JsonObject) -> None:
        """Admit, restore or reject a pod that is new to this process.

        The pod was just bound to the node, or it ran while an earlier process ran the node.
        """
        metadata, status = object_["metadata"], object_.get("status") or {}
        pod = PodState.of(object_, self._behaviour(metadata))
        # Added before the decision, because events of the kubelet during the admission must find
        # the pod.
        self._pods.add(pod)
        if status.get("phase") in ("Succeeded", "Failed"):
            self._pods.move(pod, Stage.FINISHED)
        else:
            try:
                self._begin(pod, bound_pod(object_), object_)
            except ManifestError as error:
                self._node.say(f"{error}; pod ignored")
                self._pods.move(pod, Stage.FINISHED)
                return
            except RequestError:
                # If the kubelet is restarting, the sync loop calls this again later.
                self._pods.remove(pod.uid)
                raise
        if metadata.get("deletionTimestamp"):
            self._termination.delete(pod, metadata.get("deletionGracePeriodSeconds"))

    def _behaviour(self, metadata: JsonObject) -> PodBehaviour:
        behaviour, problems = self._node.behaviour.of(metadata)
        for problem in problems:
            self._node.warn(f"pod {metadata['namespace']}/{metadata['name']}: {problem}")
        return behaviour

    def annotations_changed(self, pod: PodState, object_: JsonObject) -> None:
        """Apply the annotations ``devicemanager.io/...`` of a pod if they have changed."""
        metadata = object_["metadata"]
        annotations = own_annotations(metadata)
        if annotations == pod.annotations:
            return
        pod.annotations = annotations
        pod.behaviour = self._behaviour(metadata)
        if pod.stage in ACTIVE:
            self._apply(pod)
            self._termination.start_timers(pod)
            self._statuses.changed(pod)

    def _apply(self, pod: PodState) -> None:
        """Pass the behavior of an admitted pod to the kubelet."""
        kubelet, behaviour = self._node.kubelet, pod.behaviour
        record = kubelet.pod_store.known(pod.uid)
        names = frozenset(str(each.name) for each in record.pod.containers)
        with kubelet.pod_store.lock:
            record.unready = names if behaviour.never_ready else frozenset()
            record.pull_fails, record.responses = behaviour.pull_fails, behaviour.responses
            record.init_exit_code = behaviour.init_exit_code
            record.resize_waits = behaviour.resize_delay > 0
            if record.usage is None:
                record.usage = PodUsage(behaviour.usage)
            elif record.usage.usage != behaviour.usage:
                now = kubelet.clock.time()
                record.usage = record.usage.changed(behaviour.usage, record.running_since(), now)

    def _begin(self, pod: PodState, parsed: Pod, object_: JsonObject) -> None:
        kubelet = self._node.kubelet
        metadata, status = object_["metadata"], object_.get("status") or {}
        was_here = status.get("startTime") is not None
        if metadata.get("deletionTimestamp") and not was_here:
            pod.rejection = PodFacts(parsed, Phase.FAILED, start_time=self._node.clock.time())
            pod.never_ran = True
            self._pods.move(pod, Stage.FINISHED)
            return
        # As in the kubelet, only new pods are passed to admit handlers. A pod that runs is not
        # admitted again.
        rejected = None if was_here else self._handler(parsed, object_)
        if rejected is not None:
            self._reject_early(pod, parsed, rejected)
            return
        # Exit codes and restart counts continue from those of the earlier process.
        ran = container_statuses_of(status)
        with self._statuses.changing(pod):
            if was_here:
                # A resize can have changed the spec while no process ran the pod.
                decision = kubelet.restore(
                    bound_pod(with_allocated(object_)),
                    allocated_devices(status),
                    statuses={str(name): each for name, each in ran.items()},
                    start_time=seconds_of(status.get("startTime")),
                )
            else:
                # Containers are started in a separate step, because the start can be delayed.
                decision = kubelet.admit(parsed, start=False)
            if not decision.admitted:
                self._reject(pod, decision.reason, decision.message)
                return
            rejected = None if was_here else self._predicates(object_)
            if rejected is not None:
                # As in the kubelet, these checks follow the allocation, so the pod already has
                # devices.
                kubelet.terminate(pod.uid)
                self._reject_early(pod, parsed, rejected)
            else:
                self._admitted(pod)
                if was_here:
                    self._update(pod, parsed, object_)

    def _predicates(self, object_: JsonObject) -> Rejected | None:
        node = self._node
        return node_predicates(object_, node.name, node.placement.labels, node.placement.taints)

    # -- admitted ----------------------------------------------------------------------

    def _admitted(self, pod: PodState) -> None:
        record = self._node.kubelet.pod_store.known(pod.uid)
        self._apply(pod)
        # A restored pod can have running containers.
        if record.has_sandbox:
            self._pods.move(pod, Stage.RUNNING)
            self._termination.start_timers(pod)
            if any(record.waits_for_init(*each) for each in record.pod.all_containers()):
                self.start_again(pod)
        elif pod.behaviour.start_delay > 0:
            self._pods.move(pod, Stage.PENDING)
            self._loop.do_after(pod.behaviour.start_delay, lambda: self._start(pod))
        else:
            self._start(pod)

    def _start(self, pod: PodState) -> None:
        # The pod can have been deleted or rejected during the start delay.
        if not self._pods.move(pod, Stage.RUNNING, Stage.NEW, Stage.PENDING):
            return
        kubelet = self._node.kubelet
        if not kubelet.pod_store.known(pod.uid).is_active:
            return  # rejected after a reboot, during the start delay
        with self._statuses.changing(pod):
            kubelet.start_pod(pod.uid)
        if self._node.options.all_events and kubelet.pod_store.known(pod.uid).has_sandbox:
            for container, _ in kubelet.pod_store.known(pod.uid).pod.all_containers():
                image = f'Container image "{container.image}" already present on machine'
                self._record(pod, "Pulled", image)
                self._record(pod, "Created", f"Created container: {container.name}")
                self._record(pod, "Started", f"Started container {container.name}")

    def _record(self, pod: PodState, reason: str, message: str) -> None:
        self._node.recorder.record(pod.reference, "Normal", reason, message)

    def start_again(self, pod: PodState) -> None:
        """Try again to start the containers of a pod that failed to start."""
        if pod.stage is Stage.RUNNING:
            with self._statuses.changing(pod):
                self._node.kubelet.start_pod(pod.uid)

    def claims_changed(self, pod: PodState, object_: JsonObject) -> None:
        """Prepare the claims of a pod again if the pod waits for claims that exist now."""
        record = self._node.kubelet.pod_store.get(PodUid(pod.uid))
        if record is None or not record.uses_dra or record.has_sandbox:
            return
        # The record has the allocated resources, and the spec those that a resize wants.
        new = resized(bound_pod(object_), record.pod)
        if new.claim_statuses == record.pod.claim_statuses or pod.stage is not Stage.RUNNING:
            return
        self._node.kubelet.pod_store.replace(record, new)
        self.start_again(pod)

    # -- changed ------------------------------------------------------------------------

    def spec_changed(self, pod: PodState, object_: JsonObject) -> None:
        """Resize an admitted pod, and start its new ephemeral containers."""
        if pod.stage in ACTIVE:
            self._update(pod, bound_pod(object_), object_)

    def _update(self, pod: PodState, parsed: Pod, object_: JsonObject) -> None:
        before = self._node.kubelet.pod_store.known(pod.uid).pod
        if (parsed.ephemeral_containers, resized(before, parsed)) == (
            before.ephemeral_containers,
            before,
        ) and pod.resize_summary is None:
            return  # most changes concern neither
        pod.resize_summary = resize_summary(object_["spec"])
        with self._statuses.changing(pod):
            self._node.kubelet.update_pod(parsed, pod.generation)

    # -- rejected -----------------------------------------------------------------------

    def _reject_early(self, pod: PodState, parsed: Pod, rejected: Rejected) -> None:
        """Reject a pod that the kubelet does not have, and report its status."""
        pod.rejection = PodFacts(
            parsed, Phase.FAILED, rejected.reason, rejected.message, self._node.clock.time()
        )
        self._reject(pod, rejected.reason, rejected.message)
        self._statuses.changed(pod)

    def _reject(self, pod: PodState, reason: str, message: str) -> None:
        if self._pods.move(pod, Stage.REJECTED):
            self._node.recorder.record(pod.reference, "Warning", reason, message)

    def rejected_later(self, pod: PodState) -> None:
        """Report the status of a pod that ran before a reboot and was rejected after it."""
        if pod.stage in (Stage.DELETING, Stage.DELETED):
            return
        record = self._node.kubelet.pod_store.known(pod.uid)
        self._reject(pod, record.reason, record.message)
        self._statuses.changed(pod)
