"""Pod objects and statuses as JSON values; a restarted kubelet reads back these statuses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.podstatus.conditions import Condition
from devicemanager.core.podstatus.containers import (
    ContainerStatus,
    Running,
    State,
    Terminated,
    Waiting,
)
from devicemanager.core.podstatus.status import ContainerEntry, PodStatus
from devicemanager.core.quantity import NANOS, canonical
from devicemanager.core.status import ResourceStatus
from devicemanager.objects.status.times import seconds_of, timestamp

__all__ = [
    "allocated_devices",
    "container_statuses_of",
    "pod_list",
    "pod_object",
    "status_object",
    "with_allocated",
]

Object = dict[str, Any]

_CPU = "cpu"
_MEMORY = "memory"
# Only these resources can be resized in place, so only they can differ between spec and status.
_RESIZED = frozenset({"cpu", "memory"})


# -- pods ----------------------------------------------------------------------------------


def pod_object(
    pod: Pod,
    status: Object,
    *,
    node: str,
    deletion_grace: float | None = None,
    deletion_time: float | None = None,
) -> Object:
    """Return the Pod object of a pod on a node.

    Manifest fields that this project does not use, such as labels and commands, are omitted.
    """
    metadata: Object = {"name": pod.name, "namespace": pod.namespace, "uid": str(pod.uid)}
    if deletion_grace is not None:
        metadata["deletionGracePeriodSeconds"] = int(deletion_grace)
    if deletion_time is not None:
        metadata["deletionTimestamp"] = timestamp(deletion_time)
    spec: Object = {
        "containers": [_container(each) for each in pod.containers],
        "nodeName": node,
        "restartPolicy": str(pod.restart_policy),
        "terminationGracePeriodSeconds": pod.termination_grace_period,
    }
    if pod.init_containers:
        spec["initContainers"] = [_container(each) for each in pod.init_containers]
    if pod.resource_claims:
        spec["resourceClaims"] = [
            {"name": name} | ({} if claim is None else {"resourceClaimName": claim})
            for name, claim in pod.resource_claims.items()
        ]
    return {"metadata": metadata, "spec": spec, "status": status}


def pod_list(pods: Iterable[Object]) -> Object:
    """Return a v1 PodList with these Pod objects. Objects in a list have no kind and apiVersion."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}


def _container(container: Container) -> Object:
    made: Object = {"name": str(container.name), "image": container.image}
    made["resources"] = _resources(container)
    if container.restartable:
        made["restartPolicy"] = "Always"
    return made


def _resources(container: Container) -> Object:
    resources: Object = {
        name: _quantities(amounts)
        for name, amounts in (("limits", container.limits), ("requests", container.requests))
        if amounts
    }
    if container.claims:
        resources["claims"] = [{"name": name} for name in container.claims]
    return resources


def _quantities(amounts: Mapping[ResourceName, int]) -> dict[str, str]:
    return {str(name): _quantity(name, amount) for name, amount in amounts.items()}


def _quantity(name: ResourceName, amount: int) -> str:
    # A core Pod counts CPUs in thousandths, and all other resources in whole units.
    if name == _MEMORY:
        return canonical(amount * NANOS, "BinarySI")
    if name != _CPU:
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


# -- status --------------------------------------------------------------------------------


