"""Records of the node's pods and of the states of their containers.

They replace the kubelet's pod manager and the container runtime: containers do not run, only
their states are stored.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import NO_ENTRIES, Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import (
    KILLED,
    ContainerStatus,
    Running,
    Terminated,
    initial_status,
)
from devicemanager.core.podstatus.phase import Phase, phase_of

if TYPE_CHECKING:
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.resize import Resize
    from devicemanager.core.podstatus.status import PodStatus, Resources
    from devicemanager.core.responses import Responses
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.core.usage import CpuCounter, PodUsage

__all__ = [
    "Phase",
    "PodRecord",
    "PodSnapshot",
    "PodStore",
    "api_status",
    "by_name",
    "pod_uid",
    "title",
]

by_name = attrgetter("namespace", "name", "uid")


@attrs.frozen(eq=False, repr=False)
class PodSnapshot:
    """The pods of the node at one moment, sorted by namespace, name and UID."""

    version: int
    """Number that grows with every change of the pods."""
    active: tuple[Pod, ...]
    inactive: tuple[Pod, ...] = ()
    """Rejected and finished pods, which remain known until they are deleted."""


@attrs.define(eq=False)
class PodRecord:
    """Record of a pod that is known and not deleted, with the states of its containers."""

    pod: Pod
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    admitted: bool = False
    """True if the pod was admitted, even if it has ended since."""
    running: frozenset[ContainerName] = frozenset()
    finished: frozenset[ContainerName] = frozenset()
    """Init containers that have run to completion."""
    restarted: frozenset[ContainerName] = frozenset()
    """Containers that were started more than once."""
    statuses: dict[ContainerName, ContainerStatus] = attrs.field(factory=dict)
    """Statuses of containers that were started or failed to start. The method ``status`` also
    returns a status for other containers."""
    has_sandbox: bool = False
    """True if the pod's sandbox was created since the node booted."""
    sandbox_time: float | None = None
    """Time at which the sandbox was created, in seconds since the epoch; None if unknown."""
    uses_dra: bool = False
    """True if DRA drivers prepare the pod's claims before its sandbox is created."""
    cdi_devices: Mapping[ContainerName, tuple[str, ...]] = NO_ENTRIES
    """CDI devices that each container got at its last start. Set only for pods with DRA."""
    run_options: Mapping[ContainerName, RunOptions] = NO_ENTRIES
    """Settings that containers got at their last start, by container. Containers without settings
    are omitted."""
    sync_error: str = ""
    """Error of the last attempt to prepare or unprepare the pod's claims; empty if it succeeded."""
    sync_at: float | None = None
    """Time of the next attempt to prepare or unprepare the pod's claims, in seconds of the
    monotonic clock; None if no attempt is scheduled."""
    ending: tuple[Phase, str, str] | None = None
    """Final phase, reason and message, which the pod gets once its claims are unprepared. None
    while its containers can still run."""
    deletion_grace: float | None = None
    """Grace period of the pod's deletion in seconds; None if the pod is not being deleted."""
    deletion_time: float | None = None
    """End of the grace period, in seconds since the epoch; None if the pod is not being deleted."""
    start_time: float | None = None
    """When the kubelet first saw the pod, in seconds since the epoch; None if an earlier kubelet
    saw it first."""
    rejected: bool = False
    """True if the pod is Failed because it was rejected."""
    unready: frozenset[str] = frozenset()
    """Names of containers that never become ready."""
    disrupted: str = ""
    """Message of the condition ``DisruptionTarget``, if the kubelet has ended the pod; otherwise
    empty."""
    usage: PodUsage | None = None
    """CPU and memory that the containers use; None if unknown."""
    pull_fails: bool = False
    """True if the images of the containers cannot be pulled."""
    init_exit_code: int = 0
    """Exit code of the pod's init containers. It does not apply to sidecars."""
    responses: Responses | None = None
    """What the containers respond to ``kubectl logs``, ``exec`` and ``port-forward``. None means
    that the log is empty, and that commands and forwarded connections are rejected."""
    resize: Resize | None = None
    """The pod's pending resize and its resize in progress; None if the pod has neither."""
    resize_waits: bool = False
    """True if a resize stays in progress until ``complete_resize`` is called."""

    @property
    def is_active(self) -> bool:
        """True if the pod has neither failed nor succeeded."""
        return not self.phase.is_terminal

    @property
    def is_ending(self) -> bool:
        """True if the pod terminates as soon as its claims are unprepared."""
        return self.is_active and (self.ending is not None or self.deletion_grace is not None)

    def synced(self) -> None:
        """Record that the pod's claims were prepared or unprepared without an error.

        This clears ``sync_error`` and ``sync_at``.
        """
        self.sync_error, self.sync_at = "", None

    def container(self, name: str) -> tuple[Container, bool]:
        """Return the container with this name, and whether it is an init container.

        Raises RequestError for an unknown name.
        """
        ephemeral = ((each, False) for each in self.pod.ephemeral_containers)
        containers = (*self.pod.all_containers(), *ephemeral)
        for container, is_init in containers:
            if container.name == name:
                return container, is_init
        names = ", ".join(container.name for container, _ in containers)
        raise RequestError(
            f"unknown container {name!r} of pod {title(self.pod)}: use one of {names}"
        )

    def context(self, sources_ready: bool, quirks: frozenset[str]) -> AdmissionContext:
        """Return what the kubelet knows at the admission of this pod: which containers are running
        or have completed, and whether all pods of the node are known (``sources_ready``).

        With quirk Q27 (a kubelet bug), a container that was restarted counts as not running.
        """
        running = self.running - self.restarted if "Q27" in quirks else self.running
        return AdmissionContext(sources_ready, running, self.finished)

    def running_since(self) -> Iterator[tuple[Container, float]]:
        """Yield each running container and its start time, in seconds since the epoch. A container
        that an earlier kubelet started has no start time, and is omitted."""
        for container, _ in self.pod.all_containers():
            state = self.status(container.name).state
            if isinstance(state, Running) and state.started_at is not None:
                yield container, state.started_at

    def status(self, name: ContainerName) -> ContainerStatus:
        """Return the status of one container of the pod."""
        status = self.statuses.get(name)
        return initial_status(self.pod, name) if status is None else status

    def exit_codes(self) -> dict[str, int]:
        """Return the exit codes of terminated app containers by name."""
        states = {
            container.name: self.status(container.name).state for container in self.pod.containers
        }
        return {
            str(name): state.exit_code
            for name, state in states.items()
            if isinstance(state, Terminated)
        }

    def started(self, container: Container, is_init: bool, now: float | None = None) -> None:
        """Record that a container was started.

        An init container that is not a sidecar does not run here: it is recorded as started and
        exited.

        ``now`` is in seconds since the epoch; None if an earlier kubelet started the container.
        """
        name = container.name
        status = self.status(name).started(now)
        if is_init and not container.restartable:
            code = self.init_exit_code
            status = status.ended(code, "Error" if code else "Completed", now)
            self.finished |= set() if code else {name}
        else:
            # Kubelets with quirk Q27 take a restarted container for one that does not run.
            if status.restart_count:
                self.restarted |= {name}
            self.running |= {name}
        self.statuses[name] = status
        self.sandbox_created(now)
        phase = phase_of(self.pod, self.statuses)
        # A failed init container can end the pod, but ``end`` sets the final phase.
        if not phase.is_terminal:
            self.phase = phase

    def sandbox_created(self, now: float | None) -> None:
        """Record that a sandbox was created at the time ``now``, if the pod does not have one."""
        if not self.has_sandbox:
            self.has_sandbox, self.sandbox_time = True, now

    def waits_for_init(self, container: Container, is_init: bool) -> bool:
        """True if the container is an init container that must run again before the pod continues.

        Such a container was started and has not succeeded. The result is False for a sidecar.
        """
        return (
            is_init
            and not container.restartable
            and container.name not in self.finished
            and self.status(container.name).was_started
        )

    def ended(self, name: ContainerName, exit_code: int, reason: str, now: float) -> None:
        """Record that a container has exited."""
        self.statuses[name] = self.status(name).ended(exit_code, reason, now)
        self.running -= {name}

    @property
    def was_started(self) -> bool:
        """True if a container was ever started. Before that, the pod can already have a sandbox."""
        return any(status.was_started for status in self.statuses.values())

    def set_waiting(self, name: ContainerName, reason: str, message: str) -> None:
        """Record that a container is in the state Waiting, with a reason and a message."""
        self.statuses[name] = self.status(name).waits(reason, message)

    def all_started(self) -> None:
        """Record that all containers were started by an earlier kubelet."""
        for container, is_init in self.pod.all_containers():
            self.started(container, is_init)

    def take_over(self, statuses: Mapping[str, ContainerStatus]) -> None:
        """Restore the container statuses of a pod that an earlier kubelet ran."""
        ephemeral = ((each, False) for each in self.pod.ephemeral_containers)
        for container, is_init in (*self.pod.all_containers(), *ephemeral):
            status = statuses.get(container.name)
            if status is None or not status.was_started:
                continue
            self.statuses[container.name] = status
            self.has_sandbox = True
            if status.is_running:
                self.running |= {container.name}
                self.restarted |= {container.name} if status.restart_count else set()
            elif is_init and not container.restartable and status.has_succeeded:
                self.finished |= {container.name}
        self.phase = phase_of(self.pod, self.statuses)

    def stop(self, exit_code: int, now: float) -> Phase:
        """Record that all running containers exit with ``exit_code``. Return the resulting phase.

        Containers that do not run are assumed never to start again. This method does not set the
        phase; call ``end`` with the result.
        """
        # ``ended`` replaces the set ``running``, so the loop still sees the original set.
        for name in self.running:
            self.ended(name, exit_code, "Error" if exit_code else "Completed", now)
        # Containers that never started make the pod Failed: it can no longer succeed.
        phase = phase_of(self.pod, self.statuses, is_ending=True)
        return phase if phase.is_terminal else Phase.FAILED

    def containers_stop(self) -> None:
        """Record that no container of the pod runs, and that all init containers must run again.

        Called when the node or the pod's sandbox has gone down.
        """
        for name in (*self.running, *self.finished):
            # The status that containerd reports for a container that it finds dead.
            self.statuses[name] = self.statuses[name].ended(255, "Unknown", None)
        self.running = self.finished = self.restarted = frozenset()
        self.cdi_devices = NO_ENTRIES
        self.has_sandbox = False

    def remove_containers(self) -> list[ContainerName]:
        """Record that all containers, except ephemeral ones, are removed before they start again.

        Returns the names of the containers that were running.
        """
        names = [container.name for container, _ in self.pod.all_containers()]
        stopped = [name for name in names if name in self.running]
        for name in names:
            if self.status(name).was_started:
                self.statuses[name] = self.status(name).removed()
        self.running -= set(names)
        self.finished = frozenset()
        return stopped

    def phase_after(self, exit_codes: Mapping[str, int]) -> Phase:
        """Return the phase of the pod after all app containers exit with these codes.

        Missing exit codes count as 0. Raises RequestError for an unknown app container, or if the
        pod's restartPolicy would restart one of the containers.
        """
        names = [container.name for container in self.pod.containers]
        for name in exit_codes:
            if name not in names:
                raise RequestError(
                    f"unknown app container {name!r} of pod {title(self.pod)}: "
                    f"use one of {', '.join(names)}"
                )
        failed = any(exit_codes.values())
        policy = self.pod.restart_policy
        if policy is RestartPolicy.ALWAYS or (failed and policy is RestartPolicy.ON_FAILURE):
            what = "a failed container" if policy is RestartPolicy.ON_FAILURE else "every container"
            raise RequestError(
                f"pod {title(self.pod)} cannot finish: with restartPolicy {policy} the kubelet "
                f"restarts {what}; use restartPolicy: Never"
            )
        return Phase.FAILED if failed else Phase.SUCCEEDED

    def end(self, phase: Phase, reason: str = "", message: str = "") -> None:
        """Set the pod's final phase, Failed or Succeeded. Mark running containers as exited."""
        self.phase, self.reason, self.message = phase, reason, message
        for name in self.running:
            self.statuses[name] = self.status(name).ended(KILLED, "Error", None)
        self.running = frozenset()


