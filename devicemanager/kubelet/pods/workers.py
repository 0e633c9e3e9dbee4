"""What happens to a pod on this node: admitted, admitted again, finished, terminated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core import messages
from devicemanager.core.allocation.container import PodAllocation
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.errors import AllocationError, RequestError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.core.rejection import Rejected, rejected_by_allocation
from devicemanager.core.versions.changelog import describe
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.container_lifecycle import ContainerLife
from devicemanager.kubelet.pods.containers import Containers
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.pods.records import Phase, PodRecord, PodStore, pod_uid, title
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.explanation.model import AdmissionExplanation
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.pods.admission import Admission


class PodWorkers:
    """The pods of the node under one manager. May be called from any thread.

    The pods (``store``) outlive a kubelet's process, its manager and its workers do not.
    """

    def __init__(
        self,
        store: PodStore,
        manager: DeviceManager,
        settings: Settings,
        events: EventStream,
        claims: LazyClaims | None = None,
    ) -> None:
        """``claims`` outlive the kubelet's process; None is a node that never had any."""
        self._store = store
        self._manager = manager
        self._claims = claims or LazyClaims(events, settings.node_name)
        self._settings = settings
        self._events = events
        self._cdi = CdiRules.of(settings.behaviour)
        self._containers = Containers(store, manager, events, self._claims, self._cdi)
        self.life = ContainerLife(
            store, self._containers, manager.clock, events, self._finish, self._delete
        )

    # -- admission -------------------------------------------------------------------

    def admit(self, pod: Pod, *, start: bool) -> Admission:
        """Admit a new pod and, if asked to, start its containers."""
        pod = self._as_known(pod)
        with self._store.lock:
            record = self._store.add(pod, self._manager.clock.time())
            known_before = self._is_restored(pod.uid)
        if known_before and self._store.containers_survive:
            record.all_started()
        admission = self._admit(record)
        if admission.admitted and start and not record.running:
            admission = self._containers.start_all(record, admission)
        if known_before:
            self._check_sources()
        return admission

    def _as_known(self, pod: Pod) -> Pod:
        """The pod without what the settings' version knows nothing of."""
        behaviour = self._settings.behaviour
        if not behaviour.sidecars:
            pod = pod.without_sidecars()
        if pod.backed and behaviour.backed_fit:
            pod = pod.without_backed(limits=behaviour.backed_skip_plugins)
        return pod

    def start(self, uid: str) -> None:
        """Start what was never started; see ``NodePods.start_pod``."""
        self._containers.start_rest(self._store.known(uid))

    def restore(
        self,
        pod: Pod,
        devices: Mapping[str, Mapping[str, Iterable[str]]],
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """Take over a pod that an earlier kubelet ran; see ``NodePods.restore``."""
        pod, begun = self._as_known(pod), time.monotonic()
        with self._store.lock:
            record = self._store.add(pod, start_time or self._manager.clock.time())
            known = self._is_restored(pod.uid)
            if statuses is None:
                record.all_started()
            else:
                record.take_over(statuses)
        try:
            if devices and not known:
                self._manager.adopt(pod.uid, devices)
            admission = self._admit(record, holding=frozenset(self._manager.holdings(pod.uid)))
        except Rejected as rejected:
            return self._reject(record, rejected, begun)
        if admission.admitted:
            self.life.resume(record)
        if known:
            self._check_sources()
        return admission

    def _is_restored(self, uid: PodUid) -> bool:
        """Whether the checkpoint names the pod, and the kubelet still learns which there are."""
        if not self._manager.is_sources_ready and self._manager.holdings(uid):
            return True
        return not self._claims.is_sources_ready and uid in self._claims.pods()

    def readmit(self) -> None:
        """After a restart: admit every pod again that had been, and start what does not
        run any more."""
        for record in self._store.records():
            if not record.is_active:
                # The checkpoint may still name what it held.
                self._manager.deactivate(record.pod.uid)
                continue
            if not record.admitted:
                continue
            was_running = record.has_sandbox
            if not was_running and self._settings.wait_for_plugin:
                self._wait_for_plugins(record.pod)
            admission = self._admit(record, again=True)
            if record.deletion_grace is not None or (admission.admitted and was_running):
                self.life.resume(record)
            elif admission.admitted:
                self._containers.start_all(record, admission)
        self._check_sources()

    def _admit(
        self,
        record: PodRecord,
        *,
        again: bool = False,
        holding: frozenset[ContainerName] | None = None,
    ) -> Admission:
        """``again`` after a restart: the sources are not ready then, even if the checkpoint
        names no pod. ``holding``: of the containers that run only these have their devices,
        the others need some."""
        pod, begun = record.pod, time.monotonic()
        try:
            self._check_known(pod)
            ready = self._manager.is_sources_ready and not again and holding is None
            context = record.context(ready, self._settings.quirks)
            if holding is not None:
                context = attrs.evolve(context, running=context.running & holding)
            self._claims.admit(pod)
            allocation = self._manager.admit(pod, context)
            self._note_admitted(record)
            self._claims.admitted(pod.uid)
        except Rejected as rejected:
            return self._reject(record, rejected, begun)
        except BaseException:
            # One that was admitted before stays, with what it held.
            if not record.admitted:
                self._give_up(record)
            raise
        self._events.publish(
            EventKind.ADMITTED,
            f"pod {title(pod)} admitted",
            pod=pod.uid,
            seconds=time.monotonic() - begun,
            containers=len(pod.init_containers) + len(pod.containers),
        )
        return self._answer(pod, allocation)

    def _note_admitted(self, record: PodRecord) -> None:
        if self._containers.is_gone(record):
            raise rejected_by_allocation(AllocationError("the pod was deleted meanwhile"))
        record.admitted = True

    def _give_up(self, record: PodRecord) -> None:
        """An admission was interrupted: the pod is unknown, and holds nothing."""
        with self._store.lock:
            was_there = self._store.is_current(record)
            self._store.remove(record)
        if was_there:
            self._claims.retreat(record.pod.uid)
            self._manager.release(record.pod.uid)

    def _reject(self, record: PodRecord, rejected: Rejected, begun: float) -> Admission:
        pod = record.pod
        if record.admitted and self._manager.plugins.is_closed:
            # A kubelet that stops rejects nobody: its successor decides about the pod.
            return self._rejection(pod, rejected)
        with self._store.lock:
            self._store.end(record, Phase.FAILED, rejected.reason, rejected.message)
            record.rejected = True
            if self._store.is_current(record):
                # Under the lock: another pod may be admitted with this UID from here on.
                self._manager.deactivate(pod.uid)
                self._claims.leave(pod.uid, also_allocated_before=record.admitted)
        self._claims.settle()
        self._events.publish(
            EventKind.REJECTED,
            f"pod {title(pod)} rejected: {rejected}",
            pod=pod.uid,
            seconds=time.monotonic() - begun,
            containers=_got_theirs(rejected),
            reason=rejected.reason,
        )
        return self._rejection(pod, rejected)

    def _answer(self, pod: Pod, allocation: PodAllocation) -> Admission:
        from devicemanager.kubelet.pods.admission import (
            Admission,
            ContainerOutcome,
            Once,
            affinity_nodes,
        )

        held = self._manager.holdings(pod.uid)
        containers = {
            str(container.name): ContainerOutcome(
                container.name,
                held.get(container.name, {}),
                affinity_nodes(allocation.affinities.get(container.name)),
                claims=self._claims.devices(pod, container.name),
                merging=self._cdi.merging(held, pod.uid, container.name),
            )
            for container, _ in pod.all_containers()
        }
        manager = self._manager
        return Admission(
            pod,
            True,
            containers=containers,
            explaining=Once(lambda: self._named(manager.explain(allocation))),
        )

    def _rejection(self, pod: Pod, rejected: Rejected) -> Admission:
        from devicemanager.kubelet.pods.admission import Admission, NoContainers, Once

        explanation = rejected.explanation
        if explanation is not None and rejected.behaviour:
            version = self._settings.behaviour.version
            since = describe(rejected.behaviour, version)
            explanation = attrs.evolve(explanation, since=since)
        return Admission(
            pod,
            False,
            rejected.reason,
            rejected.message,
            NoContainers(f"pod {title(pod)} was rejected: {rejected}"),
            explaining=None if explanation is None else Once(lambda: self._named(explanation)),
        )

    def _named(self, explanation: AdmissionExplanation) -> AdmissionExplanation:
        """With pods as people name them now; the core knows their UIDs."""
        names = {uid: self._store.title_of(uid) for uid in explanation.allocated}
        return attrs.evolve(explanation, name_of=names.__getitem__)

    def _check_known(self, pod: Pod) -> None:
        """A resource nobody registered: rejected if it was declared to us, else the pod
        runs without it, as with the reference, and a warning says so (Q14)."""
        for container, _ in pod.all_containers():
            for resource, count in container.limits.items():
                if not count or not is_extended_resource_name(resource):
                    continue
                if self._manager.is_known(resource):
                    continue
                if self._is_required(resource):
                    raise rejected_by_allocation(self._unregistered(resource))
                self._events.publish(
                    EventKind.UNKNOWN_RESOURCE,
                    f"pod {title(pod)} container {container.name} asks for {resource}, which "
                    "no plugin registered: it runs without",
                    resource=resource,
                    pod=pod.uid,
                )

    def _unregistered(self, resource: ResourceName) -> AllocationError:
        checks = self._settings.behaviour.admission_checks_health
        text = messages.UNREGISTERED if checks else messages.UNREGISTERED_BEFORE
        return AllocationError(text.format(resource=resource), "admission_checks_health")

    def _is_required(self, resource: ResourceName) -> bool:
        declared = resource in self._settings.declared_resources
        return self._settings.strict or (declared and "Q14" not in self._settings.quirks)

    def _wait_for_plugins(self, pod: Pod) -> None:
        """Q6: give the plugins of a pod the time to come back after a reboot."""
        held = self._manager.holdings(pod.uid)
        resources = {resource for by_resource in held.values() for resource in by_resource}

        def back() -> bool:
            allocatable = self._manager.capacity().allocatable
            return all(allocatable.get(resource) for resource in resources)

        self._events.wait_for(back, self._settings.wait_for_plugin)

    # -- sources ---------------------------------------------------------------------

    def sources_ready(self) -> None:
        """All pods are known now: devices of others are freed.

        A pod rejected after a reboot is known; it holds its devices until the next
        allocation.
        """
        # One step: a pod of the checkpoint that is admitted in this moment is either known
        # already and keeps its devices, or comes after and is a new pod.
        with self._store.lock:
            uids = self._store.uids()
            released = self._manager.forget_all_but(uids)
            self._claims.forget_all_but(uids)
        self._claims.settle()
        if released:
            self._manager.write()

    def _check_sources(self) -> None:
        """Once every pod of the checkpoint was admitted again, all are known."""
        if self._manager.is_sources_ready and self._claims.is_sources_ready:
            return
        if self._manager.pods() | self._claims.pods() <= self._store.uids():
            self.sources_ready()

    # -- end -------------------------------------------------------------------------

    def finish(self, uid: str, exit_codes: Mapping[str, int]) -> Phase:
        """All containers of a pod have ended by themselves; see ``MockKubelet.finish``."""
        record = self._store.known(uid)
        pod = record.pod
        with self._store.lock:
            # What has ended before has ended so.
            exit_codes = {**exit_codes, **record.exit_codes()}
        phase = record.phase_after(exit_codes)
        with self._store.lock:
            if not self._store.is_current(record) or not record.is_active:
                raise RequestError(f"pod {title(pod)} is not active: it cannot finish")
            now = self._manager.clock.time()
            for container in pod.containers:
                if container.name not in record.exit_codes():
                    code = exit_codes.get(container.name, 0)
                    record.ended(container.name, code, "Error" if code else "Completed", now)
        self._finish(record, phase)
        return phase

    def stop(
        self, uid: str, exit_code: int, *, reason: str = "", message: str = "", disruption: str = ""
    ) -> Phase:
        """The kubelet ends a pod; see ``NodePods.stop_pod``."""
        record = self._store.known(uid)
        with self._store.lock:
            if not record.is_active:
                return record.phase
            phase = record.stop(exit_code, self._manager.clock.time())
            record.disrupted = disruption
        phase = Phase.FAILED if reason else phase
        self._finish(record, phase, reason, message)
        return phase

    def _finish(self, record: PodRecord, phase: Phase, reason: str = "", message: str = "") -> None:
        """No container will run again; sidecars are stopped."""
        pod = record.pod
        with self._store.lock:
            if not self._store.is_current(record) or not record.is_active:
                return
            now = self._manager.clock.time()
            for name in record.running:
                record.ended(name, 0, "Completed", now)
            self._store.end(record, phase, reason, message)
            # Under the lock: another pod may be admitted with this UID from here on.
            self._manager.deactivate(pod.uid)
            self._claims.leave(pod.uid)
        self._manager.release(pod.uid)
        self._claims.settle()
        self.life.forget(record)
        self._events.publish(EventKind.FINISHED, f"pod {title(pod)} {phase}", pod=pod.uid)

    def _delete(self, record: PodRecord) -> None:
        """Forget a pod that is to be deleted and whose containers have ended."""
        with self._store.lock:
            is_there = self._store.is_current(record)
        if is_there:
            self.terminate((record.pod.uid,))

    def terminate(self, uids: Iterable[str]) -> None:
        """Pods end and are deleted, all of them or, if one is unknown, none."""
        with self._store.lock:
            records = [self._store.known(uid) for uid in uids]
            for record in records:
                self._store.remove(record)
            self._claims.leave(*(record.pod.uid for record in records))
        self._manager.release(*(record.pod.uid for record in records))
        self._claims.settle()
        for record in records:
            self.life.forget(record)
            self._events.publish(
                EventKind.TERMINATED, f"pod {title(record.pod)} terminated", pod=record.pod.uid
            )

    # -- containers ------------------------------------------------------------------

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start one container; see ``MockKubelet.start_container``."""
        return self._containers.start(self._store.known(uid), container)

    def allocated_resources_status(
        self, uid: str
    ) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
        """``allocatedResourcesStatus`` of the containers that the pod's status has it for:
        its app containers (``convertToAPIContainerStatuses``, v1.32).

        Raises RequestError if nobody knows the UID: no pod here has it, nor does the
        checkpoint.
        """
        status = self._manager.allocated_resources_status(pod_uid(uid))
        if not self._settings.behaviour.reports_resource_health:
            status = {}
        record = self._store.get(PodUid(uid))
        if record is None:
            if not status:
                self._store.known(uid)
            return status
        shown = {}
        for container in record.pod.containers:
            of_claims = self._claims.health(record.pod, container.name)
            if resources := (*status.get(container.name, ()), *of_claims):
                shown[container.name] = tuple(sorted(resources, key=attrgetter("name")))
        return shown


def _got_theirs(rejected: Rejected) -> int:
    """How many containers had their devices before the pod was rejected."""
    if rejected.explanation is None:
        return 0
    begun = sum(step.container is not None for step in rejected.explanation.steps)
    failed = not rejected.reason.startswith(messages.OUT_OF.format(resource=""))
    return max(0, begun - failed)
