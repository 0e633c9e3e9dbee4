"""Changes of running pods: in-place resize and ephemeral containers.

Theory of operation. ``update`` gets the newest object of a pod. The CPU and memory in this object
are allocated if they fit on the node (``handlePodResourcesResize``, pkg/kubelet/allocation, v1.37).
Then the record has the new resources, and the resize is in progress until ``complete`` is called.
If they do not fit, the resize is pending. A deferred resize is tried again when another pod frees
resources (``retry``). An infeasible resize is tried again only after another update.

The kubelet sorts deferred resizes by priority. Here, the oldest comes first.
"""

from __future__ import annotations

import threading

import attrs

from devicemanager.core import messages
from devicemanager.core.errors import DeviceManagerError
from devicemanager.core.ids import PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.resize import (
    DEFERRED,
    INFEASIBLE,
    PendingResize,
    Resize,
    ResizeInProgress,
    resized,
    to_restart,
)
from devicemanager.core.rejection import Rejected
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.containers import Containers
from devicemanager.kubelet.pods.records import PodRecord, PodStore, title
from devicemanager.kubelet.settings import Settings

__all__ = ["Resizes"]


class Resizes:
    """In-place resizes and new ephemeral containers of running pods in one kubelet; thread-safe."""

    def __init__(
        self,
        store: PodStore,
        manager: DeviceManager,
        containers: Containers,
        events: EventStream,
        settings: Settings,
    ) -> None:
        self._store = store
        self._manager = manager
        self._containers = containers
        self._events = events
        self._settings = settings
        # Held while a resize is decided, so that an older object never replaces a newer one. No
        # event is published under it.
        self._turn = threading.Lock()
        # Guarded by _turn. A dict, because it keeps the order.
        self._deferred: dict[PodUid, None] = {}

    def update(self, record: PodRecord, wanted: Pod, generation: int) -> None:
        """Resize an active pod as in ``wanted``, and start its new ephemeral containers.

        ``wanted`` is the newest Pod object. ``generation`` is its ``metadata.generation``.
        """
        # Done on all kubelet versions: only resizes depend on the version.
        self._start_ephemeral(record, wanted)
        if self._settings.behaviour.resizes_pods:
            with self._turn:
                kind = self._decide(record, wanted, generation)
            self._decided(record, kind)

    def retry(self) -> None:
        """Try the deferred resizes again, because a pod has freed resources."""
        # Read without the lock: most nodes have no deferred resize.
        # A copy, because ``_decide`` removes the pod of a resize that fits.
        for uid in tuple(self._deferred):
            with self._turn:
                record = self._store.get(uid)
                pending = None if record is None or record.resize is None else record.resize.pending
                if record is None or pending is None or not record.is_active:
                    self._deferred.pop(uid, None)
                    continue
                kind = self._decide(record, pending.wanted, pending.generation)
            self._decided(record, kind)

    def _decided(self, record: PodRecord, kind: EventKind | None) -> None:
        if kind is None:
            return
        self._publish(kind, record)
        if kind is EventKind.RESIZE_STARTED:
            if not record.resize_waits:
                self.complete(record)
            # A resize to less makes room for others.
            self.retry()

    def _decide(self, record: PodRecord, wanted: Pod, generation: int) -> EventKind | None:
        """Allocate the new resources of a pod, or record why that is impossible.

        Returns the event to publish; None if nothing has changed.
        """
        before = record.pod
        after = resized(before, wanted)
        if after is before:
            return self._set_pending(record, None)
        if problem := self._infeasible(before, after):
            return self._set_pending(record, (after, INFEASIBLE, problem, generation))
        try:
            # Before the record changes: if the resize does not fit, the pod keeps its resources.
            self._manager.resize(after)
        except Rejected as rejected:
            return self._set_pending(record, (after, DEFERRED, rejected.message, generation))
        progress = ResizeInProgress(before, generation, self._manager.clock.time())
        with self._store.lock:
            self._store.replace(record, after)
            record.resize = Resize(None, progress)
        self._deferred.pop(before.uid, None)
        return EventKind.RESIZE_STARTED

    def _infeasible(self, before: Pod, after: Pod) -> str:
        """Return why a resize can never be done; empty if it can."""
        behaviour = self._settings.behaviour
        static = self._manager.static_resources(before, after)
        if static is not None:
            text = behaviour.static_resize.format(name=static[0], policy=static[1])
            return messages.STATIC_RESIZE.format(how=text)
        return self._manager.exceeds_node(after) if behaviour.checks_resize_capacity else ""

    def _set_pending(
        self, record: PodRecord, found: tuple[Pod, str, str, int] | None
    ) -> EventKind | None:
        """Record ``found`` as the pending resize of a pod; with None, no resize is pending.

        Returns the event to publish; None if nothing has changed.
        """
        with self._store.lock:
            before = record.resize or Resize()
            pending = None
            if found is not None:
                old = before.pending
                is_same = old is not None and old.reason == found[1]
                # As the transition time of a condition: an attempt with the same result does not
                # change it.
                since = old.since if old and is_same else self._manager.clock.time()
                pending = PendingResize(*found, since)
            after = attrs.evolve(before, pending=pending)
            record.resize = after if after != Resize() else None
        if pending is not None and pending.reason == DEFERRED:
            self._deferred[record.pod.uid] = None
        else:
            self._deferred.pop(record.pod.uid, None)
        return None if after == before else EventKind.RESIZE_PENDING

    def complete(self, record: PodRecord) -> None:
        """Complete a pod's resize in progress: its containers get the allocated CPU and memory.

        A container is restarted if its ``resizePolicy`` requires a restart.
        """
        with self._store.lock:
            resize = record.resize
            if resize is None or resize.in_progress is None or not record.is_active:
                return
            record.resize = None if resize.pending is None else Resize(resize.pending)
            restarted = to_restart(resize.in_progress.before, record.pod)
            names = [name for name in restarted if name in record.running]
        for name in names:
            try:
                # Called without a lock: PreStartContainer may block in the plugin.
                self._containers.start(record, name)
            # One container that cannot be started must not keep the others from their restart.
            except (DeviceManagerError, ValueError) as error:
                self._containers.failed(record, record.container(name)[0], error)
        self._publish(EventKind.RESIZE_COMPLETED, record)

    def _start_ephemeral(self, record: PodRecord, wanted: Pod) -> None:
        """Start the ephemeral containers that were added to a pod."""
        added = wanted.ephemeral_containers
        if added == record.pod.ephemeral_containers:
            return
        with self._store.lock:
            self._store.replace(record, attrs.evolve(record.pod, ephemeral_containers=added))
        self._containers.start_ephemeral(record)

    def _publish(self, kind: EventKind, record: PodRecord) -> None:
        what = kind.value.replace("-", " ")
        resize = record.resize
        if kind is EventKind.RESIZE_PENDING and resize is not None and resize.pending is not None:
            what = f"resize {resize.pending.reason.lower()}: {resize.pending.message}"
        elif kind is EventKind.RESIZE_PENDING:
            what = "resize withdrawn"
        self._events.publish(kind, f"pod {title(record.pod)}: {what}", pod=record.pod.uid)
