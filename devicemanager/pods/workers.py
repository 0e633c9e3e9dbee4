"""What happens to a pod on this node: admitted, started, admitted again, terminated.

The pods outlive a kubelet's process, so the manager is a parameter: the one of the
kubelet that runs now.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable

import attrs

from devicemanager.api.names import is_extended_resource_name
from devicemanager.core import messages
from devicemanager.core.allocation.container import PodAllocation
from devicemanager.core.errors import (
    AllocationError,
    DeviceManagerError,
    RequestError,
)
from devicemanager.core.ids import PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.refusal import Refused, refused_by_allocation
from devicemanager.core.runoptions import RunOptions
from devicemanager.events import EventKind, EventStream
from devicemanager.manager.manager import Manager
from devicemanager.pods.admission import (
    Admission,
    ContainerOutcome,
    NoContainers,
    affinity_nodes,
    merged_options,
)
from devicemanager.pods.podresources import PodSnapshot, by_name
from devicemanager.pods.records import PodRecord, PodStore, title
from devicemanager.settings import Settings


class PodWorkers:
    """The pods of the node. May be called from any thread."""

    def __init__(self, settings: Settings, events: EventStream) -> None:
        self._settings = settings
        self._events = events
        # Guards everything below. Never held over an admission.
        self._lock = threading.Lock()
        self._pods = PodStore()
        # Admitted pods that have not failed, and those that have failed since: kept, so that
        # telling PodResources costs no look at every pod.
        self._active: list[Pod] = []  # sorted by name
        self._failed: dict[PodUid, Pod] = {}
        self._version = 0
        self._snapshot: PodSnapshot | None = None
        # The containers of pods that only the checkpoint knows: running unless rebooted.
        self._containers_survive = True

    # -- admission -------------------------------------------------------------------

    def admit(self, manager: Manager, pod: Pod, *, start: bool) -> Admission:
        """Admit a new pod and, if asked to, start its containers."""
        with self._lock:
            record = self._pods.add(pod)
            self._failed.pop(pod.uid, None)  # it is another pod from now on
        known_before = not manager.is_sources_ready and bool(manager.holdings(pod.uid))
        if known_before and self._containers_survive:
            record.all_started()
        admission = self._admit(manager, record)
        if admission.admitted and start and not record.running:
            admission = self._start_all(manager, record, admission)
        if known_before:
            self._check_sources(manager)
        return admission

    def readmit(self, manager: Manager) -> None:
        """After a restart: admit every pod again that had been, and start what does not
        run any more."""
        with self._lock:
            records = [record for record in self._pods if record.admitted and record.is_active]
        for record in records:
            was_running = bool(record.running)
            if not was_running and self._settings.wait_for_plugin:
                self._wait_for_plugins(manager, record.pod)
            admission = self._admit(manager, record)
            if admission.admitted and not was_running:
                self._start_all(manager, record, admission)

    def _admit(self, manager: Manager, record: PodRecord) -> Admission:
        pod = record.pod
        try:
            self._check_known(manager, pod)
            context = record.context(manager.is_sources_ready, self._settings.quirks)
            allocation = manager.admit(pod, context)
            self._note(manager, record)
        except Refused as refused:
            return self._refuse(manager, record, refused)
        except BaseException:
            with self._lock:
                # One that was admitted before stays, with what it held.
                if not record.admitted and self._pods.get(pod.uid) is record:
                    self._pods.remove(pod.uid)
            raise
        self._events.publish(EventKind.ADMITTED, f"pod {title(pod)} admitted", pod=pod.uid)
        return _admission(manager, pod, allocation)

    def _note(self, manager: Manager, record: PodRecord) -> None:
        if self._is_gone(manager, record):
            raise refused_by_allocation(AllocationError("the pod was deleted meanwhile"))
        with self._lock:
            record.admitted = True
            if self._pods.get(record.pod.uid) is record:
                self._show(record.pod)
            self._changed()

    def _is_gone(self, manager: Manager, record: PodRecord) -> bool:
        """Whether the pod was terminated meanwhile. What it was given after that is freed:
        nobody would do so later."""
        with self._lock:
            known = self._pods.get(record.pod.uid)
        if known is None:
            manager.release(record.pod.uid)
        return known is not record

    def _refuse(self, manager: Manager, record: PodRecord, refused: Refused) -> Admission:
        pod = record.pod
        with self._lock:
            record.fail(refused.reason, refused.message)
            if self._pods.get(pod.uid) is record:
                # Under the lock: another pod may be admitted with this UID from here on.
                manager.deactivate(pod.uid)
            if self._hide(pod):
                self._failed[pod.uid] = pod
            self._changed()
        self._events.publish(EventKind.REFUSED, f"pod {title(pod)} refused: {refused}", pod=pod.uid)
        explanation = refused.explanation
        return Admission(
            pod,
            False,
            refused.reason,
            refused.message,
            NoContainers(f"pod {title(pod)} was refused: {refused}"),
            explaining=None if explanation is None else lambda: explanation,
        )

    def _check_known(self, manager: Manager, pod: Pod) -> None:
        """A resource nobody registered: refused if it was declared to us, else the pod
        runs without it, as with the reference, and a warning says so (Q14)."""
        for container, _ in pod.all_containers():
            for resource, count in container.limits.items():
                if not count or not is_extended_resource_name(resource):
                    continue
                if manager.is_known(resource):
                    continue
                if self._is_required(resource):
                    text = messages.UNREGISTERED.format(resource=resource)
                    raise refused_by_allocation(AllocationError(text))
                self._events.publish(
                    EventKind.UNKNOWN_RESOURCE,
                    f"pod {title(pod)} container {container.name} asks for {resource}, which "
                    "no plugin registered: it runs without",
                    resource=resource,
                    pod=pod.uid,
                )

    def _is_required(self, resource: ResourceName) -> bool:
        declared = resource in self._settings.declared_resources
        return self._settings.strict or (declared and "Q14" not in self._settings.quirks)

    def _wait_for_plugins(self, manager: Manager, pod: Pod) -> None:
        """Q6: give the plugins of a pod the time to come back after a reboot."""
        held = manager.holdings(pod.uid)
        resources = {resource for by_resource in held.values() for resource in by_resource}

        def back() -> bool:
            allocatable = manager.capacity().allocatable
            return all(allocatable.get(resource) for resource in resources)

        self._events.wait_for(back, self._settings.wait_for_plugin)

    # -- sources ---------------------------------------------------------------------

    def sources_ready(self, manager: Manager) -> None:
        """All pods are known now: devices of others are freed."""
        with self._lock:
            # A pod refused after a reboot holds its devices until the next allocation.
            known = frozenset(record.pod.uid for record in self._pods)
        manager.sources_ready(known)

    def _check_sources(self, manager: Manager) -> None:
        """Once every pod of the checkpoint was admitted again, all are known."""
        with self._lock:
            known = {record.pod.uid for record in self._pods}
        if not manager.is_sources_ready and manager.pods() <= known:
            self.sources_ready(manager)

    # -- end -------------------------------------------------------------------------

    def terminate(self, manager: Manager, uids: Iterable[str]) -> None:
        """Pods end and are deleted, all of them or, if one is unknown, none."""
        with self._lock:
            records = [self._pods.known(uid) for uid in uids]
            for record in records:
                self._pods.remove(record.pod.uid)
                self._hide(record.pod)
                self._failed.pop(record.pod.uid, None)
            self._changed()
        manager.release(*(record.pod.uid for record in records))
        for record in records:
            self._events.publish(
                EventKind.TERMINATED, f"pod {title(record.pod)} terminated", pod=record.pod.uid
            )

    def containers_stop(self) -> None:
        """The node goes down: no container runs any more."""
        with self._lock:
            self._containers_survive = False
            for record in self._pods:
                record.containers_stop()

    # -- containers ------------------------------------------------------------------

    def start_container(self, manager: Manager, uid: str, container: str) -> RunOptions:
        """Start one container; see ``MockKubelet.start_container``."""
        with self._lock:
            record = self._pods.known(uid)
            wanted, is_init = record.container(container)
            if not record.is_active:
                raise RequestError(f"pod {title(record.pod)} has failed: {record.message}")
        return self._start(manager, record, wanted, is_init)

    def _start(
        self, manager: Manager, record: PodRecord, container: Container, is_init: bool
    ) -> RunOptions:
        pod = record.pod
        # In the kubelet's order: a plugin that wants PreStartContainer is never asked to
        # allocate at this point, for want of devices to prepare.
        self._check_there(manager, record)
        requested = [name for name, count in container.limits.items() if count]
        manager.pre_start(pod.uid, container.name, requested)
        self._check_there(manager, record)
        self._allocate_missing(manager, pod, container, is_init)
        self._check_there(manager, record)
        options = merged_options(manager.holdings(pod.uid).get(container.name, {}))
        with self._lock:
            record.started(container, is_init)
        where = f"pod {title(pod)} container {container.name}"
        for conflict in options.conflicts:
            self._events.publish(EventKind.CONFLICT, f"{where}: {conflict}", pod=pod.uid)
        self._events.publish(EventKind.CONTAINER_STARTED, f"{where} started", pod=pod.uid)
        return options

    def _check_there(self, manager: Manager, record: PodRecord) -> None:
        if self._is_gone(manager, record):
            raise RequestError(f"pod {title(record.pod)} was terminated meanwhile")

    def _allocate_missing(
        self, manager: Manager, pod: Pod, container: Container, is_init: bool
    ) -> None:
        """Allocate now what nothing is recorded for (``GetDeviceRunContainerOptions``)."""
        held = manager.holdings(pod.uid).get(container.name, {})
        wanted = [name for name, count in container.limits.items() if count and name not in held]
        if not any(manager.is_known(name) for name in wanted):
            return
        try:
            manager.allocate_now(pod, container, is_init)
        except Refused as refused:
            raise AllocationError(str(refused.cause or refused.message)) from refused

    def _start_all(self, manager: Manager, record: PodRecord, admission: Admission) -> Admission:
        """Start every container in order; an init container that fails stops the rest."""
        outcomes = dict(admission.containers)
        for container, is_init in record.pod.all_containers():
            outcome = outcomes[container.name]
            try:
                options = self._start(manager, record, container, is_init)
                outcomes[container.name] = attrs.evolve(outcome, options=options)
            except (DeviceManagerError, ValueError) as error:
                outcomes[container.name] = attrs.evolve(outcome, error=str(error))
                self._events.publish(
                    EventKind.CONTAINER_FAILED,
                    f"pod {title(record.pod)} container {container.name} did not start: {error}",
                    pod=record.pod.uid,
                )
                if is_init:
                    break
        return attrs.evolve(admission, containers=outcomes)

    # -- reading ---------------------------------------------------------------------

    def pods(self) -> dict[str, PodRecord]:
        """The pods that are known and not deleted, by UID, in the order they came."""
        with self._lock:
            return {record.pod.uid: record for record in self._pods}

    def title_of(self, uid: PodUid) -> str:
        """A pod as people name it; by its UID if only the checkpoint knows it."""
        with self._lock:
            record = self._pods.get(uid)
        return str(uid) if record is None else title(record.pod)

    def check_known(self, uid: str) -> None:
        """Raises RequestError if no pod has this UID."""
        with self._lock:
            self._pods.known(uid)

    def snapshot(self) -> PodSnapshot:
        """The pods that PodResources may tell of."""
        snapshot = self._snapshot
        if snapshot is None:
            with self._lock:
                snapshot = self._snapshot = PodSnapshot(
                    self._version, tuple(self._active), tuple(self._failed.values())
                )
        return snapshot

    def _show(self, pod: Pod) -> None:
        """With the lock held: the pod is active; one that is shown already stays so, once."""
        self._hide(pod)
        insort(self._active, pod, key=by_name)

    def _hide(self, pod: Pod) -> bool:
        """With the lock held: the pod is not active any more. Whether it was."""
        at = bisect_left(self._active, by_name(pod), key=by_name)
        was = at < len(self._active) and self._active[at].uid == pod.uid
        if was:
            del self._active[at]
        return was

    def _changed(self) -> None:
        """With the lock held: the answer of ``shown`` is another one now."""
        self._version += 1
        self._snapshot = None


def _admission(manager: Manager, pod: Pod, allocation: PodAllocation) -> Admission:
    held = manager.holdings(pod.uid)
    containers = {
        str(container.name): ContainerOutcome(
            container.name,
            held.get(container.name, {}),
            affinity_nodes(allocation.affinities.get(container.name)),
        )
        for container, _ in pod.all_containers()
    }
    return Admission(
        pod, True, containers=containers, explaining=lambda: manager.explain(allocation)
    )