# Users may pass an Admission or a manifest by mistake, which would cause a KeyError later.
def pod_uid(uid: object) -> PodUid:
    """Return a UID unchanged if it is a string. Raises RequestError for any other value, such as an
    ``Admission``."""
    if not isinstance(uid, str):
        kind = type(uid).__name__
        raise RequestError(f"invalid pod UID: expected a string such as admission.uid, not {kind}")
    return PodUid(uid)


class PodStore:
    """The node's pods by UID; thread-safe. The store outlives the kubelet's process.

    Each method is atomic. Hold ``lock`` to combine several calls, but not during an admission or
    a checkpoint write.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """``names`` maps the UIDs of pods that are only in the checkpoint to their names."""
        # Reentrant: methods call each other, and workers hold it during several calls.
        self.lock = threading.RLock()
        """Lock for the state of the store and for the fields of all records."""
        self._names = names or {}
        self._records: dict[PodUid, PodRecord] = {}
        # Sorted by name, because PodResources lists pods in this order.
        self._active: list[Pod] = []
        self._inactive: list[Pod] = []
        self._version = 0
        self._snapshot: PodSnapshot | None = None
        self.containers_survive = True
        """True if the containers of pods that are only in the checkpoint are still running; False
        after a reboot."""
        self.cpu_counter: CpuCounter | None = None
        """Counter of the node's CPU time; None if the CPU time is not known."""
        self.node_labels: Callable[[], Mapping[str, str]] = dict
        """Function that returns the labels of the Node object; no labels outside of a cluster."""

    def records(self) -> tuple[PodRecord, ...]:
        """Return the records of all pods, in the order in which they were added."""
        with self.lock:
            # A copy: callers iterate without the lock, while other threads add and remove pods.
            return tuple(self._records.values())

    def uids(self) -> frozenset[PodUid]:
        """Return the UIDs of all pods."""
        with self.lock:
            return frozenset(self._records)

    def get(self, uid: PodUid) -> PodRecord | None:
        """Return the record of the pod with this UID; None if the UID is unknown."""
        with self.lock:
            return self._records.get(uid)

    def known(self, uid: str) -> PodRecord:
        """Return the record of the pod with this UID. Raises RequestError for an unknown UID."""
        with self.lock:
            record = self._records.get(pod_uid(uid))
            if record is None:
                raise RequestError(self._unknown(uid))
            return record

    def _unknown(self, uid: str) -> str:
        for record in self._records.values():
            # A common mistake: pods are admitted by name and identified by UID.
            if uid in (record.pod.name, title(record.pod)):
                return f"{uid} is the name of a pod: use its UID {record.pod.uid}"
        return f"no pod has the UID {uid!r}: it was not admitted, or was deleted"

    def title_of(self, uid: PodUid) -> str:
        """Return a pod's name for people, or its UID if the name is unknown."""
        record = self.get(uid)
        return self._names.get(uid, str(uid)) if record is None else title(record.pod)

    def add(self, pod: Pod, now: float | None = None) -> PodRecord:
        """Add a pod that the kubelet first sees at the time ``now``, and return its record.

        ``now`` is in seconds since the epoch. Raises RequestError if an active pod has the same
        UID.
        """
        with self.lock:
            existing = self._records.get(pod.uid)
            if existing is not None:
                # A finished pod is replaced by a new pod with the same UID, such as a static pod
                # that was recreated.
                if existing.is_active:
                    raise RequestError(_uid_in_use(pod, existing.pod))
                self._drop(existing)
            record = PodRecord(pod, start_time=now)
            self._records[pod.uid] = record
            self._show(record)
            return record

    def is_current(self, record: PodRecord) -> bool:
        """True if the store has this record. False if its pod was deleted, even if a new pod has
        the same UID."""
        with self.lock:
            return self._records.get(record.pod.uid) is record

    def replace(self, record: PodRecord, pod: Pod) -> None:
        """Replace the pod of a record by a newer object with the same UID."""
        with self.lock:
            if self.is_current(record):
                self._hide(record)
                record.pod = pod
                self._show(record)

    def end(self, record: PodRecord, phase: Phase, reason: str = "", message: str = "") -> None:
        """Set the final phase of a pod. The pod remains known until it is removed."""
        with self.lock:
            current = self.is_current(record)
            # Before the phase changes, because the phase decides in which list the pod is.
            if current:
                self._hide(record)
            record.end(phase, reason, message)
            if current:
                self._show(record)

    def remove(self, record: PodRecord) -> None:
        """Remove a pod; do nothing if it is already deleted."""
        with self.lock:
            if self.is_current(record):
                self._drop(record)

    def containers_stop(self) -> None:
        """Record that the node goes down: the containers of all pods stop."""
        with self.lock:
            self.containers_survive = False
            for record in self._records.values():
                record.containers_stop()

    def snapshot(self) -> PodSnapshot:
        """Return the active and the inactive pods at this moment, for PodResources."""
        # Read without the lock: a snapshot never changes, and most calls find the pods unchanged.
        snapshot = self._snapshot
        if snapshot is None:
            with self.lock:
                snapshot = self._snapshot = PodSnapshot(
                    self._version, tuple(self._active), tuple(self._inactive)
                )
        return snapshot

    # -- must be called with the lock held -------------------------------------------

    def _drop(self, record: PodRecord) -> None:
        del self._records[record.pod.uid]
        self._hide(record)

    def _list_of(self, record: PodRecord) -> list[Pod]:
        return self._active if record.is_active else self._inactive

    def _show(self, record: PodRecord) -> None:
        # A binary search instead of a sort, because pods are added one at a time.
        insort(self._list_of(record), record.pod, key=by_name)
        self._changed()

    def _hide(self, record: PodRecord) -> None:
        pods = self._list_of(record)
        # The key is unique, because it contains the UID.
        del pods[bisect_left(pods, by_name(record.pod), key=by_name)]
        self._changed()

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None


