"""When the statuses of pods are written, and pods deleted that have ended (the kubelet's status
manager, ``pkg/kubelet/status/status_manager.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from devicemanager.cluster.client.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster.client.protocol import JsonObject, Priority
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.manager import PodManager
from devicemanager.cluster.pods.state import PodState, Stage
from devicemanager.cluster.pods.writer import PodWriter
from devicemanager.core.errors import RequestError
from devicemanager.core.podstatus.merge import is_reported

__all__ = ["StatusManager"]


class StatusManager:
    """The statuses of one node's pods. What is written of one pod comes one after another, under
    its UID in the lane. May be used from any thread; nothing blocks but what the lane runs."""

    __slots__ = ("_closed", "_node", "_paused", "_pods", "_removed", "_writer")

    def __init__(self, node: NodeContext, pods: PodManager, removed: Callable[[str], None]) -> None:
        """``removed`` is told the UID of a pod that the API was found to have no more."""
        self._node = node
        self._pods = pods
        self._removed = removed
        self._writer = PodWriter(node)
        # Guarded by the lock of the pods.
        self._paused = False
        self._closed = False

    @contextmanager
    def changing(self, pod: PodState) -> Iterator[None]:
        """Write what has come in the end of what happens within, unless that goes wrong."""
        with pod.held(self._pods.lock):
            yield
        self.changed(pod)

    def changed(self, pod: PodState) -> None:
        """The pod's status may be another one: write it, once."""
        with self._pods.lock:
            pod.is_changed = True
            if pod.holds or pod.is_queued or self._paused or self._closed:
                return
            pod.is_queued = True
        deletes = pod.stage is Stage.DELETING
        priority = Priority.DELETION if deletes else Priority.POD_STATUS
        self._node.lane.put(priority, pod.uid, partial(self._sync, pod))

    def _sync(self, pod: PodState) -> None:
        with self._pods.lock:
            pod.is_queued = pod.is_changed = False
            stage = pod.stage
            again, pod.needs_reconcile = pod.needs_reconcile, False
        if stage is Stage.DELETED or self._closed:
            return
        try:
            self._writer.write(pod, again)
            if stage is Stage.DELETING:
                self._pods.free(pod)
                self._writer.delete(pod)
        except RequestError:
            # The kubelet does not serve in this moment, or knows the pod no more.
            self._reconcile_later(pod)
        except (NotFound, Conflict):
            # It is gone, or another pod has its name by now.
            self._removed(pod.uid)
        except Forbidden as error:
            self._node.forbidden(error)
        except Invalid as error:
            self._node.warn(f"{error} (a bug of ours; the pod's status stays as it is)")

    # -- what others write -------------------------------------------------------------

    def compare(self, pod: PodState, object_: JsonObject) -> None:
        """The API has the pod like this: if somebody else changed its status, put it back."""
        if not pod.is_ours(object_):
            return
        ours = self._writer.status(pod)
        if ours is not None and not is_reported(object_.get("status") or {}, ours):
            self._reconcile_later(pod)

    def _reconcile_later(self, pod: PodState) -> None:
        """With the next ``reconcile``, so that two who disagree do not get hot over it."""
        with self._pods.lock:
            pod.needs_reconcile = True

    def reconcile(self) -> None:
        """Put back what somebody else changed."""
        for pod in self._pods.all():
            if pod.needs_reconcile:
                self.changed(pod)

    # -- pause and end -----------------------------------------------------------------

    def pause(self, paused: bool) -> None:
        """Write nothing until the opposite is said; then all that is new."""
        with self._pods.lock:
            self._paused = paused
        if not paused:
            for pod in self._pods.all():
                if pod.is_changed:
                    self.changed(pod)

    def close(self) -> None:
        """Write nothing any more. What is under way comes to its end."""
        with self._pods.lock:
            self._closed = True
