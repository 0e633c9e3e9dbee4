"""The pods of one node: events of API server and kubelet, and which part handles them.

Theory of operation.

In, from different threads, in any order between the three:
1. The watch: first ``on_pod_list`` with all pods, then ``on_pod_event``, and another
   ``on_pod_list`` after each relist.
2. The kubelet: ``on_kubelet_event``, with locks of the kubelet held.
3. Users, timers and node faults: ``exit``, ``evict``, ``do``.

Out: calls to the kubelet, and writes of the status manager.

Two queues keep the order, and no code waits in one for the other:
* Decisions (admit, start, stop, remove) run in the sync loop: one at a time per node, in the
  order in which their causes arrived.
* Writes run under the pod's UID: one at a time per pod, and several nodes and pods in parallel.

Invariants:
* Handlers (``on_...``) only queue work: they hold locks of the caller and must not block.
* Only the newest object of a pod counts. Its UID identifies it, never its name: a pod that was
  deleted and recreated is another pod.
* No stage follows DELETING but DELETED. A decision checks the stage again when it runs, because
  the pod may have been deleted while the decision was queued.
* A pod holds devices only while the kubelet has it. ``_remove`` and the deletion free them; an
  object that stays because of a finalizer holds none.
* An unexpected exception affects one pod, never the loop.

Cases in which the order matters:
* First list. Pods with a start time ran here under an earlier process. They are restored
  first, with the devices in their status, so that no new pod gets these devices. New pods
  follow by age, as in the kubelet (``HandlePodAdditions``). Only then ``sources_ready`` lets
  the kubelet free the devices of pods that are not in the list.
* Our own write comes back. A status patch causes a MODIFIED event. It is dropped by its
  resource version, before it is queued (``PodState.is_own_write``).
* Deleted while unwatched. No event reports it; a pod that a relist lacks is removed.
* The kubelet restarts during a decision. ``RequestError`` goes to the sync loop, which retries.
* A pod is unknown to the API server. It is a static pod; once the first list is complete,
  ``Mirrors`` creates a mirror pod. Before that it may be a pod that is not listed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.admission import AdmitHandler, PodAdmission
from devicemanager.cluster.pods.mirrors import Mirrors
from devicemanager.cluster.pods.pod_manager import ACTIVE, MIRROR, PodManager, PodState, Stage
from devicemanager.cluster.pods.status_manager import StatusManager
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.cluster.pods.termination import PodTermination
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
    }
)
"""Events of the kubelet that can change a pod's status."""


