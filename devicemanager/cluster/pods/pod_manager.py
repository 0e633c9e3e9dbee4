"""The pods of one node that exist on the API server (``pkg/kubelet/pod/pod_manager.go``).

A node stores a summary of each pod instead of the Pod object, because a process can have tens of
thousands of pods.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final

import attrs

from devicemanager.client.protocol import JsonObject
from devicemanager.client.recorder import ObjectReference
from devicemanager.cluster.container_behaviour import PodBehaviour, own_annotations
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.errors import RequestError
from devicemanager.core.podstatus.conditions import ResizeCondition
from devicemanager.core.podstatus.status import PodFacts

__all__ = ["ACTIVE", "MIRROR", "PodManager", "PodState", "Stage"]

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation that marks a mirror pod."""


class Stage(Enum):
    """Stage in the life of a pod on its node."""

    NEW = auto()
    PENDING = auto()
    """The pod was admitted, and its containers start after a delay."""
    RUNNING = auto()
    REJECTED = auto()
    FINISHED = auto()
    """The pod is Succeeded or Failed, and has no devices."""
    DELETING = auto()
    """The containers of the pod have stopped, and the pod is going to be deleted."""
    DELETED = auto()


ACTIVE: Final = (Stage.PENDING, Stage.RUNNING)
"""Stages of admitted pods that have not ended."""
_RESIZE_CONDITIONS: Final = frozenset(ResizeCondition)
_LAST: Final = (Stage.DELETING, Stage.DELETED)


