"""Entry point for the pods of one node: passes events to the components that handle them.

Theory of operation.

In: three inputs, on different threads:
1. The watch: first ``on_pod_list`` with all pods, then ``on_pod_event``, and another
   ``on_pod_list`` after each relist.
2. The kubelet: ``on_kubelet_event``, with locks of the kubelet held.
3. Users, timers and node faults: ``exit``, ``evict``, ``do``.

Out: calls to the kubelet, and writes of the status manager.

Two queues keep the order. Code in one queue never waits for the other queue:
* Decisions (admit, start, stop, remove) run in the sync loop: one at a time per node, in the
  order in which the events arrived.
* Writes run in the work queue: one at a time for each pod, because its UID is their key, and in
  parallel for several pods and nodes.

Invariants:
* Handlers (``on_...``) only queue work, because callers hold locks and must not be blocked.
* Only the newest object of a pod counts. A pod is identified by its UID, not by its name: a pod
  that was deleted and recreated is another pod.
* After DELETING, the only possible stage is DELETED. A decision checks the stage again when it
  runs, because the pod can be deleted while the decision is queued.
* A pod has devices only while the kubelet has the pod. The kubelet removes a pod before the node
  deletes the Pod object, or when the Pod object is gone. A Pod object that remains because of a
  finalizer has no devices.
* An unexpected exception affects one pod, but never the loop.

Cases in which the order matters:
* The first list. Pods with a start time ran on this node under an earlier process. They are
  restored first, with the devices in their status, so that no new pod gets these devices. Then new
  pods are added by age, as in the kubelet (``HandlePodAdditions``). Finally ``sources_ready`` lets
  the kubelet free the devices of pods that are not in the list.
* An event of our own write. A status patch causes a MODIFIED event. The event is recognized by its
  resource version and dropped before it is queued (``PodState.is_own_write``).
* A deletion while no watch is open. It causes no event, so pods that are missing from a relist are
  removed.
* A restart of the kubelet during a decision. The sync loop gets ``RequestError`` and retries.
* A pod that the API server does not have. It is a static pod, for which ``Mirrors`` creates a
  mirror pod after the first list. Before the first list, it can be a pod that is not listed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.admission import AdmitHandler, PodAdmission
from devicemanager.cluster.pods.mirrors import Mirrors
from devicemanager.cluster.pods.pod_manager import ACTIVE, MIRROR, PodManager, PodState, Stage
from devicemanager.cluster.pods.resize_events import ResizeEvents
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.cluster.pods.termination import PodTermination
from devicemanager.core import messages
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import Event, EventKind

__all__ = ["PodSync"]

_STATUS_CHANGES: Final = frozenset(
    {
        EventKind.CONTAINER_STARTED,
        EventKind.CONTAINER_EXITED,
        EventKind.CONTAINER_BACK_OFF,
        EventKind.CONTAINER_FAILED,
        EventKind.FINISHED,
        EventKind.REJECTED,
        EventKind.DEVICE_HEALTH,
        EventKind.HEALTH_DROPPED,
        EventKind.TERMINATED,
        EventKind.PREPARE_FAILED,
        EventKind.UNPREPARE_FAILED,
        EventKind.RESIZE_STARTED,
        EventKind.RESIZE_PENDING,
        EventKind.RESIZE_COMPLETED,
    }
)
"""Kinds of kubelet events that can change the status of a pod."""


class PodSync:
    """Synchronizer of one node's pods between kubelet and API server.

    Thread-safe. Methods do not block; work runs on threads of the work queue.
    """

    __slots__ = (
        "_admission",
        "_is_complete",
        "_loop",
        "_mirrors",
        "_node",
        "_pods",
        "_resizes",
        "_statuses",
        "_termination",
    )

    def __init__(self, node: NodeContext, mirrors: Mirrors, handler: AdmitHandler) -> None:
        self._node = node
        self._mirrors = mirrors
        self._loop = SyncLoop(node)
        self._pods = PodManager(node)
        self._statuses = StatusManager(
            node, self._pods, lambda uid: self._loop.do(partial(self._remove, uid))
        )
        self._termination = PodTermination(node, self._loop, self._pods, self._statuses)
        self._admission = PodAdmission(
            node,
            self._loop,
            self._pods,
            self._statuses,
            self._termination,
            handler,
        )
        self._resizes = ResizeEvents(node, self._loop)
        self._is_complete = False

    # -- events of the API server ----------------------------------------------------------

    def on_pod_list(self, objects: Sequence[JsonObject]) -> None:
        """Add, update and remove pods to match this list of all pods of the node."""
        self._loop.do(partial(self._replace, objects))

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """Add, update or remove a pod of the node.

        ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``.
        """
        uid = object_["metadata"]["uid"]
        known = self._pods.get(uid)
        # Dropped here and not in the loop, because at high rates most events are our own writes.
        if known is not None and kind == "MODIFIED" and known.is_own_write(object_):
            return
        if kind == "DELETED":
            self._loop.do(partial(self._remove, uid))
        else:
            self._loop.do(partial(self._put, object_))

    def _replace(self, objects: Sequence[JsonObject]) -> None:
        listed = {each["metadata"]["uid"] for each in objects}
        # Removed before new pods are added, which can need the devices of deleted pods.
        for pod in self._pods.all():
            if pod.uid not in listed:
                self._remove(pod.uid)
        for each in sorted(objects, key=_order):
            self._put(each)
        self._mirrors.on_pod_list(listed)
        if not self._is_complete:
            self._is_complete = True
            self._node.kubelet.sources_ready()
            # These static pods were on the kubelet before the node joined.
            for uid in self._node.kubelet.pods():
                if self._pods.get(uid) is None:
                    self._mirrors.update(uid)

    def _put(self, object_: JsonObject) -> None:
        try:
            self._handle(object_)
        except RequestError:
            raise
        except Exception as error:
            # Caught here and not only in the sync loop, because the other pods of a list must be
            # handled.
            metadata = object_["metadata"]
            title = f"{metadata.get('namespace')}/{metadata['name']}"
            self._node.say(
                f"cannot process pod {title}: unexpected {type(error).__name__}: {error} "
                "(a bug, or a malformed pod)"
            )

    def _handle(self, object_: JsonObject) -> None:
        metadata = object_["metadata"]
        pod = self._pods.get(metadata["uid"])
        # A mirror pod represents a static pod, which the kubelet already has.
        if pod is None and MIRROR in (metadata.get("annotations") or {}):
            self._mirrors.found(object_)
        elif pod is None:
            self._admission.add(object_)
        elif metadata.get("deletionTimestamp"):
            self._termination.delete(pod, metadata.get("deletionGracePeriodSeconds"))
        else:
            before = pod.generation
            pod.note(object_)
            self._statuses.compare(pod, object_)
            if pod.generation != before:
                self._admission.spec_changed(pod, object_)
                self._statuses.changed(pod)
            elif not pod.generation and object_["spec"].get("ephemeralContainers"):
                # API servers up to 1.32 set no generation. There, only these containers change.
                self._admission.spec_changed(pod, object_)
            self._admission.claims_changed(pod, object_)
            self._admission.annotations_changed(pod, object_)

    def _remove(self, uid: str) -> None:
        """Remove a pod that the API server no longer has, and free its devices."""
        pod = self._pods.remove(uid)
        if pod is None:
            self._mirrors.deleted(uid)
            return
        # The stage changes first, so that a queued write does not report the pod while its devices
        # are freed.
        self._pods.move(pod, Stage.DELETED)
        self._pods.free(pod)

    # -- events of the kubelet -------------------------------------------------------------

    def on_kubelet_event(self, event: Event) -> None:
        """Queue work for an event of the kubelet that can change the status of a pod.

        The kubelet can hold locks during the call, so this method does not block.
        """
        if event.kind not in _STATUS_CHANGES:
            return
        if event.kind in (EventKind.DEVICE_HEALTH, EventKind.HEALTH_DROPPED):
            self._drain_health_updates()
        if not event.pod:
            return
        pod = self._pods.get(event.pod)
        if pod is None:
            if self._is_complete:
                self._loop.do(partial(self._on_static_pod, event.pod))
            return
        match event.kind:
            case EventKind.TERMINATED:
                return  # this class has called ``terminate``
            case EventKind.CONTAINER_STARTED:
                if pod.behaviour.run_for is not None:
                    self._loop.do(partial(self._termination.start_timers, pod))
            case EventKind.CONTAINER_FAILED:
                pod.needs_start = True
                text = event.message.partition(" did not start: ")[2]
                self._node.recorder.record(pod.reference, "Warning", "Failed", f"Error: {text}")
            case EventKind.PREPARE_FAILED:
                text = event.message.partition(f"{messages.FAILED_PREPARE}: ")[2]
                self._node.recorder.record(pod.reference, "Warning", messages.FAILED_PREPARE, text)
            case EventKind.UNPREPARE_FAILED:
                self._node.say(event.message)
            case EventKind.RESIZE_STARTED | EventKind.RESIZE_PENDING | EventKind.RESIZE_COMPLETED:
                self._loop.do(partial(self._resizes.on_event, pod, event.kind))
            case EventKind.FINISHED:
                self._pods.move(pod, Stage.FINISHED, Stage.RUNNING)
            case EventKind.REJECTED:
                if pod.stage in ACTIVE:
                    self._loop.do(partial(self._admission.rejected_later, pod))
        self._statuses.changed(pod)

    def _on_static_pod(self, uid: str) -> None:
        # Checked again in the loop, because an earlier decision can have added the pod.
        if self._pods.get(uid) is None:
            self._mirrors.update(uid)

    def _drain_health_updates(self) -> None:
        """Empty the kubelet's queue of health updates.

        The queue is not needed, because events have the same information.
        """
        waiting = self._node.kubelet.health_updates
        while not waiting.empty():
            waiting.get()

    # -- calls of users --------------------------------------------------------------------

    def do(self, act: Callable[[], None]) -> None:
        """Run a function in the node's sync loop."""
        self._loop.do(act)

    def exit(self, uid: str, container: str, exit_code: int, reason: str = "") -> None:
        """Make a container of a pod exit. Raises RequestError if it is not running."""
        self._termination.exit_container(self._pods.known(uid), container, exit_code, reason)

    def evict(self, uid: str, reason: str, message: str) -> None:
        """Evict a pod: its status becomes Failed, with ``reason`` and ``message``.

        Raises RequestError for an unknown UID.
        """
        self._termination.evict(self._pods.known(uid), reason, message)

    def evict_all(self, reason: str, message: str) -> None:
        """Evict all pods of the node: the status of each becomes Failed, with ``reason`` and
        ``message``."""
        self._termination.evict_all(reason, message)

    def pods(self) -> tuple[PodState, ...]:
        """Return all pods that the API server has for this node, except mirror pods."""
        return self._pods.all()

    # -- periodic work and end -------------------------------------------------------------

    def reconcile(self) -> None:
        """Queue a write of each status that another client has changed. Queue another start of
        containers that failed to start."""
        self._statuses.reconcile()
        for pod in self._pods.all():
            if pod.needs_start and pod.stage is Stage.RUNNING:
                pod.needs_start = False
                self._loop.do(partial(self._admission.start_again, pod))

    def close(self) -> None:
        """Stop all work for the pods. Work that is running is completed."""
        self._mirrors.close()
        self._statuses.close()
        self._loop.close()
        # Another process, or this one, can run the node's pods from now on.
        self._node.addresses.free_all()


def _order(object_: JsonObject) -> tuple[bool, str, str]:
    """Return the sort key for a list of pods.

    Pods that ran on the node under an earlier process come first; then pods are sorted by age.
    """
    metadata = object_["metadata"]
    is_new = not (object_.get("status") or {}).get("startTime")
    return is_new, str(metadata.get("creationTimestamp")), str(metadata["name"])
