"""The pods of one node that exist on the API server (``pkg/kubelet/pod/pod_manager.go``).

A node stores a summary of each pod, not the object: a process has tens of thousands of pods.
"""

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
from devicemanager.cluster.client.recorder import ObjectReference
from devicemanager.cluster.container_behaviour import PodBehaviour
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.errors import RequestError
from devicemanager.core.podstatus.status import PodFacts

__all__ = ["ACTIVE", "MIRROR", "PodManager", "PodState", "Stage", "fake_ip"]

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a mirror pod."""


class Stage(Enum):
    """Stage of a pod's life on this node."""

    NEW = auto()
    PENDING = auto()
    """Admitted; its containers start after a delay."""
    RUNNING = auto()
    REJECTED = auto()
    FINISHED = auto()
    """Succeeded or Failed; it has no devices."""
    DELETING = auto()
    """Its containers have stopped; it is deleted next."""
    DELETED = auto()


ACTIVE: Final = (Stage.PENDING, Stage.RUNNING)
"""Stages of admitted pods that have not ended."""
_LAST: Final = (Stage.DELETING, Stage.DELETED)


@attrs.define(eq=False)
class PodState:
    """Summary of one pod. Only the sync loop changes it, except where noted."""

    uid: str
    namespace: str
    name: str
    behaviour: PodBehaviour
    scheduled: str = ""
    """Time of binding, as in the API."""
    gates: dict[str, str | None] | None = None
    """Status of the conditions in its readiness gates."""
    is_on_host_network: bool = False
    rejection: PodFacts | None = None
    """Status of a pod that was rejected before the kubelet got it."""
    never_ran: bool = False
    """True if it was deleted before its admission."""
    needs_start: bool = False
    """True if a container failed to start."""
    version: str = ""
    """``resourceVersion`` after the last write."""
    digest: int = 0
    """Hash of the status that was written last."""
    # None instead of an empty dict saves 64 bytes in each of thousands of pods.
    timed: dict[str, float | None] | None = None
    """Start times of the containers whose end is timed."""
    # Guarded by ``PodManager.lock``. The stage can be read without it.
    is_changed: bool = False
    """True if its status may differ from the one written last."""
    is_queued: bool = False
    """True if a write is in the work queue."""
    needs_reconcile: bool = False
    """True if another client may have changed the status."""
    holds: int = 0
    """Number of ``held`` blocks; no write is queued inside them."""
    stage: Stage = Stage.NEW

    @classmethod
    def of(cls, object_: JsonObject, behaviour: PodBehaviour) -> PodState:
        """Return the summary of a new pod."""
        # The object itself is not stored: its JSON is several times as large as the summary.
        metadata, spec = object_["metadata"], object_["spec"]
        found = cls(
            metadata["uid"],
            metadata["namespace"],
            metadata["name"],
            behaviour,
            is_on_host_network=bool(spec.get("hostNetwork")),
        )
        if wanted := spec.get("readinessGates"):
            found.gates = {each["conditionType"]: None for each in wanted}
        found.note(object_)
        return found

    @property
    def title(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> ObjectReference:
        """Reference for events about it."""
        return ObjectReference("Pod", self.name, self.uid, self.namespace)

    def note(self, object_: Mapping[str, Any]) -> None:
        """Store what other components decide: the time of binding, and the readiness gates."""
        for condition in (object_.get("status") or {}).get("conditions") or ():
            kind = condition.get("type")
            if kind == "PodScheduled":
                # Pods that were bound in the same second share one string.
                self.scheduled = sys.intern(str(condition.get("lastTransitionTime") or ""))
            if self.gates is not None and kind in self.gates:
                self.gates[kind] = str(condition.get("status"))

    def is_own_write(self, object_: JsonObject) -> bool:
        """True if an object is the result of our last write and needs no reaction.

        The response to a patch without effect has the version of the last writer, which may
        have been a deletion.
        """
        metadata = object_["metadata"]
        same = bool(self.version) and metadata.get("resourceVersion") == self.version
        return same and not metadata.get("deletionTimestamp")

    def must_match(self, object_: JsonObject) -> bool:
        """True if the status in an object must be the one that was written last.

        It need not be before the first write, while a write is queued, or during deletion.
        """
        return (
            self.stage in (Stage.RUNNING, Stage.REJECTED, Stage.FINISHED)
            and bool(self.digest)
            and not self.is_queued
            and not self.is_own_write(object_)
        )

    def is_timed(self, container: str, started_at: float | None) -> bool:
        """True if the end of this run of a container is timed; mark it as timed."""
        if self.timed is None:
            self.timed = {}
        if container in self.timed and self.timed[container] == started_at:
            return True
        self.timed[container] = started_at
        return False

    @contextmanager
    def held(self, lock: threading.Lock) -> Iterator[None]:
        """Queue no write inside the block, so that only the result is written."""
        with lock:
            self.holds += 1
        try:
            yield
        finally:
            with lock:
                self.holds -= 1


class PodManager:
    """Pods by UID. Thread-safe."""

    __slots__ = ("_node", "_pods", "lock")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self.lock = threading.Lock()
        """Guards the dict of pods and the marked fields of ``PodState``. Only code that takes
        no lock runs under it."""
        self._pods: dict[str, PodState] = {}

    def get(self, uid: str) -> PodState | None:
        """Return a pod, or None."""
        # Without the lock, because callers hold locks of the kubelet; a dict can be read at any
        # time.
        return self._pods.get(uid)

    def known(self, uid: str) -> PodState:
        """Return a pod. Raises RequestError for an unknown UID."""
        pod = self._pods.get(uid)
        if pod is None:
            raise RequestError(f"node {self._node.name} has no pod with the UID {uid!r}")
        return pod

    def all(self) -> tuple[PodState, ...]:
        """Return all pods."""
        with self.lock:
            return tuple(self._pods.values())

    def add(self, pod: PodState) -> None:
        """Add a pod of the API server."""
        with self.lock:
            self._pods[pod.uid] = pod

    def remove(self, uid: str) -> PodState | None:
        """Remove and return a pod that was deleted; None if it is unknown."""
        with self.lock:
            return self._pods.pop(uid, None)

    def move(self, pod: PodState, to: Stage, *only_from: Stage) -> bool:
        """Change a pod's stage, if it is in one of ``only_from``; return True if it changed.

        Without ``only_from`` any stage except DELETING and DELETED changes. DELETED is always
        reached.
        """
        with self.lock:
            may = pod.stage in only_from if only_from else pod.stage not in _LAST
            # DELETED always: the API server no longer has the pod.
            if may or to is Stage.DELETED:
                pod.stage = to
                return True
            return False

    def free(self, pod: PodState) -> None:
        """Let the kubelet remove the pod and free its devices."""
        if self._node.kubelet.has_pod(pod.uid):
            self._node.kubelet.terminate(pod.uid)


def fake_ip(uid: str) -> str:
    """Return the IP address of a pod: stable, and from 198.18.0.0/15.

    That range is reserved for benchmarks (RFC 2544), so no connection can reach a real host.
    """
    number = zlib.crc32(uid.encode())
    return f"198.{18 + (number >> 16 & 1)}.{number >> 8 & 0xFF}.{1 + number % 254}"