def title(pod: Pod) -> str:
    """Return a pod's name for people: ``namespace/name``."""
    return f"{pod.namespace}/{pod.name}"


def _uid_in_use(pod: Pod, other: Pod) -> str:
    if title(pod) == title(other):
        return f"pod {title(pod)} is already admitted: terminate it first, or use another name"
    return (
        f"pod {title(pod)} has the UID {pod.uid} of pod {title(other)}: "
        "use a unique metadata.uid for every pod, or none"
    )


def api_status(
    record: PodRecord, resources: Resources | None = None, gates: Gates | None = None
) -> PodStatus:
    """Return a pod's status as in the Pod object. Must be called with the store's lock held.

    ``resources`` is the pod's ``allocatedResourcesStatus``; ``gates`` are its readiness gates.
    """
    # Imported here: it loads the conditions, which a kubelet needs only for a pod status.
    from devicemanager.core.podstatus.status import PodFacts, pod_status, rejected_status

    facts = PodFacts(
        record.pod,
        record.phase,
        record.reason,
        record.message,
        record.start_time,
        record.has_sandbox,
        record.unready,
        record.disrupted,
        record.resize,
        record.sandbox_time,
    )
    if record.rejected:
        return rejected_status(facts)
    return pod_status(facts, record.status, resources, gates)
