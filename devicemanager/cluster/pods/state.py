"""What is remembered of one pod in the API: a summary, since thousands of them are kept."""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final

import attrs

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.recorder import Subject
from devicemanager.cluster.facts import Play
from devicemanager.core.podstatus.status import PodFacts

__all__ = ["ACTIVE", "MIRROR", "PodState", "Stage", "made_up_ip"]

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod."""


class Stage(Enum):
    """How far a pod has come on this node."""

    NEW = auto()
    PENDING = auto()
    """Admitted, and to be started after a while."""
    RUNNING = auto()
    REJECTED = auto()
    FINISHED = auto()
    """Succeeded or Failed: it holds nothing."""
    DELETING = auto()
    """To be deleted: its containers have stopped."""
    DELETED = auto()


ACTIVE: Final = (Stage.PENDING, Stage.RUNNING)
"""Admitted, and not at an end."""


@attrs.define(eq=False)
class PodState:
    """One pod. What changes it is one decision at a time, but for what is marked."""

    uid: str
    namespace: str
    name: str
    play: Play
    scheduled: str = ""
    """When the scheduler bound it, as the API writes it."""
    gates: dict[str, str | None] | None = None
    is_on_host_network: bool = False
    rejection: PodFacts | None = None
    """Of a pod that the kubelet knows nothing of."""
    never_ran: bool = False
    """Whether it was deleted before anything could be rejected."""
    needs_start: bool = False
    """Whether a container could not be started."""
    version: str = ""
    """``resourceVersion`` of what we wrote last."""
    digest: int = 0
    """Of the status that we wrote last."""
    timed: dict[str, float | None] | None = None
    """When the containers were started whose end is timed."""
    # Guarded by the lock of the pods. The stage may be read without it.
    is_changed: bool = False
    """Whether its status may be another one than was written."""
    is_queued: bool = False
    needs_reconcile: bool = False
    """Whether somebody else may have changed the status."""
    holds: int = 0
    stage: Stage = Stage.NEW

    @classmethod
    def of(cls, object_: JsonObject, play: Play) -> PodState:
        """That of a pod seen for the first time."""
        metadata, spec = object_["metadata"], object_["spec"]
        found = cls(
            metadata["uid"],
            metadata["namespace"],
            metadata["name"],
            play,
            is_on_host_network=bool(spec.get("hostNetwork")),
        )
        if wanted := spec.get("readinessGates"):
            found.gates = {each["conditionType"]: None for each in wanted}
        found.note(object_)
        return found

    @property
    def title(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def subject(self) -> Subject:
        """What events about it name."""
        return Subject("Pod", self.name, self.uid, self.namespace)

    def note(self, object_: Mapping[str, Any]) -> None:
        """Take from the API what others decide: when it was bound, and its readiness gates."""
        for condition in (object_.get("status") or {}).get("conditions") or ():
            kind = condition.get("type")
            if kind == "PodScheduled":
                self.scheduled = sys.intern(str(condition.get("lastTransitionTime") or ""))
            if self.gates is not None and kind in self.gates:
                self.gates[kind] = str(condition.get("status"))

    def is_own_write(self, object_: JsonObject) -> bool:
        """Whether an object from the API is what came of our last write, and is to stay.

        A write that changes nothing is answered with the version of whoever wrote before, who
        may have deleted the pod.
        """
        metadata = object_["metadata"]
        same = bool(self.version) and metadata.get("resourceVersion") == self.version
        return same and not metadata.get("deletionTimestamp")

    def is_ours(self, object_: JsonObject) -> bool:
        """Whether the status in an object from the API should be as we wrote it: not before the
        first write, not while the next one waits, not at the end."""
        return (
            self.stage in (Stage.RUNNING, Stage.REJECTED, Stage.FINISHED)
            and bool(self.digest)
            and not self.is_queued
            and not self.is_own_write(object_)
        )

    def is_timed(self, container: str, started_at: float | None) -> bool:
        """Whether the end of this run of a container is timed already; it is from now on."""
        if self.timed is None:
            self.timed = {}
        if container in self.timed and self.timed[container] == started_at:
            return True
        self.timed[container] = started_at
        return False

    @contextmanager
    def held(self, lock: threading.Lock) -> Iterator[None]:
        """Write nothing of what happens within: only what has come of it in the end."""
        with lock:
            self.holds += 1
        try:
            yield
        finally:
            with lock:
                self.holds -= 1


def made_up_ip(uid: str) -> str:
    """An address for a pod, the same whenever it is asked for: of 198.18.0.0/15, which is kept
    for tests and leads nowhere (RFC 2544)."""
    number = zlib.crc32(uid.encode())
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 0xFF}.{1 + number % 254}"