def status_object(
    uid: PodUid,
    status: PodStatus,
    *,
    now: float,
    since: Mapping[str, str] | None = None,
    host_ip: str = "",
    pod_ip: str = "",
    generation: int = 0,
    with_resources: bool = False,
) -> Object:
    """Return the status of a pod as a JSON object.

    ``since``: transition times from the API server's Pod object, by type of condition. A condition
    that is not in ``since`` gets its own time or, if it has none, ``now`` (seconds since the
    epoch). ``generation``: the ``observedGeneration``; 0 to omit it. ``with_resources``: True to
    include resources in the status of each started container. Fields without a value are omitted;
    ``status_patch`` removes them from the API object.
    """
    made: Object = {"phase": str(status.phase), "qosClass": str(status.qos_class)}
    texts = {"reason": status.reason, "message": status.message}
    made |= {name: text for name, text in texts.items() if text}
    observed = {"observedGeneration": generation} if generation else {}
    made |= observed
    if status.start_time is not None:
        made["startTime"] = timestamp(status.start_time)
    if status.conditions:
        made["conditions"] = [
            _condition(each, now, since or {}, generation) for each in status.conditions
        ]
    # Only a rejected pod has no conditions, and a rejected pod has no addresses.
    if host_ip and status.conditions:
        made |= {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if pod_ip and status.conditions:
        made |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    if status.init_containers:
        made["initContainerStatuses"] = _entries(uid, status.init_containers, with_resources)
    if status.containers:
        made["containerStatuses"] = _entries(uid, status.containers, with_resources)
    if status.ephemeral_containers:
        made["ephemeralContainerStatuses"] = _entries(
            uid, status.ephemeral_containers, with_resources
        )
    return made


def _condition(
    condition: Condition, now: float, since: Mapping[str, str], generation: int
) -> Object:
    made: Object = {
        "type": str(condition.type),
        "status": "True" if condition.status else "False",
        # Go's ``omitempty`` does not omit a time, because it is a struct. An unset time is null.
        "lastProbeTime": None,
        "lastTransitionTime": since.get(condition.type)
        or timestamp(now if condition.since is None else condition.since),
    }
    if condition.reason:
        made["reason"] = condition.reason
    if condition.message:
        made["message"] = condition.message
    if generation:
        made["observedGeneration"] = condition.generation or generation
    return made


def _entries(uid: PodUid, entries: Iterable[ContainerEntry], with_resources: bool) -> list[Object]:
    return [_entry(uid, each, with_resources) for each in entries]


def _entry(uid: PodUid, entry: ContainerEntry, with_resources: bool) -> Object:
    status = entry.status
    # Go also writes ``imageID`` and ``lastState`` if they are empty, so they are always present.
    made: Object = {
        "name": str(status.name),
        "image": entry.container.image,
        "imageID": "",
        "ready": entry.is_ready,
        "restartCount": status.restart_count,
        "state": _state(uid, status, status.state, status.restart_count),
        "lastState": {},
    }
    if not entry.container.is_ephemeral:
        made["started"] = entry.is_started
    if status.was_started:
        # Containers do not run, so the ID is derived from the image's name.
        made["imageID"] = f"sha256:{hashlib.sha256(entry.container.image.encode()).hexdigest()}"
        made["containerID"] = container_id(uid, status.name, status.restart_count)
        # As in the kubelet, only containers that the runtime knows have them
        # (``convertToAPIContainerStatuses``, pkg/kubelet/kubelet_pods.go, v1.37).
        if with_resources:
            made["resources"] = _resources(entry.actual or entry.container)
            if entry.container.requests:
                made["allocatedResources"] = _quantities(entry.container.requests)
    if status.last_termination is not None:
        # A restart counts only when the container starts, not while it waits for the restart.
        waits = isinstance(status.state, Waiting)
        before = status.restart_count - (not waits)
        made["lastState"] = _state(uid, status, status.last_termination, before)
    if entry.resources:
        made["allocatedResourcesStatus"] = [_resource(each) for each in entry.resources]
    return made


def _state(uid: PodUid, status: ContainerStatus, state: State, run: int) -> Object:
    match state:
        case Waiting():
            made: Object = {"reason": state.reason}
            if state.message:
                made["message"] = state.message
            return {"waiting": made}
        case Running():
            return {"running": _times(startedAt=state.started_at)}
        case Terminated():
            return {
                "terminated": {
                    "exitCode": state.exit_code,
                    "reason": state.reason,
                    **({"message": state.message} if state.message else {}),
                    **_times(startedAt=state.started_at, finishedAt=state.finished_at),
                    "containerID": container_id(uid, status.name, run),
                }
            }


def _times(**times: float | None) -> Object:
    """Return times as timestamps by name; None becomes null, as in the API."""
    return {name: None if each is None else timestamp(each) for name, each in times.items()}


def container_id(uid: PodUid, name: ContainerName, run: int) -> str:
    """Return a container ID in containerd's form. It is derived from the pod's UID, the container's
    name, and ``run``: the number of restarts before this run."""
    digest = hashlib.sha256(f"{uid}/{name}/{run}".encode()).hexdigest()
    return f"containerd://{digest}"


def _resource(status: ResourceStatus) -> Object:
    return {
        "name": str(status.name),
        "resources": [
            {
                "resourceID": str(each.resource_id),
                "health": str(each.health),
                **({} if each.message is None else {"message": each.message}),
            }
            for each in status.resources
        ],
    }


# -- reading -------------------------------------------------------------------------------


def container_statuses_of(status: Mapping[str, Any]) -> dict[ContainerName, ContainerStatus]:
    """Read the statuses of started containers from a pod's status in the API: name → status."""
    listed = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
        *(status.get("ephemeralContainerStatuses") or ()),
    ]
    read = (_read(each) for each in listed)
    return {each.name: each for each in read if each.was_started}


