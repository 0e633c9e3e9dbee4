"""Sandboxes of pods: created before the first container, removed after the last container.

Claims are prepared before a sandbox is created, and unprepared after the containers have stopped
(``SyncPod``, pkg/kubelet/kuberuntime; ``SyncTerminatingPod``, pkg/kubelet/kubelet.go; v1.36). Both
can fail. The kubelet retries a creation at the next periodic sync of the pod. It retries a removal
earlier, after the backoff of the pod worker.

One caller at a time creates the sandbox of a pod, and one caller at a time removes it. The removal
does not wait for the creation, because the kubelet cancels the creation when the pod ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import PodUid
from devicemanager.kubelet.pods.dra import LazyDra, PodDra
from devicemanager.kubelet.pods.records import PodRecord, PodStore, title
from devicemanager.kubelet.pods.runtime import ContainerRuntime
from devicemanager.kubelet.pods.timers import Timers

__all__ = ["CREATE_RETRY", "REMOVE_RETRY", "SandboxLater", "Sandboxes"]

CREATE_RETRY = 60.0
"""Seconds until the next try to create a sandbox: the kubelet's periodic sync, without its random
part of up to 50 % (``resyncInterval``, pkg/kubelet/pod_workers.go, v1.32)."""
REMOVE_RETRY = 10.0
"""Seconds until the next try to remove a sandbox, without the kubelet's random part
(``backOffPeriod``, pkg/kubelet/pod_workers.go, v1.32)."""


class SandboxLater(DeviceManagerError):
    """Error if a sandbox cannot be created yet, because a simulated DRA driver has not responded.

    The creation of the sandbox is retried after ``seconds``.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"waiting {seconds:g} s for a driver")
        self.seconds = seconds


class Sandboxes:
    """Creator and remover of the sandboxes of pods. Thread-safe."""

    def __init__(
        self,
        store: PodStore,
        dra: LazyDra[PodDra],
        timers: Timers[PodUid],
        runtime: ContainerRuntime,
        time: Callable[[], float],
    ) -> None:
        """``time`` returns the seconds since the epoch."""
        self._time = time
        self._runtime = runtime
        self._store = store
        self._dra = dra
        self._timers = timers
        # Guards the two fields below: a lock for each pod that uses DRA. The tables are separate,
        # because a removal must not wait for a creation that hangs in a driver.
        self._lock = threading.Lock()
        self._creating: dict[PodUid, threading.Lock] = {}
        self._removing: dict[PodUid, threading.Lock] = {}

    def create(self, record: PodRecord) -> None:
        """Prepare the pod's claims and create its sandbox; do nothing if it has a sandbox.

        Raises DraError with the kubelet's text if the claims cannot be prepared, and RequestError
        if the pod is terminating.
        """
        if record.has_sandbox:
            return
        if not record.uses_dra:
            record.sandbox_created(self._time())
            record.synced()
            return
        with self._only_one(self._creating, record):
            # Not before: the pod can be deleted while this caller waits for another creation.
            self._check_lives(record)
            # Checked again: another caller may have created the sandbox in the meantime.
            if not record.has_sandbox:
                self._dra.prepare(record.pod)
                # An earlier failure may have scheduled a retry, which has nothing left to do.
                self._timers.cancel(record.pod.uid)
                record.sandbox_created(self._time())
                record.synced()

    def _check_lives(self, record: PodRecord) -> None:
        with self._store.lock:
            is_current = self._store.is_current(record)
        if not is_current or record.ending is not None or record.deletion_grace is not None:
            raise RequestError(f"pod {title(record.pod)} is terminating: it gets no sandbox")

    def remove(self, record: PodRecord, again: Callable[[], None]) -> bool:
        """Unprepare a pod's claims and remove its sandbox, after its containers have stopped.

        Return True on success. On failure, return False and call ``again`` later, on another
        thread.
        """
        uid = record.pod.uid
        # Before the claims are unprepared (``SyncTerminatingPod``, pkg/kubelet/kubelet.go, v1.36).
        self._runtime.remove(record.pod)
        if not record.uses_dra:
            record.synced()
            return True
        # A preparation in progress could hang in a driver. The kubelet cancels it, too.
        self._dra.cancel(uid)
        try:
            with self._only_one(self._removing, record):
                self._dra.unprepare(record.pod)
                record.has_sandbox = False
        except DeviceManagerError as error:
            self._try_again(record, error, REMOVE_RETRY, again)
            return False
        record.synced()
        self._timers.cancel(uid)
        # Otherwise the tables would grow with every pod that the node has ever had.
        with self._lock:
            self._creating.pop(uid, None)
            self._removing.pop(uid, None)
        return True

    def retry(self, record: PodRecord, error: Exception, again: Callable[[], None]) -> None:
        """Call ``again`` at the next periodic sync of the pod, on another thread.

        ``error`` is the reason for the retry. If it is SandboxLater, ``again`` is called after
        ``error.seconds`` instead.
        """
        seconds = error.seconds if isinstance(error, SandboxLater) else CREATE_RETRY
        self._try_again(record, error, seconds, again)

    def _try_again(
        self, record: PodRecord, error: Exception, seconds: float, again: Callable[[], None]
    ) -> None:
        record.sync_error = str(error)
        record.sync_at = self._timers.start(record.pod.uid, seconds, again)

    def _only_one(self, locks: dict[PodUid, threading.Lock], record: PodRecord) -> threading.Lock:
        with self._lock:
            return locks.setdefault(record.pod.uid, threading.Lock())
