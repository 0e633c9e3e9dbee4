"""The Pods API as a kubelet serves it: pods, changes of their statuses, and injected faults.

Theory of operation. A pod has the same fields as in the kubelet's HTTP endpoint ``/pods``, and
``_bytes`` encodes it. ``ListPods`` and ``GetPod`` read the pod store. A watch needs the order of
changes, so the first watch subscribes to the event stream. The thread that publishes an event
encodes the pod of the event, and appends it to the queue of each watch (``_on_event``). A queue
never waits for its reader. Without watches, nothing is computed.

The events of WatchPods are those of the kubelet's status manager (``updateStatusInternal``,
``SetPodStatus``, ``TerminatePod``, pkg/kubelet/status/status_manager.go, v1.37.2):

* ADDED when the pod has its first status: it was admitted or rejected.
* MODIFIED when the status has changed, or a deletion with a grace period has begun.
* DELETED when the pod has ended. ListPods still returns the pod until it is removed; the removal
  sends nothing more.

A pod that is removed before it has ended, or after it was rejected, gets DELETED at its removal. If
the containers of an admitted pod have exited, MODIFIED with its final phase comes before DELETED.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import attrs

from devicemanager.core.ids import PodUid
from devicemanager.core.podstatus.phase import Phase, phase_of
from devicemanager.events.stream import Event, EventKind, EventStream
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import FaultRegistry, first
from devicemanager.kubelet.pods.records import PodRecord, PodStore
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.settings import Settings
from podresources.pods_api.watcher import EventType, Watcher
from podresources.service import Rejection

__all__ = ["NodePodsSource", "PodsFaults"]

_FIRST_STATUS = frozenset({EventKind.ADMITTED, EventKind.REJECTED})
_CHANGES = frozenset(
    {
        EventKind.CONTAINER_STARTED,
        EventKind.CONTAINER_FAILED,
        EventKind.CONTAINER_EXITED,
        EventKind.CONTAINER_BACK_OFF,
        EventKind.DELETING,
        EventKind.DEVICE_HEALTH,
    }
)
"""Events after which the status of a pod can have changed."""
_ENDS = frozenset({EventKind.FINISHED, EventKind.TERMINATED})
_EVENTS = _FIRST_STATUS | _CHANGES | _ENDS


class NodePodsSource:
    """Pods of one kubelet instance for the server of the Pods API. Thread-safe."""

    def __init__(
        self, store: PodStore, workers: PodWorkers, events: EventStream, settings: Settings
    ) -> None:
        self._awaits_sources = settings.behaviour.pods_await_sources
        self._node_name = settings.node_name
        self._store = store
        self._workers = workers
        self._events = events
        self.dropped = 0
        """Number of watch events that were dropped because the queue of a watch was full. Each
        dropped event ended the watch."""
        # Guards the fields below, and orders the events of one pod. The locks of the store and
        # the manager are taken under it; none of their holders takes this one.
        self._lock = threading.Lock()
        self._watchers: set[Watcher] = set()
        # While there are watchers: the pods with a status, and what was sent last of each.
        self._known: dict[PodUid, PodRecord] = {}
        self._sent: dict[PodUid, bytes] = {}
        self._unsubscribe: Callable[[], None] | None = None

    # -- what the server reads -----------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if all pods of the node are known (``validateReady``, v1.37.2). Always True before
        v1.37."""
        return not self._awaits_sources or self._workers.is_sources_ready

    def pods(self) -> Sequence[bytes]:
        """Return all pods as encoded core/v1 Pod messages, sorted by UID."""
        records = sorted(self._store.records(), key=lambda record: record.pod.uid)
        return [self._bytes(record) for record in records]

    def pod(self, uid: str) -> bytes | None:
        """Return the pod with this UID as an encoded core/v1 Pod message; None if the UID is
        unknown."""
        record = self._store.get(PodUid(uid))
        return None if record is None else self._bytes(record)

    def watch(self, watcher: Watcher) -> None:
        """Put all later events into the queue ``watcher``."""
        with self._lock:
            self._watchers.add(watcher)
            if self._unsubscribe is None:
                # First the subscription: events that come now wait for the lock.
                self._unsubscribe = self._events.subscribe(self._on_event)
                records = self._store.records()
                self._known = {each.pod.uid: each for each in records if _is_synced(each)}

    def unwatch(self, watcher: Watcher) -> None:
        """Put no more events into the queue ``watcher``."""
        with self._lock:
            self._watchers.discard(watcher)
            if not self._watchers and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None
                self._known, self._sent = {}, {}

    # -- events --------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.pod is None or event.kind not in _EVENTS:
            return
        with self._lock:
            dropped = self._send(event.kind, PodUid(event.pod))
            self.dropped += dropped
        # Without the lock: another callback may call the kubelet.
        for _ in range(dropped):
            self._events.publish(
                EventKind.WATCH_DROPPED,
                "a watch of the Pods API ended: its client reads too slowly",
            )

    def _send(self, kind: EventKind, uid: PodUid) -> int:
        """Send a kubelet event to the watches, as a change of the pod.

        Return the number of watches that were closed because they had too many unread events. Must
        be called with the lock held.
        """
        if not self._watchers:
            return 0
        if kind in _FIRST_STATUS:
            record = self._store.get(uid)
            if record is None:
                return 0  # it was deleted meanwhile
            self._known[uid] = record
            return self._put(EventType.ADDED, record)
        if uid not in self._known:
            return 0
        record = self._known[uid]
        if kind not in _ENDS:
            return self._put(EventType.MODIFIED, record)
        del self._known[uid]
        dropped = 0
        if not record.running and not record.rejected:
            dropped = self._put(EventType.MODIFIED, _ended(record))
        self._sent.pop(uid, None)
        return dropped + self._put_all(EventType.DELETED, _minimal(record))

    def _put(self, kind: EventType, record: PodRecord) -> int:
        pod = self._bytes(record)
        if pod == self._sent.get(record.pod.uid):
            return 0
        self._sent[record.pod.uid] = pod
        return self._put_all(kind, pod)

    def _put_all(self, kind: EventType, pod: bytes) -> int:
        return sum(not watcher.put(kind, pod) for watcher in self._watchers)

    # -- pods ----------------------------------------------------------------------------

    def _bytes(self, record: PodRecord) -> bytes:
        # Not at the top: a start needs none of these.
        from devicemanager.kubelet.pods.pod_report import pod_report
        from devicemanager.objects.status.podstatus import pod_object, status_object
        from podresources.pods_api.encoding import pod_to_bytes

        report = pod_report(record, self._workers.allocated_resources_status, self._store)
        since = report.status.start_time or 0.0
        status = status_object(record.pod.uid, report.status, now=since)
        if not (record.admitted or record.rejected):
            # The status manager does not have it yet (``getEffectivePodStatus``).
            status = {"phase": str(Phase.PENDING), "qosClass": status["qosClass"]}
        made = pod_object(
            record.pod,
            status,
            node=self._node_name,
            deletion_grace=report.deletion_grace,
            deletion_time=report.deletion_time,
        )
        return pod_to_bytes(made)


