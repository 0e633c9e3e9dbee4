"""``status`` of a pod as the API has it, and what can be read back of one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.podstatus.conditions import Condition
from devicemanager.core.podstatus.containers import (
    ContainerStatus,
    Running,
    State,
    Terminated,
    Waiting,
)
from devicemanager.core.podstatus.status import ContainerEntry, PodStatus
from devicemanager.core.status import ResourceStatus
from devicemanager.objects.status.times import seconds_of, timestamp

__all__ = ["container_statuses_of", "held_devices", "status_object"]

Object = dict[str, Any]


def status_object(
    uid: PodUid,
    status: PodStatus,
    *,
    now: float,
    since: Mapping[str, str] | None = None,
    host_ip: str = "",
    pod_ip: str = "",
) -> Object:
    """``status`` of the pod. ``now`` is the transition time of a condition that has none
    (seconds since the epoch), ``since`` the texts of those that are in the API already.

    A field without a value is not there: ``status_patch`` takes it away."""
    made: Object = {"phase": str(status.phase), "qosClass": str(status.qos_class)}
    texts = {"reason": status.reason, "message": status.message}
    made |= {name: text for name, text in texts.items() if text}
    if status.start_time is not None:
        made["startTime"] = timestamp(status.start_time)
    if status.conditions:
        known = since or {}
        made["conditions"] = [_condition(each, now, known) for each in status.conditions]
    if host_ip and status.conditions:
        made |= {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if pod_ip and status.conditions:
        made |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    if status.init_containers:
        made["initContainerStatuses"] = _entries(uid, status.init_containers)
    if status.containers:
        made["containerStatuses"] = _entries(uid, status.containers)
    return made


def _condition(condition: Condition, now: float, since: Mapping[str, str]) -> Object:
    made: Object = {
        "type": str(condition.type),
        "status": "True" if condition.status else "False",
        "lastProbeTime": None,
        "lastTransitionTime": since.get(condition.type)
        or timestamp(now if condition.since is None else condition.since),
    }
    if condition.reason:
        made["reason"] = condition.reason
    if condition.message:
        made["message"] = condition.message
    return made


def _entries(uid: PodUid, entries: Iterable[ContainerEntry]) -> list[Object]:
    return [_entry(uid, each) for each in entries]


def _entry(uid: PodUid, entry: ContainerEntry) -> Object:
    status = entry.status
    made: Object = {
        "name": str(status.name),
        "image": entry.container.image,
        "imageID": "",
        "ready": entry.is_ready,
        "started": entry.is_started,
        "restartCount": status.restart_count,
        "state": _state(uid, status, status.state, status.restart_count),
        "lastState": {},
    }
    if status.was_started:
        made["containerID"] = container_id(uid, status.name, status.restart_count)
    if status.last_termination is not None:
        # What waits for its next start has not been counted as restarted yet.
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
                    **_times(startedAt=state.started_at, finishedAt=state.finished_at),
                    "containerID": container_id(uid, status.name, run),
                }
            }


def _times(**times: float | None) -> Object:
    """Null for a time that nobody knows, as the API shows it."""
    return {name: None if each is None else timestamp(each) for name, each in times.items()}


def container_id(uid: PodUid, name: ContainerName, run: int) -> str:
    """An id as containerd's are, the same whenever it is asked for."""
    digest = hashlib.sha256(f"{uid}/{name}/{run}".encode()).hexdigest()
    return f"containerd://{digest}"


def _resource(status: ResourceStatus) -> Object:
    return {
        "name": str(status.name),
        "resources": [
            {"resourceID": str(each.resource_id), "health": str(each.health)}
            for each in status.resources
        ],
    }


# -- reading -------------------------------------------------------------------------------


def container_statuses_of(status: Mapping[str, Any]) -> dict[ContainerName, ContainerStatus]:
    """The containers of a pod's status in the API, those only that were started."""
    listed = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    read = (_read(each) for each in listed)
    return {each.name: each for each in read if each.was_started}


def _read(found: Mapping[str, Any]) -> ContainerStatus:
    last = _read_state(found.get("lastState") or {})
    return ContainerStatus(
        ContainerName(str(found.get("name"))),
        _read_state(found.get("state") or {}),
        last if isinstance(last, Terminated) else None,
        int(found.get("restartCount") or 0),
    )


def _read_state(found: Mapping[str, Any]) -> State:
    if (ran := found.get("terminated")) is not None:
        return Terminated(
            int(ran.get("exitCode") or 0),
            str(ran.get("reason") or ""),
            seconds_of(ran.get("startedAt")),
            seconds_of(ran.get("finishedAt")),
        )
    if (runs := found.get("running")) is not None:
        return Running(seconds_of(runs.get("startedAt")))
    waits = found.get("waiting") or {}
    return Waiting(str(waits.get("reason") or "ContainerCreating"), str(waits.get("message") or ""))


def held_devices(status: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Container → resource → device ids, as ``allocatedResourcesStatus`` has them; empty where
    the API server does not keep that field."""
    held: dict[str, dict[str, list[str]]] = {}
    for container in status.get("containerStatuses") or ():
        for resource in container.get("allocatedResourcesStatus") or ():
            ids = [str(each["resourceID"]) for each in resource.get("resources") or ()]
            if ids:
                held.setdefault(str(container["name"]), {})[str(resource["name"])] = ids
    return held
