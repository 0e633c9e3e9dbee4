"""Minimal controllers: taint nodes that are not ready, run Jobs, and remove orphaned pods.

They do less than real controllers. The node lifecycle controller reads only conditions and leases.
The Job controller only creates and counts pods. The scheduler is in ``scheduler``, and the claim
controller in ``claim_controller``.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from devicemanager.apiserver.claim_controller import ClaimController
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.registry import NOT_READY, is_terminal, timestamp
from devicemanager.apiserver.scheduler import schedule
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object

__all__ = ["Controllers", "NodeLifecycle", "reconcile_jobs"]

_STOPPED: Final = "Kubelet stopped posting node status."
_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_BATCH: Final = 0.02
"""Seconds to wait for more changes, so that one reconciliation handles a burst."""


class Controllers:
    """Node lifecycle, scheduler, Job and claim controllers, each on a thread.

    Use it as a context manager, or call ``start`` and ``stop``.
    """

    def __init__(
        self, server: FakeApiServer, *, grace: float = 50.0, strict_claims: bool = False
    ) -> None:
        """Create controllers for a server.

        ``grace``: a node becomes NotReady if its Lease is not renewed for this many seconds.
        ``strict_claims``: True to remove the reservations of finished and missing pods from every
        claim, as the controller of a cluster does. False to remove them only from claims that the
        scheduler has allocated.
        """
        self._server = server
        self._lifecycle = NodeLifecycle(grace)
        self._claims = ClaimController(is_strict=strict_claims)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all controllers. Each controller reconciles after every change on the server."""
        for name, reconcile in (
            ("lifecycle", self._lifecycle.reconcile),
            ("scheduler", schedule),
            ("jobs", reconcile_jobs),
            ("claims", self._claims.reconcile),
        ):
            thread = threading.Thread(target=self._run, args=(reconcile,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop all controllers."""
        self._stopping.set()
        self._server.wake()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, reconcile: Callable[[FakeApiServer], None]) -> None:
        seen = 0
        while not self._stopping.is_set():
            # Read the version first: changes during the reconciliation then cause another one.
            # Compare with ``!=``, because ``wipe`` resets the version to a lower number.
            version = self._server.version
            if version != seen:
                reconcile(self._server)
            seen = version
            self._server.wait_for_change(seen, 0.5, self._stopping.is_set)
            self._stopping.wait(_BATCH)


# -- node lifecycle --------------------------------------------------------------------


class NodeLifecycle:
    """Node lifecycle controller. Not thread-safe.

    It taints nodes that are not ready, and deletes the pods and ResourceSlices of deleted nodes. A
    node becomes NotReady if its Lease does not change for ``grace`` seconds. The controller
    measures this time with its own clock, and does not evaluate the times in Leases.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._renewed: dict[str, tuple[str, float]] = {}
        self.not_ready = 0
        """Number of times a node became NotReady because its lease expired."""

    def reconcile(self, server: FakeApiServer) -> None:
        """Check the leases, conditions and taints of all nodes. Delete the pods and ResourceSlices
        of deleted nodes."""
        now = time.monotonic()
        leases = {
            each["metadata"]["name"]: each["spec"]["renewTime"] for each in server.all("leases")
        }
        names = set()
        for node in server.all("nodes"):
            name = node["metadata"]["name"]
            names.add(name)
            renewed = leases.get(name, "")
            if self._renewed.get(name, ("", 0.0))[0] != renewed or name not in self._renewed:
                self._renewed[name] = renewed, now
            if now - self._renewed[name][1] > self._grace:
                self._set_unknown(server, node)
            else:
                _set_taint(server, node, not _is_ready(node))
        gone = set(self._renewed) - names
        for name in gone:
            del self._renewed[name]
        _collect_pods(server, names)
        if gone:
            _collect_slices(server, gone)

    def _set_unknown(self, server: FakeApiServer, node: Object) -> None:
        if not _is_ready(node):
            return
        self.not_ready += 1

        def unknown(value: Object) -> Object:
            for condition in value["status"]["conditions"]:
                condition |= {
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": _STOPPED,
                    "lastTransitionTime": timestamp(),
                }
            return value

        with suppress(StatusError):  # the node was deleted meanwhile
            server.change("nodes", node["metadata"]["name"], unknown, subresource="status")


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _set_taint(server: FakeApiServer, node: Object, wanted: bool) -> None:
    found = any(each["key"] == NOT_READY["key"] for each in node["spec"].get("taints") or ())
    if found is wanted:
        return

    def tainted(value: Object) -> Object:
        others = [e for e in value["spec"].get("taints") or () if e["key"] != NOT_READY["key"]]
        value["spec"]["taints"] = [*others, dict(NOT_READY)] if wanted else others
        return value

    with suppress(StatusError):  # the node was deleted meanwhile
        server.change("nodes", node["metadata"]["name"], tainted)


def _collect_slices(server: FakeApiServer, gone: set[str]) -> None:
    """Delete the ResourceSlices of deleted nodes, as the garbage collector does."""
    for each in server.all("resourceslices"):
        if each["spec"].get("nodeName") in gone:
            with suppress(StatusError):  # another client deleted it
                server.delete("resourceslices", each["metadata"]["name"])


def _collect_pods(server: FakeApiServer, names: set[str]) -> None:
    """Delete all pods that are bound to a node that does not exist (pod garbage collector)."""
    for pod in server.all("pods"):
        node = pod["spec"].get("nodeName")
        # Check the node again: it can have joined after ``names`` was read.
        if node and node not in names and server.get("nodes", node) is None:
            metadata = pod["metadata"]
            with suppress(StatusError):
                server.delete(
                    "pods",
                    metadata["name"],
                    metadata["namespace"],
                    gracePeriodSeconds=0,
                    preconditions={"uid": metadata["uid"]},
                )


# -- Jobs ------------------------------------------------------------------------------


def reconcile_jobs(server: FakeApiServer) -> None:
    """Create the pods of all Jobs. Count finished pods and remove their finalizers."""
    pods: dict[str, list[Object]] = {}
    for pod in server.all("pods"):
        for owner in pod["metadata"].get("ownerReferences") or ():
            pods.setdefault(owner["uid"], []).append(pod)
    jobs = {job["metadata"]["uid"]: job for job in server.all("jobs")}
    for uid, job in jobs.items():
        _reconcile_job(server, job, pods.get(uid, []))
    for uid in pods.keys() - jobs.keys():
        for pod in pods[uid]:
            _remove_finalizer(server, pod)


def _reconcile_job(server: FakeApiServer, job: Object, pods: list[Object]) -> None:
    status = dict(job.get("status") or {})
    for pod in pods:
        # Only pods with the finalizer are counted, and a counted pod loses it. So each pod is
        # counted once.
        if _JOB_TRACKING not in (pod["metadata"].get("finalizers") or ()) or not is_terminal(pod):
            continue
        key = "succeeded" if pod["status"].get("phase") == "Succeeded" else "failed"
        status[key] = status.get(key, 0) + 1
        _remove_finalizer(server, pod)
    active = sum(not is_terminal(pod) for pod in pods)
    wanted = int(job["spec"].get("completions") or 1) - status.get("succeeded", 0)
    room = min(wanted, int(job["spec"].get("parallelism") or 1)) - active
    is_failed = status.get("failed", 0) > int(job["spec"].get("backoffLimit", 6))
    for _ in range(0 if is_failed else max(0, room)):
        _create_pod(server, job)
        active += 1
    status["active"] = active
    if wanted <= 0 or is_failed:
        kind = "Failed" if is_failed else "Complete"
        status["conditions"] = [{"type": kind, "status": "True"}]
    _write_status(server, job, status)


def _create_pod(server: FakeApiServer, job: Object) -> None:
    template = copy.deepcopy(job["spec"]["template"])
    metadata = template.setdefault("metadata", {})
    name = job["metadata"]["name"]
    metadata |= {
        "generateName": f"{name}-",
        "finalizers": [_JOB_TRACKING],
        "labels": {**(metadata.get("labels") or {}), "batch.kubernetes.io/job-name": name},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": job["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    server.create("pods", template, job["metadata"]["namespace"])


def _remove_finalizer(server: FakeApiServer, pod: Object) -> None:
    def released(value: Object) -> Object:
        finalizers = value["metadata"].get("finalizers") or ()
        value["metadata"]["finalizers"] = [each for each in finalizers if each != _JOB_TRACKING]
        return value

    with suppress(StatusError):  # the pod was deleted meanwhile
        server.change("pods", pod["metadata"]["name"], released, pod["metadata"]["namespace"])


def _write_status(server: FakeApiServer, job: Object, status: Object) -> None:
    before = job.get("status") or {}
    if status == before:
        return
    if status.get("conditions") and not before.get("conditions"):
        status["completionTime"] = timestamp()

    def changed(value: Object) -> Object:
        value["status"] = status
        return value

    metadata = job["metadata"]
    with suppress(StatusError):  # the Job was deleted meanwhile
        server.change(
            "jobs", metadata["name"], changed, metadata["namespace"], subresource="status"
        )