def _is_synced(record: PodRecord) -> bool:
    """True if the pod has a status, and its DELETED event is still to come."""
    return record.rejected or (record.admitted and record.is_active)


def _ended(record: PodRecord) -> PodRecord:
    """Return the record with its final phase (``TerminatePod``)."""
    if not record.is_active:
        return record
    phase = phase_of(record.pod, record.statuses, is_ending=True)
    # A pod whose containers have not all run cannot succeed any more.
    return attrs.evolve(record, phase=phase if phase.is_terminal else Phase.FAILED)


def _minimal(record: PodRecord) -> bytes:
    from podresources.pods_api.encoding import pod_to_bytes

    pod = record.pod
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": str(pod.uid)}
    return pod_to_bytes({"metadata": metadata})


class PodsFaults:
    """Injector of faults into Pods API calls. A kubelet keeps this object when it restarts."""

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults

    def __call__(self, method: str) -> None:
        """Delay a call, or make it fail, if injected faults fire at this call.

        The rate limit has already let the call through; WatchPods has no rate limit. Raises
        Rejection if a fault makes the call fail.
        """
        if not self._faults.armed:
            return
        fired = self._faults.at(InjectionPoint.PODS_API, FaultContext(rpc=method))
        if (delay := first(fired, Effect.DELAY_PODS_API)) is not None:
            delay.hold().wait()
        if (failure := first(fired, Effect.FAIL_PODS_API)) is not None:
            raise Rejection(failure["code"], failure["text"])


implements(InjectionPoint.PODS_API, {Effect.DELAY_PODS_API, Effect.FAIL_PODS_API})
