"""Operations on pods: admission, another admission after a restart, end and deletion.

Theory of operation. The kubelet has a worker for each pod, which handles the pod's changes one
after the other. Here each method runs on its caller's thread, and operations on different pods do
not wait for each other. Two callers can use the same pod at the same time, so every method has
these steps:

1. Find or create the pod's record under the store's lock.
2. Without the lock, take the steps that can block: allocate structured claims, admit the pod in the
   device manager, start containers.
3. Under the lock again, check that the pod is not deleted and change its record. If the pod has
   ended, update the device manager and the structured claims before the lock is released: after
   that, a new pod with the same UID can be admitted.
4. Without the lock, release devices and claims, write files and publish events.

The events of a pod are therefore in this order: ADMITTED or REJECTED, starts, exits, FINISHED,
TERMINATED. Claims are allocated before devices, and are freed if the admission fails later.

A *structured claim* is a request for devices in the API ``devmgmtproto.k8s.io``, the prototype of
``resource.k8s.io`` (docs/claims.md). It is not a ResourceClaim.

After a restart, ``readmit`` repeats all admissions in their original order. A pod keeps the devices
that it has in the checkpoint. A pod that is only in the checkpoint also keeps its devices, until
every pod of the checkpoint is known again (``_check_sources``). The caller can declare earlier with
``sources_ready`` that all pods are known. This frees the devices of pods that are only in the
checkpoint.
"""

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
from devicemanager.core.errors import AllocationError, PermanentError, RequestError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.containers import KILLED, ContainerStatus
from devicemanager.core.rejection import Rejected, rejected_by_allocation
from devicemanager.core.versions.changelog import describe
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.container_lifecycle import ContainerLifecycle
from devicemanager.kubelet.pods.containers import Containers
from devicemanager.kubelet.pods.dra import LazyDra, PodDra
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.pods.records import Phase, PodRecord, PodStore, pod_uid, title
from devicemanager.kubelet.pods.runtime import ContainerRuntime, NoRuntime
from devicemanager.kubelet.pods.sandboxes import Sandboxes
from devicemanager.kubelet.pods.timers import Timers
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.dra.explanation import Attempt
    from devicemanager.core.dra.report import ClaimsExplanation
    from devicemanager.core.explanation.model import AdmissionExplanation
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.resizes import Resizes


