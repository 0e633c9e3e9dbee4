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

from devicemanager.cluster.facts import Play
from devicemanager.cluster.protocol import JsonObject
from devicemanager.cluster.recorder import Subject
from devicemanager.core.podstatus.status import PodFacts

__all__ = ["MIRROR", "PodState", "Stage", "made_up_ip"]

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod."""


class Stage(Enum):
    """How far a pod has come on this node."""

    NEW = auto()
    PENDING = auto()
    """Admitted, and to be started after a while."""
    RUNNING = auto()
    REFUSED = auto()
    DONE = auto()
    """Succeeded or Failed: it holds nothing."""
    LEAVING = auto()
    """To be deleted: its containers have stopped."""
    GONE = auto()


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
    refusal: PodFacts | None = None
    """Of a pod that the kubelet knows nothing of."""
    never_ran: bool = False
    """Whether it was deleted before anything could be refused."""
    is_unstarted: bool = False
    """Whether a container could not be started."""
    version: str = ""
    """``resourceVersion`` of what we told last."""
    digest: int = 0
    """Of what we told last."""
    watched: dict[str, float | None] | None = None
    """When the containers were started whose end is timed."""
    # Guarded by the lock of the pods. The stage may be read without it.
    is_dirty: bool = False
    is_queued: bool = False
    is_suspect: bool = False
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

    def is_echo(self, object_: JsonObject) -> bool:
        """Whether an object from the API is what came of our last words, and is to stay.

        Words that changed nothing are answered with the version of whoever spoke before, who
        may have deleted the pod.
        """
        metadata = object_["metadata"]
        same = bool(self.version) and metadata.get("resourceVersion") == self.version
        return same and not metadata.get("deletionTimestamp")

    def is_settled(self, object_: JsonObject) -> bool:
        """Whether its status is none of ours any more, or not yet."""
        return (
            self.stage in (Stage.NEW, Stage.PENDING, Stage.LEAVING, Stage.GONE)
            or self.is_queued
            or self.is_echo(object_)
            or not self.digest
        )

    def watches(self, container: str, started_at: float | None) -> bool:
        """Whether the end of this run of a container is timed already; it is from now on."""
        if self.watched is None:
            self.watched = {}
        if container in self.watched and self.watched[container] == started_at:
            return True
        self.watched[container] = started_at
        return False

    @contextmanager
    def held(self, lock: threading.Lock) -> Iterator[None]:
        """Tell nothing of what happens within: only what has come of it in the end."""
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
