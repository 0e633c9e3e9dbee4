"""Write pod statuses, and delete the pods whose containers have stopped
(``pkg/kubelet/status/status_manager.go``).

A status is written if it differs from the status that was written last. Requests for one pod are
sent one at a time, because they have the pod's UID as key in the work queue. Several changes before
a write result in one write.

If another client changes a status, the next ``reconcile`` writes the kubelet's status again. This
is not done immediately, because the node and the other client could then overwrite each other
without a pause.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from devicemanager.client.api import pod_path
from devicemanager.client.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.client.work_queue import Priority
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import PodManager, PodState, Stage
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.podstatus.merge import is_reported, status_patch
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import PodStatus, rejected_status
from devicemanager.objects.status.podstatus import has_health, status_object

__all__ = ["StatusManager"]

_LATER = 1.0
"""Seconds until a write that failed with a conflict is retried, and until the last status of a pod
without a grace period is written."""


class StatusManager:
    """Writer of the statuses of one node's pods.

    Thread-safe. Methods do not block; requests are sent by threads of the work queue.
    """

    __slots__ = ("_closed", "_node", "_on_removed", "_pods")

    def __init__(
        self, node: NodeContext, pods: PodManager, on_removed: Callable[[str], None]
    ) -> None:
        """Create the writer of the pod statuses of one node.

        ``on_removed`` is called with the UID of a pod that the API server no longer has.
        """
        self._node = node
        self._pods = pods
        self._on_removed = on_removed
        # Guarded by ``PodManager.lock``.
        self._closed = False

    @contextmanager
    def changing(self, pod: PodState) -> Iterator[None]:
        """Queue one write of the pod's status after the ``with`` block, and none inside it.

        Nothing is queued if the block raises an error.
        """
        with pod.held(self._pods.lock):
            yield
        self.changed(pod)

    def changed(self, pod: PodState) -> None:
        """Queue a write of the pod's status, unless a write is already queued."""
        with self._pods.lock:
            if pod.holds or pod.is_queued or self._closed:
                return
            pod.is_queued = True
        # Deletions are more urgent, because they free devices for which other pods wait.
        deletes = pod.stage is Stage.DELETING
        priority = Priority.DELETION if deletes else Priority.POD_STATUS
        self._node.writes.put(priority, pod.uid, partial(self._sync, pod))

    def changed_later(self, pod: PodState) -> None:
        """Queue a write of the pod's status after one second."""
        clock = self._node.clock
        clock.call_at(clock.monotonic() + _LATER, partial(self.changed, pod))

    def _sync(self, pod: PodState) -> None:
        with self._pods.lock:
            # Reset before the status is read, so that a later change queues another write.
            pod.is_queued = False
            stage = pod.stage
            must_write, pod.needs_reconcile = pod.needs_reconcile, False
        if stage is Stage.DELETED or self._closed:
            return
        try:
            self._write(pod, must_write)
            # The last status is written first, so that controllers get the exit codes. Devices
            # are freed before the pod is deleted, so that the next pod can be admitted
            # immediately.
            if stage is Stage.DELETING and not self._ends(pod):
                self._pods.free(pod)
                self._delete(pod)
        except RequestError:
            # The kubelet is restarting, or has removed the pod.
            self._reconcile_later(pod)
        except NotFound:
            self._on_removed(pod.uid)
        except Conflict:
            # Another client writes, too. If another pod has the name, the watch reports that this
            # pod was deleted.
            self._retry(pod)
        except Forbidden as error:
            # The pod was deleted, and another pod with its name is on another node
            # (NodeRestriction). A kubelet continues.
            self._reconcile_later(pod)
            self._node.say(
                f"cannot write the status of pod {pod.namespace}/{pod.name}: "
                f"{error.message or error}"
            )
        except Invalid as error:
            if _is_about_another_pod(error):
                self._on_removed(pod.uid)
            else:
                self._node.warn(f"{error} (a bug; pod status not updated)")

    def _ends(self, pod: PodState) -> bool:
        """True if drivers must unprepare the pod's claims before the pod can be deleted.

        The kubelet retries the unprepare calls. When they have succeeded, the kubelet's event
        FINISHED causes the write of the last status.
        """
        record = self._node.kubelet.pod_store.get(PodUid(pod.uid))
        return record is not None and record.uses_dra and record.is_active

    def _retry(self, pod: PodState) -> None:
        """Write the status of a pod again soon."""
        self._reconcile_later(pod)
        self.changed_later(pod)

    # -- requests ----------------------------------------------------------------------

    def _write(self, pod: PodState, must_write: bool) -> None:
        """Patch the status of a pod if it has changed, or with ``must_write``.

        Raises ApiError if the request fails, and RequestError if the kubelet cannot return the
        status.
        """
        status = self.status(pod)
        if status is None:
            return
        digest = _digest(status)
        if digest == pod.digest and not must_write:
            return
        path = pod_path(pod.namespace, pod.name, "status")
        # The UID is a precondition, because another pod can now have the name.
        patch = status_patch(status, was_resized=pod.has_resize_conditions)
        body = {"metadata": {"uid": pod.uid}, **patch}
        node = self._node
        response = node.api.request("PATCH", path, body, patch="strategic", user=node.user)
        if self._drops_health(status, response):
            self._without_health(status)
            digest = _digest(status)
        pod.version, pod.digest = response["metadata"]["resourceVersion"], digest
        pod.note_conditions(status.get("conditions") or ())

    def _delete(self, pod: PodState) -> None:
        """Delete a pod without a grace period. Raises ApiError if the request fails."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        path = pod_path(pod.namespace, pod.name)
        self._node.api.request("DELETE", path, body, user=self._node.user)

    def status(self, pod: PodState) -> JsonObject | None:
        """Return the status of a pod, as an object for the API.

        The status comes from ``PodState.rejection`` or, if this is None, from the kubelet. Returns
        None if the pod has no rejection and the kubelet does not have the pod. For example, the
        kubelet does not have a pod that was already Succeeded or Failed when the node first saw it.
        """
        node = self._node
        now = node.clock.time()
        behaviour = node.kubelet.settings.behaviour
        generation = pod.generation if behaviour.reports_observed_generation else 0
        if pod.rejection is not None:
            status = rejected_status(pod.rejection)
            made = status_object(PodUid(pod.uid), status, now=now, generation=generation)
            if pod.never_ran:
                del made["message"]
            return made
        if not node.kubelet.has_pod(pod.uid):
            return None
        status = node.kubelet.pod_status(pod.uid, pod.gates)
        host = node.options.address
        made = status_object(
            PodUid(pod.uid),
            status,
            now=now,
            since={"PodScheduled": pod.scheduled},
            host_ip=host,
            # As in the kubelet, a pod has no IP address before its sandbox exists.
            pod_ip=self._ip(pod, status),
            generation=generation,
            # A server that sets no generation does not store the resources, either.
            with_resources=behaviour.reports_container_resources and bool(pod.generation),
        )
        self._without_health(made)
        return made

    def _ip(self, pod: PodState, status: PodStatus) -> str:
        """Return the address of a pod; empty before its sandbox exists, as in the kubelet."""
        if pod.stage is Stage.PENDING:
            return ""
        record = self._node.kubelet.pod_store.get(PodUid(pod.uid))
        waits = record is not None and record.uses_dra and not record.has_sandbox
        if waits and status.phase is Phase.PENDING:
            return ""
        return self._node.options.address if pod.is_on_host_network else pod.ip

    def _without_health(self, status: JsonObject) -> None:
        """Remove the health of devices from a status, if the API server does not store it."""
        if self._node.features.stores_resource_health is False:
            for each in status.get("containerStatuses", ()):
                each.pop("allocatedResourcesStatus", None)

    def _drops_health(self, status: JsonObject, response: JsonObject) -> bool:
        """True if the API server has not stored the health of devices in a status.

        Without the feature gate ResourceHealthStatus, the server drops the field silently. The
        first response to a status with the field shows whether the server stores it.
        """
        features = self._node.features
        if features.stores_resource_health:
            return False
        if features.stores_resource_health is None and has_health(status):
            features.stores_resource_health = has_health(response.get("status") or {})
            if not features.stores_resource_health:
                self._node.warn(
                    "the API server does not store allocatedResourcesStatus: pods do not show the "
                    "health of devices; enable the feature gate ResourceHealthStatus"
                )
        return features.stores_resource_health is False

    # -- other writers -----------------------------------------------------------------

    def compare(self, pod: PodState, object_: JsonObject) -> None:
        """Check whether another client has changed the status of a pod. If so, the next
        ``reconcile`` writes the kubelet's status again.

        ``object_`` is the Pod object on the API server.
        """
        # Checked before the status is computed, because most events are about our own writes.
        if not pod.must_match(object_):
            return
        status = self.status(pod)
        if status is not None and not is_reported(object_.get("status") or {}, status):
            self._reconcile_later(pod)

    def _reconcile_later(self, pod: PodState) -> None:
        with self._pods.lock:
            pod.needs_reconcile = True

    def reconcile(self) -> None:
        """Queue a write of each status that another client has changed, and retry failed writes."""
        for pod in self._pods.all():
            if pod.needs_reconcile:
                self.changed(pod)

    # -- end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all writes of statuses. A request in flight is completed."""
        with self._pods.lock:
            self._closed = True


def _is_about_another_pod(error: Invalid) -> bool:
    """True if the API server has a pod of the same name, but with another UID."""
    return "metadata.uid: " in error.message


def _digest(status: JsonObject) -> int:
    return hash(json.dumps(status))