class PodSync:
    """Synchronization of one node's pods between kubelet and API server. Thread-safe; only work
    in the queue blocks."""

    __slots__ = (
        "_admission",
        "_is_complete",
        "_loop",
        "_mirrors",
        "_node",
        "_pods",
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
        self._is_complete = False

    # -- events of the API server ----------------------------------------------------------

    def on_pod_list(self, objects: Sequence[JsonObject]) -> None:
        """Handle the list of all pods of the node; other pods were deleted."""
        self._loop.do(partial(self._replace, objects))

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """Handle a pod that was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        uid = object_["metadata"]["uid"]
        known = self._pods.get(uid)
        # Here and not in the loop: at high rates most events are our own writes.
        if known is not None and kind == "MODIFIED" and known.is_own_write(object_):
            return
        if kind == "DELETED":
            self._loop.do(partial(self._remove, uid))
        else:
            self._loop.do(partial(self._put, object_))

    def _replace(self, objects: Sequence[JsonObject]) -> None:
        listed = {each["metadata"]["uid"] for each in objects}
        # Before the new pods, which may need the devices of deleted ones.
        for pod in self._pods.all():
            if pod.uid not in listed:
                self._remove(pod.uid)
        for each in sorted(objects, key=_order):
            self._put(each)
        self._mirrors.on_pod_list(listed)
        if not self._is_complete:
            self._is_complete = True
            self._node.kubelet.sources_ready()
            # Static pods that the kubelet had before the node joined.
            for uid in self._node.kubelet.pods():
                if self._pods.get(uid) is None:
                    self._mirrors.update(uid)

    def _put(self, object_: JsonObject) -> None:
        try:
            self._handle(object_)
        except RequestError:
            raise
        except Exception as error:
            # Here and not only in the sync loop: the other pods of a list must follow.
            metadata = object_["metadata"]
            title = f"{metadata.get('namespace')}/{metadata['name']}"
            self._node.say(
                f"cannot process pod {title}: unexpected {type(error).__name__}: {error} "
                "(a bug, or a malformed pod)"
            )

    def _handle(self, object_: JsonObject) -> None:
        metadata = object_["metadata"]
        pod = self._pods.get(metadata["uid"])
        # A mirror pod reports a static pod, which the kubelet has already.
        if pod is None and MIRROR in (metadata.get("annotations") or {}):
            self._mirrors.found(object_)
        elif pod is None:
            self._admission.add(object_)
        elif metadata.get("deletionTimestamp"):
            self._termination.delete(pod)
        else:
            pod.note(object_)
            self._statuses.compare(pod, object_)

    def _remove(self, uid: str) -> None:
        """Handle the end of a pod: the API server no longer has it."""
        pod = self._pods.remove(uid)
        if pod is None:
            self._mirrors.deleted(uid)
            return
        # First the stage, so that a queued write does not report a pod that is being freed.
        self._pods.move(pod, Stage.DELETED)
        self._pods.free(pod)

    # -- events of the kubelet -------------------------------------------------------------

    def on_kubelet_event(self, event: Event) -> None:
        """Handle an event of the kubelet, which may hold locks: only queue work."""
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
                return  # the result of our own call
            case EventKind.CONTAINER_STARTED:
                if pod.behaviour.run_for is not None:
                    self._loop.do(partial(self._termination.start_timers, pod))
            case EventKind.CONTAINER_FAILED:
                pod.needs_start = True
            case EventKind.FINISHED:
                self._pods.move(pod, Stage.FINISHED, Stage.RUNNING)
            case EventKind.REJECTED:
                if pod.stage in ACTIVE:
                    self._loop.do(partial(self._admission.rejected_later, pod))
        self._statuses.changed(pod)

    def _on_static_pod(self, uid: str) -> None:
        # Check again in the loop: a decision before this one may have added the pod.
        if self._pods.get(uid) is None:
            self._mirrors.update(uid)

    def _drain_health_updates(self) -> None:
        """Empty the queue of health updates: the events have the same information."""
        waiting = self._node.kubelet.health_updates
        while not waiting.empty():
            waiting.get()

    # -- calls of users --------------------------------------------------------------------

    def do(self, act: Callable[[], None]) -> None:
        """Run a function in the sync loop."""
        self._loop.do(act)

    def exit(self, uid: str, container: str, exit_code: int, reason: str = "") -> None:
        """End a container. Raises RequestError if it is not running."""
        self._termination.exit_container(self._pods.known(uid), container, exit_code, reason)

    def evict(self, uid: str, reason: str, message: str) -> None:
        """Evict a pod. Raises RequestError for an unknown UID."""
        self._termination.evict(self._pods.known(uid), reason, message)

    def evict_all(self, reason: str, message: str) -> None:
        """Evict all pods; each becomes Failed with this reason."""
        self._termination.evict_all(reason, message)

    def pods(self) -> tuple[PodState, ...]:
        """Return all pods of the API server on this node."""
        return self._pods.all()

    # -- periodic work and end -------------------------------------------------------------

    def reconcile(self) -> None:
        """Write statuses again that another client changed, and retry failed starts."""
        self._statuses.reconcile()
        for pod in self._pods.all():
            if pod.needs_start and pod.stage is Stage.RUNNING:
                pod.needs_start = False
                self._loop.do(partial(self._admission.start_again, pod))

    def pause(self, paused: bool) -> None:
        """Pause all writes, or resume them and write everything that has changed."""
        self._statuses.pause(paused)

    def close(self) -> None:
        """Stop. Work that runs now is completed."""
        self._mirrors.close()
        self._statuses.close()
        self._loop.close()


def _order(object_: JsonObject) -> tuple[bool, str, str]:
    """Sort key of a list: pods that ran here first, then by age."""
    metadata = object_["metadata"]
    is_new = not (object_.get("status") or {}).get("startTime")
    return is_new, str(metadata.get("creationTimestamp")), str(metadata["name"])
