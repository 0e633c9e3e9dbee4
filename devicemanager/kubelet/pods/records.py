"""The pods of the node, and which of their containers run.

A stand-in for the kubelet's pod manager and the container runtime: containers here are
facts, not processes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import (
    KILLED,
    ContainerStatus,
    Terminated,
    initial_status,
)
from devicemanager.core.podstatus.phase import Phase, phase_of

if TYPE_CHECKING:
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.status import PodStatus, Resources

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
    """The pods of the node as of one moment, each tuple sorted ``by_name``."""

    version: int
    """Changes whenever the pods do."""
    active: tuple[Pod, ...]
    inactive: tuple[Pod, ...] = ()
    """Rejected and finished pods, which stay known until they are deleted."""


@attrs.define(eq=False)
class PodRecord:
    """One pod that is known and not deleted."""

    pod: Pod
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    admitted: bool = False
    """Whether it has been admitted once."""
    running: frozenset[ContainerName] = frozenset()
    finished: frozenset[ContainerName] = frozenset()
    """Init containers that have run to completion."""
    restarted: frozenset[ContainerName] = frozenset()
    """Those that were started more than once."""
    statuses: dict[ContainerName, ContainerStatus] = attrs.field(factory=dict)
    """Of the containers that were started, or were to be; ``status`` knows the others."""
    has_sandbox: bool = False
    """Whether a container was started since the node came up."""
    deletion_grace: float | None = None
    """Seconds that its containers have to end, once it is to be deleted."""
    start_time: float | None = None
    """Seconds since the epoch at which the kubelet saw it first; None if an earlier one did."""
    rejected: bool = False
    """Whether it is Failed because it was not admitted."""
    unready: frozenset[str] = frozenset()
    """Containers that never get ready."""
    disrupted: str = ""
    """Why the kubelet itself ended it, if it did."""

    @property
    def is_active(self) -> bool:
        """Neither failed nor succeeded: both are for good."""
        return not self.phase.is_terminal

    def container(self, name: str) -> tuple[Container, bool]:
        """A container by name, and whether it is an init container."""
        for container, is_init in self.pod.all_containers():
            if container.name == name:
                return container, is_init
        names = ", ".join(container.name for container, _ in self.pod.all_containers())
        raise RequestError(f"pod {title(self.pod)} has no container {name!r}: it has {names}")

    def context(self, sources_ready: bool, quirks: frozenset[str]) -> AdmissionContext:
        """What admission has to know about this pod. With Q27 a container that had been
        started again counts as one that does not run."""
        running = self.running - self.restarted if "Q27" in quirks else self.running
        return AdmissionContext(sources_ready, running, self.finished)

    def status(self, name: ContainerName) -> ContainerStatus:
        """The status of one of its containers."""
        status = self.statuses.get(name)
        return initial_status(self.pod, name) if status is None else status

    def exit_codes(self) -> dict[str, int]:
        """Those of app containers that have ended and are not started again."""
        states = {
            container.name: self.status(container.name).state for container in self.pod.containers
        }
        return {
            str(name): state.exit_code
            for name, state in states.items()
            if isinstance(state, Terminated)
        }

    def started(self, container: Container, is_init: bool, now: float | None = None) -> None:
        """A container runs now (seconds since the epoch; None for earlier); an ordinary init
        container runs and ends."""
        name = container.name
        status = self.status(name).started(now)
        if is_init and not container.restartable:
            status = status.ended(0, "Completed", now)
            self.finished |= {name}
        else:
            if status.restart_count:
                self.restarted |= {name}
            self.running |= {name}
        self.statuses[name] = status
        self.has_sandbox = True
        self.phase = phase_of(self.pod, self.statuses)

    def ended(self, name: ContainerName, exit_code: int, reason: str, now: float) -> None:
        """A container has ended."""
        self.statuses[name] = self.status(name).ended(exit_code, reason, now)
        self.running -= {name}

    def waits(self, name: ContainerName, reason: str, message: str) -> None:
        """A container that does not run is to be started later."""
        self.statuses[name] = self.status(name).waits(reason, message)

    def all_started(self) -> None:
        """Every container has been started: the pod of an earlier kubelet."""
        for container, is_init in self.pod.all_containers():
            self.started(container, is_init)

    def take_over(self, statuses: Mapping[str, ContainerStatus]) -> None:
        """The pod of an earlier kubelet, with its containers as they are."""
        for container, is_init in self.pod.all_containers():
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
        """Every container that runs ends so, and the others will never start. The phase that
        makes of the pod, which is not ``end``ed yet."""
        for name in self.running:
            self.ended(name, exit_code, "Error" if exit_code else "Completed", now)
        phase = phase_of(self.pod, self.statuses, is_ending=True)
        return phase if phase.is_terminal else Phase.FAILED

    def containers_stop(self) -> None:
        """Nothing runs any more; what had finished would run again."""
        for name in (*self.running, *self.finished):
            # What containerd says of a container that it finds ended.
            self.statuses[name] = self.statuses[name].ended(255, "Unknown", None)
        self.running = self.finished = self.restarted = frozenset()
        self.has_sandbox = False

    def phase_after(self, exit_codes: Mapping[str, int]) -> Phase:
        """The pod's phase once every app container has ended, by its exit code (0 where
        none is given). Raises RequestError if the pod has no such container, or if its
        restartPolicy would start one of them again."""
        for name in exit_codes:
            self.container(name)
        failed = any(exit_codes.values())
        policy = self.pod.restart_policy
        if policy is RestartPolicy.ALWAYS or (failed and policy is RestartPolicy.ON_FAILURE):
            what = "a failed container" if policy is RestartPolicy.ON_FAILURE else "every container"
            raise RequestError(
                f"pod {title(self.pod)} cannot finish so: with restartPolicy {policy} the kubelet "
                f"starts {what} again; give the pod restartPolicy: Never"
            )
        return Phase.FAILED if failed else Phase.SUCCEEDED

    def end(self, phase: Phase, reason: str = "", message: str = "") -> None:
        """Failed or Succeeded: nothing runs any more."""
        self.phase, self.reason, self.message = phase, reason, message
        for name in self.running:
            self.statuses[name] = self.status(name).ended(KILLED, "Error", None)
        self.running = frozenset()


def pod_uid(uid: object) -> PodUid:
    """What names a pod. Raises RequestError for another value, such as its admission."""
    if not isinstance(uid, str):
        kind = type(uid).__name__
        raise RequestError(f"a pod is named by its UID, such as admission.uid: not by {kind}")
    return PodUid(uid)


class PodStore:
    """The node's pods by UID. Outlives the kubelet's process. May be used from any thread.

    Each method is one step; whoever needs several to be one holds ``lock``, which must not
    be held over an admission or a write.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """``names``: what pods are called that only the checkpoint knows, by UID."""
        self.lock = threading.RLock()
        """Guards everything below, and the fields of the records."""
        self._names = names or {}
        self._records: dict[PodUid, PodRecord] = {}
        # Sorted by name, so that telling PodResources costs no sort of all pods.
        self._active: list[Pod] = []
        self._inactive: list[Pod] = []
        self._version = 0
        self._snapshot: PodSnapshot | None = None
        self.containers_survive = True
        """Whether containers of pods that only the checkpoint knows run; not after a reboot."""

    def records(self) -> tuple[PodRecord, ...]:
        """Every pod, in the order in which they came."""
        with self.lock:
            return tuple(self._records.values())

    def uids(self) -> frozenset[PodUid]:
        """Every pod's UID."""
        with self.lock:
            return frozenset(self._records)

    def get(self, uid: PodUid) -> PodRecord | None:
        """The pod with this UID, if there is one."""
        with self.lock:
            return self._records.get(uid)

    def known(self, uid: str) -> PodRecord:
        """The pod with this UID. Raises RequestError."""
        with self.lock:
            record = self._records.get(pod_uid(uid))
            if record is None:
                raise RequestError(self._unknown(uid))
            return record

    def _unknown(self, uid: str) -> str:
        for record in self._records.values():
            if uid in (record.pod.name, title(record.pod)):
                return f"{uid} is a pod's name, its UID is {record.pod.uid}"
        return f"no pod has the UID {uid!r}: it was not admitted, or is gone"

    def title_of(self, uid: PodUid) -> str:
        """A pod as people name it; by its UID if only the checkpoint knows it, and no name was
        given."""
        record = self.get(uid)
        return self._names.get(uid, str(uid)) if record is None else title(record.pod)

    def add(self, pod: Pod, now: float | None = None) -> PodRecord:
        """A new pod, seen ``now``. Raises RequestError if its UID is taken by an active one."""
        with self.lock:
            taken = self._records.get(pod.uid)
            if taken is not None:
                if taken.is_active:
                    raise RequestError(_taken(pod, taken.pod))
                self._drop(taken)
            record = PodRecord(pod, start_time=now)
            self._records[pod.uid] = record
            self._show(record)
            return record

    def is_current(self, record: PodRecord) -> bool:
        """Whether the pod is still there; another one may have its UID by now."""
        with self.lock:
            return self._records.get(record.pod.uid) is record

    def end(self, record: PodRecord, phase: Phase, reason: str = "", message: str = "") -> None:
        """A pod has failed or succeeded; it stays known until it is removed."""
        with self.lock:
            current = self.is_current(record)
            if current:
                self._hide(record)
            record.end(phase, reason, message)
            if current:
                self._show(record)

    def remove(self, record: PodRecord) -> None:
        """Forget a pod; nothing happens if it is gone."""
        with self.lock:
            if self.is_current(record):
                self._drop(record)

    def containers_stop(self) -> None:
        """The node goes down: no container runs any more."""
        with self.lock:
            self.containers_survive = False
            for record in self._records.values():
                record.containers_stop()

    def snapshot(self) -> PodSnapshot:
        """The pods that PodResources may tell of."""
        snapshot = self._snapshot
        if snapshot is None:
            with self.lock:
                snapshot = self._snapshot = PodSnapshot(
                    self._version, tuple(self._active), tuple(self._inactive)
                )
        return snapshot

    # -- with the lock held ----------------------------------------------------------

    def _drop(self, record: PodRecord) -> None:
        del self._records[record.pod.uid]
        self._hide(record)

    def _shown_among(self, record: PodRecord) -> list[Pod]:
        return self._active if record.is_active else self._inactive

    def _show(self, record: PodRecord) -> None:
        insort(self._shown_among(record), record.pod, key=by_name)
        self._changed()

    def _hide(self, record: PodRecord) -> None:
        shown = self._shown_among(record)
        del shown[bisect_left(shown, by_name(record.pod), key=by_name)]
        self._changed()

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None


def title(pod: Pod) -> str:
    """A pod as people name it: ``namespace/name``."""
    return f"{pod.namespace}/{pod.name}"


def _taken(pod: Pod, other: Pod) -> str:
    if title(pod) == title(other):
        return f"pod {title(pod)} is admitted already: terminate it first, or name it otherwise"
    return (
        f"pod {title(pod)} has the UID {pod.uid} of pod {title(other)}: "
        "give every pod a metadata.uid of its own, or none"
    )


def api_status(
    record: PodRecord, resources: Resources | None = None, gates: Gates | None = None
) -> PodStatus:
    """A pod's status as the API has it; hold the store's lock. ``resources`` is what
    ``allocated_resources_status`` says of it."""
    # Imported here: a kubelet whose pod statuses nobody reads does not load the conditions.
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
    )
    if record.rejected:
        return rejected_status(facts)
    return pod_status(facts, record.status, resources, gates)
