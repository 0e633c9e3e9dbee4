"""``ApiNode``: a mock kubelet as a node of an API server in the same process.

Theory of operation. The server has a Node object, and runs a scheduler and controllers. They
schedule pods, and create, allocate, reserve and release the ResourceClaims of the pods. After each
change on the server and each event of the kubelet, a thread compares the server's pods with the
pods of the kubelet:

* for a pod that the scheduler cannot bind, ``MockKubelet.events`` gets an event with the reason;
* a pod that the kubelet does not know is admitted, and its containers start;
* a pod that is being deleted is terminated, and then removed from the server;
* the status of a pod, and the devices of the node, are written to the server when they have
  changed.

The kubelet must have the settings that ``ApiNode.settings`` returns. With these settings, it reads
claims from the server.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from devicemanager.apiserver import Controllers, FakeApiServer, StatusError
from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import PodUid
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.settings import Settings
from devicemanager.objects.status.podstatus import status_object

if TYPE_CHECKING:
    from devicemanager.events.stream import Event
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["ApiNode"]

_ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250"}
_CHECK_SECONDS = 5.0


class ApiNode:
    """API server with one node. A mock kubelet runs the pods of this node. A context manager.

    Start the ``ApiNode`` before the kubelet. When the kubelet runs, pass the kubelet to ``serve``.
    """

    def __init__(self, node: str, *, port: int = 0) -> None:
        """``node`` is the name of the node; ``port`` is the server's port, 0 for a free port."""
        self.server = FakeApiServer(port=port)
        """The API server. Tests can change its objects, and inject faults."""
        self._node = node
        self._stack = ExitStack()
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._statuses: dict[str, Mapping[str, Any]] = {}
        """The last status of each pod that was admitted, by UID."""
        self._reported: Mapping[str, Any] = {}
        self._unschedulable: dict[str, str] = {}
        """The scheduler's message about each pod that it cannot bind, by UID."""

    def start(self) -> None:
        """Start the API server with its controllers, and create the Node object."""
        self.server.load(_node_object(self._node))
        self._stack.enter_context(self.server)
        # The node renews no Lease, so it must not become NotReady without one.
        self._stack.enter_context(Controllers(self.server, grace=math.inf))

    def stop(self) -> None:
        """Stop the node, so that it runs no more pods; then stop the API server."""
        self._stopping.set()
        self.server.wake()
        self._stack.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def settings(self, kubeconfig: Path, settings: Settings | None = None) -> Settings:
        """Write a kubeconfig of the API server to ``kubeconfig``; return the kubelet's settings.

        The result is a copy of ``settings`` (None: the defaults) with the node's name and the path
        of the kubeconfig.
        """
        path = self.server.kubeconfig(kubeconfig)
        return attrs.evolve(settings or Settings(), kubeconfig=path, node_name=self._node)

    def serve(self, kubelet: MockKubelet) -> None:
        """From now on until ``stop``, run the node's pods on this kubelet."""
        self._stack.callback(kubelet.events.subscribe(self._happened))
        thread = threading.Thread(target=self._run, args=(kubelet,), name="api-node", daemon=True)
        thread.start()
        # Before the server stops: a pod in its admission still reads claims.
        self._stack.callback(thread.join, 5.0)

    def _happened(self, _: Event) -> None:
        self._changed.set()
        self.server.wake()

    def _is_due(self) -> bool:
        return self._stopping.is_set() or self._changed.is_set()

    def _run(self, kubelet: MockKubelet) -> None:
        seen = 0
        while not self._stopping.is_set():
            self.server.wait_for_change(seen, _CHECK_SECONDS, self._is_due)
            # Read first, so that a change during the work causes another round.
            seen = self.server.version
            self._changed.clear()
            # A kubelet that is stopped admits nothing; its next start is an event.
            if not self._stopping.is_set() and kubelet.is_serving:
                with suppress(RequestError):  # the kubelet was stopped meanwhile
                    self._tell(kubelet)
                    self._report(kubelet)
                    self._sync(kubelet)

    def _tell(self, kubelet: MockKubelet) -> None:
        """Publish why the scheduler cannot bind pods, so that a wait for a pod shows the reason."""
        found, last = dict[str, str](), self._unschedulable
        for pod in self.server.all("pods"):
            metadata = pod["metadata"]
            for each in pod["status"].get("conditions") or ():
                if each.get("reason") == "Unschedulable" and not pod["spec"].get("nodeName"):
                    found[metadata["uid"]] = text = str(each.get("message", ""))
                    if last.get(metadata["uid"]) != text:
                        name = f"{metadata['namespace']}/{metadata['name']}"
                        kubelet.events.publish(
                            EventKind.POD_UNSCHEDULABLE, f"pod {name} is unschedulable: {text}"
                        )
        self._unschedulable = found

    def _report(self, kubelet: MockKubelet) -> None:
        """Write the numbers of the device plugins' devices to the Node object. The server needs
        them to decide which extended resources DRA serves."""
        status = kubelet.node_status()
        fields = {
            "capacity": {**_ALLOCATABLE, **_texts(status.capacity)},
            "allocatable": {**_ALLOCATABLE, **_texts(status.allocatable)},
        }
        if fields != self._reported:
            self._reported = fields
            self.server.change(
                "nodes",
                self._node,
                lambda old: {**old, "status": {**old["status"], **fields}},
                subresource="status",
            )

    def _sync(self, kubelet: MockKubelet) -> None:
        pods = {
            pod["metadata"]["uid"]: pod
            for pod in self.server.all("pods")
            if pod["spec"].get("nodeName") == self._node
        }
        for uid in kubelet.pods():
            # Pods that a test has admitted directly are not in `_statuses`, and stay.
            if uid in self._statuses and uid not in pods:
                _terminate(kubelet, uid)
        for uid, pod in pods.items():
            if pod["metadata"].get("deletionTimestamp"):
                self._end(kubelet, uid, pod)
            else:
                self._keep(kubelet, uid, pod)

    def _keep(self, kubelet: MockKubelet, uid: str, pod: Mapping[str, Any]) -> None:
        if uid not in self._statuses:
            # Recorded before the admission, so that a rejected pod is not admitted again.
            self._statuses[uid] = {}
            try:
                kubelet.admit(dict(pod))
            except DeviceManagerError as error:
                self._write(uid, pod, {"phase": "Failed", "message": str(error)})
                return
        if kubelet.has_pod(uid):
            with suppress(DeviceManagerError):  # the pod was deleted meanwhile
                self._write(uid, pod, _status(kubelet, uid))

    def _write(self, uid: str, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        # A write is itself a change of the server, so unchanged statuses would lead to endless
        # rounds.
        if status == self._statuses[uid]:
            return
        self._statuses[uid] = status
        metadata = pod["metadata"]
        with suppress(StatusError):  # the pod was deleted meanwhile
            # Fields of other writers stay, such as resourceClaimStatuses.
            self.server.change(
                "pods",
                metadata["name"],
                lambda old: {**old, "status": {**old["status"], **status}},
                metadata["namespace"],
                subresource="status",
            )

    def _end(self, kubelet: MockKubelet, uid: str, pod: Mapping[str, Any]) -> None:
        _terminate(kubelet, uid)
        # A pod whose claims cannot be unprepared stays, and the kubelet tries again.
        if not kubelet.has_pod(uid):
            self._statuses.pop(uid, None)
            metadata = pod["metadata"]
            with suppress(StatusError):
                self.server.delete(
                    "pods", metadata["name"], metadata["namespace"], gracePeriodSeconds=0
                )


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _terminate(kubelet: MockKubelet, uid: str) -> None:
    if kubelet.has_pod(uid):
        with suppress(DeviceManagerError):  # it is already being terminated
            kubelet.terminate(uid)


def _status(kubelet: MockKubelet, uid: str) -> Mapping[str, Any]:
    status, now = kubelet.pod_status(uid), kubelet.clock.time()
    return status_object(PodUid(uid), status, now=now, host_ip="127.0.0.1")


def _node_object(name: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"conditions": [ready], "allocatable": _ALLOCATABLE, "capacity": _ALLOCATABLE}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
