"""The pods of the node, and which of their containers run.

A stand-in for the kubelet's pod manager and the container runtime: containers here are
facts, not processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import attrs

from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod


class Phase(StrEnum):
    """``status.phase``, as far as admission and start decide it."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"


@attrs.define(eq=False)
class PodRecord:
    """One pod that is known and not deleted."""

    pod: Pod
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    admitted: bool = False
    """Whether it has been admitted once; only then is it shown to others."""
    running: frozenset[ContainerName] = frozenset()
    finished: frozenset[ContainerName] = frozenset()
    """Init containers that have run to completion."""

    @property
    def is_active(self) -> bool:
        """Not failed; a refused pod is Failed for good."""
        return self.phase is not Phase.FAILED

    def container(self, name: str) -> tuple[Container, bool]:
        """A container by name, and whether it is an init container."""
        for container, is_init in self.pod.all_containers():
            if container.name == name:
                return container, is_init
        names = ", ".join(container.name for container, _ in self.pod.all_containers())
        raise RequestError(f"pod {title(self.pod)} has no container {name!r}: it has {names}")

    def context(self, sources_ready: bool, quirks: frozenset[str]) -> AdmissionContext:
        """What admission has to know about this pod."""
        return AdmissionContext(sources_ready, self.running, self.finished, quirks)

    def started(self, container: Container, is_init: bool) -> None:
        """A container runs now; an ordinary init container runs and ends."""
        if is_init and not container.restartable:
            self.finished |= {container.name}
        else:
            self.running |= {container.name}
            self.phase = Phase.RUNNING

    def all_started(self) -> None:
        """Every container has been started: the pod of an earlier kubelet."""
        for container, is_init in self.pod.all_containers():
            self.started(container, is_init)

    def containers_stop(self) -> None:
        """Nothing runs any more; what had finished would run again."""
        self.running = self.finished = frozenset()

    def fail(self, reason: str, message: str) -> None:
        """Refused: phase Failed, nothing runs."""
        self.phase, self.reason, self.message = Phase.FAILED, reason, message
        self.running = frozenset()


class PodStore:
    """Pods by UID. Not thread-safe: its owner guards it."""

    def __init__(self) -> None:
        self._records: dict[PodUid, PodRecord] = {}

    def __iter__(self) -> Iterator[PodRecord]:
        """Every pod, in the order in which they came."""
        return iter(tuple(self._records.values()))

    def get(self, uid: PodUid) -> PodRecord | None:
        return self._records.get(uid)

    def known(self, uid: str) -> PodRecord:
        """The pod with this UID. Raises RequestError."""
        record = self._records.get(PodUid(uid))
        if record is None:
            raise RequestError(self._unknown(uid))
        return record

    def _unknown(self, uid: str) -> str:
        for record in self._records.values():
            if uid in (record.pod.name, title(record.pod)):
                return f"{uid} is a pod's name, its UID is {record.pod.uid}"
        return f"no pod has the UID {uid!r}: it was not admitted, or is gone"

    def add(self, pod: Pod) -> PodRecord:
        """A new pod. Raises RequestError if its UID is taken by an active one."""
        taken = self._records.get(pod.uid)
        if taken is not None:
            if taken.is_active:
                raise RequestError(_taken(pod, taken.pod))
            del self._records[pod.uid]
        record = PodRecord(pod)
        self._records[pod.uid] = record
        return record

    def remove(self, uid: PodUid) -> PodRecord | None:
        return self._records.pop(uid, None)


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
