"""The Job controller: creates pods, counts those that ended, takes its finalizer off them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target
from devicemanager.cluster.fake_apiserver.objects import has_ended, timestamp

if TYPE_CHECKING:
    from devicemanager.cluster.fake_apiserver.server import FakeApiServer

__all__ = ["step"]

TRACKING: Final = "batch.kubernetes.io/job-tracking"
Object = dict[str, Any]


def step(stub: FakeApiServer) -> None:
    """Look at every Job once."""
    pods: dict[str, list[Object]] = {}
    for pod in stub.all("pods"):
        for owner in pod["metadata"].get("ownerReferences") or ():
            pods.setdefault(owner["uid"], []).append(pod)
    jobs = {job["metadata"]["uid"]: job for job in stub.all("jobs")}
    for uid, job in jobs.items():
        _reconcile(stub, job, pods.get(uid, []))
    for uid in pods.keys() - jobs.keys():
        for pod in pods[uid]:
            _release(stub, pod)


def _reconcile(stub: FakeApiServer, job: Object, pods: list[Object]) -> None:
    counted = dict(job.get("status") or {})
    for pod in pods:
        # Only what was counted loses the finalizer, and only what still has it is counted.
        if TRACKING not in (pod["metadata"].get("finalizers") or ()) or not has_ended(pod):
            continue
        key = "succeeded" if pod["status"].get("phase") == "Succeeded" else "failed"
        counted[key] = counted.get(key, 0) + 1
        _release(stub, pod)
    active = [pod for pod in pods if not has_ended(pod)]
    wanted = int(job["spec"].get("completions") or 1) - counted.get("succeeded", 0)
    room = min(wanted, int(job["spec"].get("parallelism") or 1)) - len(active)
    is_failed = counted.get("failed", 0) > int(job["spec"].get("backoffLimit", 6))
    for _ in range(0 if is_failed else max(0, room)):
        active.append(_create(stub, job))
    counted["active"] = len(active)
    if wanted <= 0 or is_failed:
        kind = "Failed" if is_failed else "Complete"
        counted["conditions"] = [{"type": kind, "status": "True"}]
    _say(stub, job, counted)


def _create(stub: FakeApiServer, job: Object) -> Object:
    template = copy.deepcopy(job["spec"]["template"])
    metadata = template.setdefault("metadata", {})
    name = job["metadata"]["name"]
    metadata |= {
        "generateName": f"{name}-",
        "finalizers": [TRACKING],
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
    return stub.create("pods", template, job["metadata"]["namespace"])


def _release(stub: FakeApiServer, pod: Object) -> None:
    metadata = pod["metadata"]

    def released(value: Object) -> Object:
        finalizers = value["metadata"].get("finalizers") or ()
        value["metadata"]["finalizers"] = [each for each in finalizers if each != TRACKING]
        return value

    try:
        stub.objects.change(
            Target(KINDS["pods"], metadata["namespace"], metadata["name"]), released
        )
    except Rejection:
        return


def _say(stub: FakeApiServer, job: Object, counted: Object) -> None:
    if counted == (job.get("status") or {}):
        return
    if counted.get("conditions") and not (job.get("status") or {}).get("conditions"):
        counted["completionTime"] = timestamp()

    def said(value: Object) -> Object:
        value["status"] = counted
        return value

    metadata = job["metadata"]
    target = Target(KINDS["jobs"], metadata["namespace"], metadata["name"], "status")
    try:
        stub.objects.change(target, said)
    except Rejection:
        return