@attrs.define(eq=False)
class PodState:
    """Summary of one pod on its node.

    The sync loop changes most fields. Writes of the status change ``version``, ``digest`` and
    ``has_resize_conditions``. Events of the kubelet set ``needs_start``, and the periodic
    ``reconcile`` clears it.
    """

    uid: str
    namespace: str
    name: str
    behaviour: PodBehaviour
    annotations: tuple[tuple[str, str], ...] = ()
    """Annotations from which ``behaviour`` was read."""
    scheduled: str = ""
    """Time at which the pod was bound, as in its condition PodScheduled; empty if not known."""
    gates: dict[str, str | None] | None = None
    """Status of each condition in the pod's readiness gates, by type; None without gates."""
    is_on_host_network: bool = False
    ip: str = ""
    """IP address of the pod. While the pod runs, no other pod has this address. Empty before the
    first start, and for a pod in the network of the host."""
    rejection: PodFacts | None = None
    """Data for the status of a pod that was rejected or that was deleted before its admission. The
    kubelet does not have such a pod. None for all other pods."""
    never_ran: bool = False
    """True if the pod was deleted before its admission."""
    needs_start: bool = False
    """True if a container of the pod failed to start, so that the node must start it again."""
    resize_summary: str | None = None
    """Resources of the pod as text, for events about a resize. None until a resize is requested or
    an ephemeral container is added."""
    has_resize_conditions: bool = False
    """True if the pod's status on the API server, as last read or written, has a condition about a
    resize."""
    generation: int = 0
    """``metadata.generation`` of the newest object; 0 from API servers up to 1.32."""
    version: str = ""
    """``resourceVersion`` of the pod after this node's last write."""
    digest: int = 0
    """Hash of the status that was written last."""
    # None instead of an empty dict saves 64 bytes per pod.
    timed: dict[str, float | None] | None = None
    """Start times, in Unix seconds, of the containers that have an exit timer. The keys are
    container names. None before the first timer."""
    # Guarded by ``PodManager.lock``. The stage can be read without it.
    is_queued: bool = False
    """True if a write of the status is in the work queue."""
    needs_reconcile: bool = False
    """True if another client can have changed the status."""
    # A number, because ``with`` blocks can be nested: a start can be part of an admission.
    holds: int = 0
    """Number of running ``with`` blocks of the method ``held``. While it is above 0, no write is
    queued."""
    stage: Stage = Stage.NEW

    @classmethod
    def of(cls, object_: JsonObject, behaviour: PodBehaviour) -> PodState:
        """Create the summary of a new pod from its Pod object."""
        # The object is not stored, because its JSON is several times as large as the summary.
        metadata, spec = object_["metadata"], object_["spec"]
        found = cls(
            metadata["uid"],
            metadata["namespace"],
            metadata["name"],
            behaviour,
            own_annotations(metadata),
            is_on_host_network=bool(spec.get("hostNetwork")),
        )
        # A pod that ran under an earlier process keeps its address.
        if not found.is_on_host_network:
            found.ip = str((object_.get("status") or {}).get("podIP") or "")
        if wanted := spec.get("readinessGates"):
            found.gates = {each["conditionType"]: None for each in wanted}
        found.note(object_)
        return found

    @property
    def title(self) -> str:
        """Namespace and name of the pod, as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> ObjectReference:
        """Reference to the pod for Kubernetes events."""
        return ObjectReference("Pod", self.name, self.uid, self.namespace)

    def note(self, object_: Mapping[str, Any]) -> None:
        """Store values of this Pod object: the generation, the time of binding, the conditions in
        readiness gates, and whether conditions about a resize exist."""
        self.generation = object_["metadata"].get("generation") or 0
        self.note_conditions((object_.get("status") or {}).get("conditions") or ())
        for condition in (object_.get("status") or {}).get("conditions") or ():
            kind = condition.get("type")
            if kind == "PodScheduled":
                # Pods that were bound in the same second share one string.
                self.scheduled = sys.intern(str(condition.get("lastTransitionTime") or ""))
            if self.gates is not None and kind in self.gates:
                self.gates[kind] = str(condition.get("status"))

    def note_conditions(self, conditions: Iterable[Mapping[str, Any]]) -> None:
        """Store whether one of the conditions on the API server is about a resize."""
        self.has_resize_conditions = any(
            each.get("type") in _RESIZE_CONDITIONS for each in conditions
        )

    def is_own_write(self, object_: JsonObject) -> bool:
        """True if a Pod object has the resource version that this node's last write returned.

        Always False for an object that is marked for deletion, because its version can come from
        another client's deletion. The server returns that version even for a write that changes
        nothing.
        """
        metadata = object_["metadata"]
        same = bool(self.version) and metadata.get("resourceVersion") == self.version
        return same and not metadata.get("deletionTimestamp")

    def must_match(self, object_: JsonObject) -> bool:
        """True if the status in a Pod object must equal the status that was written last.

        False before the pod starts, before the first write, while a write is queued, and during
        deletion. Also False for an object that results from a write of this node.
        """
        return (
            self.stage in (Stage.RUNNING, Stage.REJECTED, Stage.FINISHED)
            and bool(self.digest)
            and not self.is_queued
            and not self.is_own_write(object_)
        )

    def is_timed(self, container: str, started_at: float | None) -> bool:
        """True if a timer is already set for the exit of this run of a container.

        If it returns False, it also records that the caller sets a timer. ``started_at`` is the
        start time of the container, which identifies the run.
        """
        if self.timed is None:
            self.timed = {}
        if container in self.timed and self.timed[container] == started_at:
            return True
        self.timed[container] = started_at
        return False

    @contextmanager
    def held(self, lock: threading.Lock) -> Iterator[None]:
        """Return a context manager. While its ``with`` block runs, no write of the pod's status is
        queued.

        ``lock`` must be ``PodManager.lock``.
        """
        with lock:
            self.holds += 1
        try:
            yield
        finally:
            with lock:
                self.holds -= 1


class PodManager:
    """Store of the pods of one node by UID. Thread-safe."""

    __slots__ = ("_node", "_pods", "lock")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self.lock = threading.Lock()
        """Guards the dict of pods, and the fields ``is_queued``, ``needs_reconcile``, ``holds`` and
        ``stage`` of each pod. Code that holds this lock must take no other lock, except
        ``UsedAddresses.lock``."""
        self._pods: dict[str, PodState] = {}

    def get(self, uid: str) -> PodState | None:
        """Return the pod with this UID; None if it is unknown."""
        # The lock is not taken, because callers hold locks of the kubelet. Reading a dict is safe.
        return self._pods.get(uid)

    def known(self, uid: str) -> PodState:
        """Return the pod with this UID; raise RequestError if it is unknown."""
        pod = self._pods.get(uid)
        if pod is None:
            raise RequestError(f"unknown pod UID {uid!r} on node {self._node.name}")
        return pod

    def all(self) -> tuple[PodState, ...]:
        """Return all pods of the node."""
        with self.lock:
            return tuple(self._pods.values())

    def add(self, pod: PodState) -> None:
        """Add a pod that exists on the API server."""
        with self.lock:
            self._pods[pod.uid] = pod

    def remove(self, uid: str) -> PodState | None:
        """Remove a deleted pod and return it; return None if the UID is unknown."""
        with self.lock:
            return self._pods.pop(uid, None)

    def move(self, pod: PodState, to: Stage, *only_from: Stage) -> bool:
        """Change the stage of a pod if its present stage allows that; return True if changed.

        With ``only_from``, the present stage must be one of these stages. Without ``only_from``,
        the present stage must not be DELETING or DELETED. A change to DELETED is always allowed.
        """
        with self.lock:
            may = pod.stage in only_from if only_from else pod.stage not in _LAST
            # A change to DELETED is always allowed, because the API server no longer has the pod.
            if may or to is Stage.DELETED:
                before, pod.stage = pod.stage, to
                self._hold_address(pod, before)
                return True
            return False

    def _hold_address(self, pod: PodState, before: Stage) -> None:
        """Allocate the address of a pod that starts, and free that of a pod that ends."""
        runs, ran = pod.stage is Stage.RUNNING, before is Stage.RUNNING
        if runs == ran or pod.is_on_host_network:
            return
        if runs:
            pod.ip = self._node.addresses.allocate(pod.ip)
        else:
            self._node.addresses.free(pod.ip)

    def free(self, pod: PodState) -> None:
        """Make the kubelet remove a pod and free its devices."""
        if self._node.kubelet.has_pod(pod.uid):
            self._node.kubelet.terminate(pod.uid)