class PodWorkers:
    """Operations on the node's pods in one kubelet process; thread-safe.

    After a restart, the new kubelet process has another ``PodWorkers`` and another device manager
    (``manager``). The pod records (``store``) remain the same.
    """

    def __init__(
        self,
        store: PodStore,
        manager: DeviceManager,
        settings: Settings,
        events: EventStream,
        claims: LazyClaims | None = None,
        dra: LazyDra[PodDra] | None = None,
        runtime: ContainerRuntime | None = None,
    ) -> None:
        """``claims`` are the node's structured claims, which the module docstring explains. They
        outlive this process. ``dra`` is the DRA manager of this process. ``runtime`` starts the
        containers.
        """
        self._store = store
        self._manager = manager
        self._claims = claims or LazyClaims(events, settings.node_name)
        self._settings = settings
        self._events = events
        self._has_readmitted = False
        self._cdi = CdiRules.of(settings.behaviour)
        self._dra: LazyDra[PodDra] = dra or LazyDra()
        self._syncs: Timers[PodUid] = Timers(manager.clock, threaded=True)
        self._runtime = runtime or NoRuntime()
        self._sandboxes = Sandboxes(
            store, self._dra, self._syncs, self._runtime, manager.clock.time
        )
        self._containers = Containers(
            store,
            manager,
            events,
            self._claims,
            self._dra,
            self._sandboxes,
            self._fail,
            lambda record, container: self.life.init_failed(record, container),
            self._runtime,
            self._cdi,
        )
        self._resizes: Resizes | None = None
        """Handler of in-place resizes and new ephemeral containers; None until it is first used."""
        self.life = ContainerLifecycle(
            store, self._containers, manager.clock, events, self._finish, self._delete
        )

    # -- admission -------------------------------------------------------------------

    def admit(self, pod: Pod, *, start: bool) -> Admission:
        """Admit a new pod, start its containers if ``start`` is true, and return the Admission."""
        pod = self._drop_unknown_fields(pod)
        uses_dra = self.uses_dra(pod)
        # In one step: if ``sources_ready`` ran between the two, a restored pod would retain its
        # devices, but would count as new.
        with self._store.lock:
            record = self._store.add(pod, self._manager.clock.time())
            record.uses_dra = uses_dra
            known_before = self._is_restored(pod.uid)
        # If the checkpoint has the pod, an earlier kubelet started its containers, and they are
        # still running.
        if known_before and self._store.containers_survive:
            record.all_started()
        admission = self._admit(record)
        if admission.admitted and start and not record.running:
            admission = self._containers.start_all(record, admission)
        if known_before:
            self._check_sources()
        return admission

    def uses_dra(self, pod: Pod) -> bool:
        """True if DRA drivers prepare the pod's claims.

        False for a pod with structured claims (docs/claims.md) or without claims.
        """
        return self._dra.serves(pod) and not self._claims.serves(pod)

    def _drop_unknown_fields(self, pod: Pod) -> Pod:
        """Return the pod without the fields that this kubelet version does not know."""
        behaviour = self._settings.behaviour
        if not behaviour.sidecars:
            forbids = behaviour.forbids_sidecars
            pod = pod.with_forbidden_sidecars() if forbids else pod.without_sidecars()
        if not behaviour.container_restart_rules:
            pod = pod.without_restart_rules()
        if not behaviour.restart_all_containers:
            pod = pod.without_restart_all()
        if pod.backed and behaviour.backed_fit:
            pod = pod.without_backed(limits=behaviour.backed_skip_plugins)
        return pod

    def start(self, uid: str) -> None:
        """Start the containers that were never started, as ``MockKubelet.start_pod`` does."""
        self._containers.start_remaining(self._store.known(uid))

    def restore(
        self,
        pod: Pod,
        devices: Mapping[str, Mapping[str, Iterable[str]]],
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """Take over a pod that an earlier kubelet ran, as ``MockKubelet.restore`` describes."""
        pod, begun = self._drop_unknown_fields(pod), time.monotonic()
        uses_dra = self.uses_dra(pod)
        with self._store.lock:
            record = self._store.add(pod, start_time or self._manager.clock.time())
            record.uses_dra = uses_dra
            known = self._is_restored(pod.uid)
            if statuses is None:
                record.all_started()
            else:
                record.take_over(statuses)
        try:
            # If the checkpoint has the pod, its devices are more reliable than the caller's copy.
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

    def update(self, pod: Pod, generation: int) -> None:
        """Update a pod to a newer Pod object, as ``MockKubelet.update_pod`` does.

        Changes of a pod that was not admitted or has ended are ignored. Raises RequestError for an
        unknown UID.
        """
        record = self._store.known(pod.uid)
        if record.is_active and record.admitted and record.ending is None:
            changed = self._drop_unknown_fields(pod)
            self._loaded_resizes().update(record, changed, generation)

    def complete_resize(self, uid: str) -> None:
        """Complete the pod's resize in progress. Raises RequestError for an unknown UID."""
        self._loaded_resizes().complete(self._store.known(uid))

    def _loaded_resizes(self) -> Resizes:
        # Imported here: most pods are never updated, and a start does not load it.
        from devicemanager.kubelet.pods.resizes import Resizes

        with self._store.lock:
            if self._resizes is None:
                self._resizes = Resizes(
                    self._store, self._manager, self._containers, self._events, self._settings
                )
            return self._resizes

    def _retry_resizes(self) -> None:
        if self._resizes is not None:
            self._resizes.retry()

    def _is_restored(self, uid: PodUid) -> bool:
        """True if the pod has stored devices or claims, and not all stored pods are known yet."""
        if not self._manager.is_sources_ready and self._manager.holdings(uid):
            return True
        if not self._dra.is_sources_ready and uid in self._dra.pods():
            return True
        return not self._claims.is_sources_ready and uid in self._claims.pods()

    def readmit(self, order: Iterable[PodRecord] | None = None) -> None:
        """Admit every pod again after a restart, and start containers that do not run any more.

        The pods are admitted in the order of the records in ``order``. By default, this is the
        order of their first admissions.
        """
        records = self._store.records()
        # The pods are not all known yet, even if the checkpoint was lost.
        if records:
            self._manager.await_sources()
        for record in records if order is None else order:
            if not record.is_active:
                # The checkpoint may still have devices of this pod.
                self._manager.deactivate(record.pod.uid)
                continue
            if not record.admitted:
                continue
            # The version can differ from that of the last kubelet. Only one of them may have DRA.
            record.uses_dra = self.uses_dra(record.pod)
            if record.ending is not None:
                self._finish(record, *record.ending)
                continue
            was_running = record.has_sandbox and record.was_started
            # Containers that run since before the restart do not need their plugins again.
            if not was_running and self._settings.wait_for_plugin:
                self._wait_for_plugins(record.pod)
            admission = self._admit(record, again=True)
            # A pod that is being deleted starts no containers. ``resume`` continues its deletion.
            if record.deletion_grace is not None or (admission.admitted and was_running):
                self.life.resume(record)
            elif admission.admitted:
                self._containers.start_all(record, admission)
        self._check_sources()
        self._has_readmitted = True

    def _admit(
        self,
        record: PodRecord,
        *,
        again: bool = False,
        holding: frozenset[ContainerName] | None = None,
    ) -> Admission:
        """Admit a pod that has a record, and return the result.

        ``again``: the pod was admitted before a restart, so not all pods are known yet.
        ``holding``: names of running containers that have devices; other containers need an
        allocation.
        """
        pod, begun = record.pod, time.monotonic()
        try:
            self._check_known(pod)
            ready = self._manager.is_sources_ready and not again and holding is None
            context = record.context(ready, self._settings.quirks)
            if holding is not None:
                context = attrs.evolve(context, running=context.running & holding)
            # Claims first: they can reject the pod before any plugin is called. DRA never rejects a
            # pod: a pod whose claims cannot be prepared stays Pending.
            if not record.uses_dra:
                self._claims.admit(pod)
            allocation = self._manager.admit(pod, context)
            self._note_admitted(record)
            self._claims.admitted(pod.uid)
        except Rejected as rejected:
            return self._reject(record, rejected, begun)
        except BaseException:
            # A pod that was admitted before keeps its record and its devices.
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
            raise rejected_by_allocation(
                AllocationError("the pod was deleted during its admission")
            )
        record.admitted = True

    def _give_up(self, record: PodRecord) -> None:
        """Remove a pod whose admission was interrupted, and free its devices and claims."""
        with self._store.lock:
            # Another caller may have deleted the pod and freed everything.
            was_there = self._store.is_current(record)
            self._store.remove(record)
        if was_there:
            self._claims.unreserve(record.pod.uid)
            self._manager.release(record.pod.uid)

    def _reject(self, record: PodRecord, rejected: Rejected, begun: float) -> Admission:
        pod = record.pod
        if record.admitted and self._manager.plugins.is_closed:
            # A kubelet that is stopping does not end the pod: the next start admits it again.
            return self._rejection(pod, rejected)
        with self._store.lock:
            self._store.end(record, Phase.FAILED, rejected.reason, rejected.message)
            record.rejected = True
            if self._store.is_current(record):
                # Under the lock, because another pod can be admitted with this UID afterwards.
                self._manager.deactivate(pod.uid)
                self._claims.remove_pods(pod.uid, also_allocated_before=record.admitted)
        self._claims.flush()
        self._events.publish(
            EventKind.REJECTED,
            f"pod {title(pod)} rejected: {rejected}",
            pod=pod.uid,
            seconds=time.monotonic() - begun,
            containers=_containers_with_devices(rejected),
            reason=rejected.reason,
        )
        return self._rejection(pod, rejected)

    def _answer(self, pod: Pod, allocation: PodAllocation) -> Admission:
        # Imported here, with the first admission, so that a start does not load it.
        from devicemanager.kubelet.pods.admission import (
            Admission,
            ContainerOutcome,
            LazyExplanation,
            affinity_nodes,
        )

        held = self._manager.holdings(pod.uid)
        containers = {
            str(container.name): ContainerOutcome(
                container.name,
                held.get(container.name, {}),
                affinity_nodes(allocation.affinities.get(container.name)),
                claims=self.claim_devices(pod, container.name),
                merging=self._cdi.merging(held, pod.uid, container.name),
            )
            for container, _ in pod.all_containers()
        }
        manager = self._manager
        return Admission(
            pod,
            True,
            containers=containers,
            explaining=LazyExplanation(lambda: self._named(manager.explain(allocation))),
        )

    def _rejection(self, pod: Pod, rejected: Rejected) -> Admission:
        from devicemanager.kubelet.pods.admission import Admission, LazyExplanation, NoContainers

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
            explaining=None
            if explanation is None
            else LazyExplanation(lambda: self._named(explanation)),
            undecided=rejected.undecided,
        )

    def _named(self, explanation: AdmissionExplanation) -> AdmissionExplanation:
        """Return the explanation with pod names. The core knows only UIDs."""
        names = {uid: self._store.title_of(uid) for uid in explanation.allocated}
        return attrs.evolve(explanation, name_of=names.__getitem__)

    def _check_known(self, pod: Pod) -> None:
        """Check a pod for requested resources that no plugin has registered.

        Raises Rejected with ``Settings.strict``. Also raises Rejected if
        ``Settings.declared_resources`` has such a resource, unless quirk Q14 is enabled. Otherwise
        the pod runs without the resource, as in the kubelet, and a warning event is published.
        """
        for container, _ in pod.all_containers():
            for resource, count in container.limits.items():
                # Only extended resources can be devices. Another check handles cpu and memory.
                if not count or not is_extended_resource_name(resource):
                    continue
                if self._manager.is_known(resource):
                    continue
                if self._is_required(resource):
                    raise rejected_by_allocation(self._unregistered(resource))
                self._events.publish(
                    EventKind.UNKNOWN_RESOURCE,
                    f"pod {title(pod)} container {container.name} requests {resource}, which "
                    "no plugin has registered: the container runs without the resource",
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
        """Wait until the plugins of a pod have re-registered after a reboot."""
        held = self._manager.holdings(pod.uid)
        resources = {resource for by_resource in held.values() for resource in by_resource}

        def are_back() -> bool:
            allocatable = self._manager.capacity().allocatable
            return all(allocatable.get(resource) for resource in resources)

        self._events.wait_for(are_back, self._settings.wait_for_plugin)

    # -- sources ---------------------------------------------------------------------

    def sources_ready(self) -> None:
        """Declare that the list of pods is complete, and free the devices of pods that are not in
        it.

        A pod that was rejected after a reboot is still in the list, so it keeps its devices until
        the next allocation.
        """
        # With the lock held, because a pod of the checkpoint may be admitted at this moment. It is
        # either known already and keeps its devices, or it is admitted later as a new pod.
        with self._store.lock:
            uids = self._store.uids()
            released = self._manager.forget_all_but(uids)
            self._claims.remove_other_pods(uids)
        self._dra.sources_ready()
        self._claims.flush()
        if released:
            self._manager.write()

    @property
    def is_sources_ready(self) -> bool:
        """True if all pods of the node are known and were readmitted."""
        return self._has_readmitted and self._manager.is_sources_ready

    def _check_sources(self) -> None:
        """Call ``sources_ready`` if every pod that has devices or claims is known."""
        owners = self._manager, self._claims, self._dra
        if all(each.is_sources_ready for each in owners):
            return
        if frozenset().union(*(each.pods() for each in owners)) <= self._store.uids():
            self.sources_ready()

    # -- end -------------------------------------------------------------------------

    def finish(self, uid: str, exit_codes: Mapping[str, int]) -> Phase:
        """Let all app containers of a pod exit, and return the pod's phase.

        ``exit_codes`` are by container; the default is 0. Containers that have already exited keep
        their exit codes. Raises RequestError for an unknown pod or container, for a pod that has
        ended, and if the pod's restartPolicy would restart a container.
        """
        record = self._store.known(uid)
        pod = record.pod
        with self._store.lock:
            # Containers that have already exited keep their exit codes.
            exit_codes = {**exit_codes, **record.exit_codes()}
        phase = record.phase_after(exit_codes)
        with self._store.lock:
            if not self._store.is_current(record) or not record.is_active:
                raise RequestError(f"pod {title(pod)} cannot finish: it has already ended")
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
        """End a pod as the kubelet does, for example in an eviction, and return its phase.

        The running containers exit with ``exit_code``. If a ``reason`` such as Evicted is given,
        the pod is Failed. ``disruption`` is the message of the condition ``DisruptionTarget``.
        """
        record = self._store.known(uid)
        with self._store.lock:
            if not record.is_active:
                return record.phase
            phase = record.stop(exit_code, self._manager.clock.time())
            record.disrupted = disruption
        # With a reason such as Evicted, the pod is Failed even if all containers exited with 0.
        phase = Phase.FAILED if reason else phase
        self._finish(record, phase, reason, message)
        return phase

    def _finish(self, record: PodRecord, phase: Phase, reason: str = "", message: str = "") -> None:
        """Set the final phase of a pod: stop its sidecars, and free its devices and claims.

        The phase does not change before drivers have unprepared the pod's claims.
        """
        pod = record.pod
        with self._store.lock:
            if not self._store.is_current(record) or not record.is_active:
                return
            now = self._manager.clock.time()
            # Only sidecars are still running: they stop when the last app container has exited.
            for name in record.running:
                record.ended(name, 0, "Completed", now)
            record.ending = phase, reason, message
        if not self._sandboxes.remove(record, lambda: self._finish(record, phase, reason, message)):
            return
        with self._store.lock:
            # Checked again, because the pod can be deleted while its claims are unprepared.
            if not self._store.is_current(record) or not record.is_active:
                return
            self._store.end(record, phase, reason, message)
            # Under the lock, because another pod can be admitted with this UID afterwards.
            self._manager.deactivate(pod.uid)
            self._claims.remove_pods(pod.uid)
        self._manager.release(pod.uid)
        self._claims.flush()
        self.life.forget(record)
        self._events.publish(EventKind.FINISHED, f"pod {title(pod)} {phase}", pod=pod.uid)
        self._retry_resizes()

    def _fail(self, record: PodRecord, error: PermanentError) -> None:
        """Fail a pod whose claims can never be prepared (KEP-5322)."""
        text = messages.PREPARE_FAILED.format(error=error)
        self._finish(record, Phase.FAILED, messages.FAILED_PREPARE, text)

    def _delete(self, record: PodRecord) -> None:
        """Delete a pod whose containers have exited."""
        with self._store.lock:
            is_there = self._store.is_current(record)
        if is_there:
            self.terminate((record.pod.uid,))

    def terminate(self, uids: Iterable[str]) -> None:
        """Delete these pods. If one UID is unknown, raise RequestError and delete no pod.

        A pod whose claims cannot be unprepared stays, and its deletion is tried again later.
        """
        with self._store.lock:
            records = [self._store.known(uid) for uid in uids]
            prepared = [each for each in records if each.uses_dra and each.is_active]
            for record in prepared:
                record.deletion_grace = record.deletion_grace or 0.0
                # Drivers may unprepare claims only after the containers have stopped.
                record.stop(KILLED, self._manager.clock.time())
        self._remove(*(each for each in records if each not in prepared))
        for record in prepared:
            self._terminate_prepared(record)

    def _terminate_prepared(self, record: PodRecord) -> None:
        if self._sandboxes.remove(record, lambda: self._terminate_prepared(record)):
            self._remove(record)

    def _remove(self, *records: PodRecord) -> None:
        """Remove pods whose claims are not prepared, and free their devices."""
        with self._store.lock:
            records = tuple(each for each in records if self._store.is_current(each))
            for record in records:
                self._store.remove(record)
            # Under the lock, because another pod can be admitted with the same UID afterwards.
            self._claims.remove_pods(*(record.pod.uid for record in records))
        if not records:
            return
        self._manager.release(*(record.pod.uid for record in records))
        self._claims.flush()
        for record in records:
            self._runtime.remove(record.pod)
            self.life.forget(record)
            self._events.publish(
                EventKind.TERMINATED, f"pod {title(record.pod)} terminated", pod=record.pod.uid
            )
        self._retry_resizes()

    # -- sandboxes -------------------------------------------------------------------

    def resync(self, uid: str) -> None:
        """Do now what the pod's next periodic sync would do, as ``MockKubelet.resync`` does."""
        record = self._store.known(uid)
        if record.ending is not None:
            self._finish(record, *record.ending)
        elif record.deletion_grace is not None:
            if not record.running:
                self.terminate((uid,))
        elif record.is_active:
            self._containers.start_remaining(record)

    def recreate_sandbox(self, uid: str) -> None:
        """Stop the pod's containers and start them in a new sandbox."""
        record = self._store.known(uid)
        with self._store.lock:
            if record.is_active:
                record.containers_stop()
        self._runtime.remove(record.pod)
        self.life.forget(record)
        self._containers.start_again(record)

    def close(self) -> None:
        """Cancel all timers, and wait for callbacks in progress."""
        self._syncs.close()
        self.life.close()

    # -- containers ------------------------------------------------------------------

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start one container of a pod, and return the settings that it was started with."""
        return self._containers.start(self._store.known(uid), container)

    def container_options(self, uid: str, container: str) -> RunOptions:
        """Return the settings that a container got at its last start.

        Raises RequestError for an unknown pod or container, and for a container that was never
        started.
        """
        return self._containers.options(self._store.known(uid), container)

    def explain_claims(self, uid: str) -> ClaimsExplanation:
        """Explain what the claims of a pod wait for, as ``MockKubelet.explain_claims`` does."""
        from devicemanager.core.dra.report import ClaimsExplanation

        record = self._store.known(uid)
        claims = self._dra.explain(record.pod, self.attempt(record)) if record.uses_dra else ()
        at = record.sync_at
        return ClaimsExplanation(
            pod=title(record.pod),
            phase=str(record.phase),
            sandbox=record.has_sandbox,
            ending=record.is_ending,
            error=record.sync_error,
            retry_in=None if at is None else max(0.0, at - self._manager.clock.monotonic()),
            claims=claims,
        )

    def attempt(self, record: PodRecord) -> Attempt:
        """Return the result of the last attempt to prepare or unprepare a pod's claims."""
        from devicemanager.core.dra.explanation import Attempt

        at, clock, retry_at = record.sync_at, self._manager.clock, ""
        if at is not None:
            # Not the seconds until then: views must not change with every look.
            when = clock.time() + at - clock.monotonic()
            retry_at = time.strftime("%H:%M:%S UTC", time.gmtime(when))
        return Attempt(
            record.has_sandbox,
            record.sync_error,
            retry_at,
            record.is_ending,
        )

    def claim_devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        """Return the devices of a container: claim name → devices as ``pool/device``."""
        # A pod has claims of one kind; the other manager knows none of it.
        return self._claims.devices(pod, container) or self._dra.devices(pod, container)

    def allocated_resources_status(
        self, uid: str
    ) -> dict[ContainerName, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` of a pod's app containers, by container.

        Only app containers have this status (``convertToAPIContainerStatuses``, v1.32). Raises
        RequestError for a UID that neither a known pod nor the checkpoint has.
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
            claims = self._dra if record.uses_dra else self._claims
            of_claims = claims.health(record.pod, container.name)
            if resources := (*status.get(container.name, ()), *of_claims):
                shown[container.name] = tuple(sorted(resources, key=attrgetter("name")))
        return shown


def _containers_with_devices(rejected: Rejected) -> int:
    """Count the containers that were allocated devices before their pod was rejected."""
    if rejected.explanation is None:
        return 0
    begun = sum(step.container is not None for step in rejected.explanation.steps)
    failed = not rejected.reason.startswith(messages.OUT_OF.format(resource=""))
    return max(0, begun - failed)