def _read(found: Mapping[str, Any]) -> ContainerStatus:
    # ``_read_state`` returns Waiting for an empty state, but a last state is a termination or None.
    last = _read_state(found.get("lastState") or {})
    return ContainerStatus(
        ContainerName(str(found.get("name"))),
        _read_state(found.get("state") or {}),
        last if isinstance(last, Terminated) else None,
        int(found.get("restartCount") or 0),
    )


def _read_state(found: Mapping[str, Any]) -> State:
    if (ended := found.get("terminated")) is not None:
        return Terminated(
            int(ended.get("exitCode") or 0),
            str(ended.get("reason") or ""),
            seconds_of(ended.get("startedAt")),
            seconds_of(ended.get("finishedAt")),
            str(ended.get("message") or ""),
        )
    if (running := found.get("running")) is not None:
        return Running(seconds_of(running.get("startedAt")))
    waiting = found.get("waiting") or {}
    reason = waiting.get("reason") or "ContainerCreating"
    return Waiting(str(reason), str(waiting.get("message") or ""))


def allocated_devices(status: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the allocated devices in a pod's status: container → resource → device IDs.

    They are read from ``allocatedResourcesStatus`` of each container. The result is empty if the
    API server does not store this field (feature gate ResourceHealthStatus).
    """
    found: dict[str, dict[str, list[str]]] = {}
    for container in status.get("containerStatuses") or ():
        for resource in container.get("allocatedResourcesStatus") or ():
            ids = [str(each["resourceID"]) for each in resource.get("resources") or ()]
            # Entries of claims, such as ``claim:gpu``, do not belong to resources of plugins.
            if ids and not str(resource["name"]).startswith("claim:"):
                found.setdefault(str(container["name"]), {})[str(resource["name"])] = ids
    return found


def with_allocated(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Pod object with the CPU and memory amounts of its status in its spec.

    ``found``: the Pod object; it is not changed. Until a resize of the pod is complete, its spec
    and status have different amounts.
    """
    listed = found["status"].get("containerStatuses") or ()
    listed = [*listed, *(found["status"].get("initContainerStatuses") or ())]
    allocated = {each["name"]: each for each in listed if each.get("resources")}
    if not allocated:
        return found
    spec = dict(found["spec"])
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_with_status(each, allocated.get(each["name"])) for each in spec[field]]
    return {**found, "spec": spec}


def _with_status(container: Object, status: Mapping[str, Any] | None) -> Object:
    if status is None:
        return container
    given = container.get("resources") or {}
    limits, requests = status["resources"].get("limits"), status.get("allocatedResources")
    return {
        **container,
        "resources": {
            **given,
            "limits": _replaced(given.get("limits"), limits),
            "requests": _replaced(given.get("requests"), requests),
        },
    }


def _replaced(given: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> Object:
    """Return the amounts ``given``, but with the CPU and memory in ``found``."""
    others = {name: each for name, each in (given or {}).items() if name not in _RESIZED}
    return others | {name: each for name, each in (found or {}).items() if name in _RESIZED}


def has_health(status: Mapping[str, Any]) -> bool:
    """True if a container of a pod's status has ``allocatedResourcesStatus``."""
    containers = status.get("containerStatuses") or ()
    return any(each.get("allocatedResourcesStatus") for each in containers)
