"""An outcome as facts: a path each, and a plain value that does not depend on any order."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import checkpoint

__all__ = ["Facts", "facts_of"]

Facts = dict[str, Any]
_Pair = tuple[str, Any]


def facts_of(outcome: Mapping[str, Any]) -> Facts:
    """Every fact of a step's outcome."""
    return dict(_facts(outcome))


def _facts(outcome: Mapping[str, Any]) -> Iterator[_Pair]:
    if outcome.get("admit") is not None:
        yield from (("admit", outcome["admit"]), ("reason", outcome["reason"]))
        yield "message", outcome["message"]
    for kind, hints in (outcome.get("hints") or {}).items():
        yield from ((f"hints {kind} {resource}", each) for resource, each in hints.items())
    for container, hint in (outcome.get("affinity") or {}).items():
        yield f"affinity {container}", None if hint is None else hint["nodes"]
    for uid, verdict in (outcome.get("readmitted") or {}).items():
        yield from ((f"readmitted {uid} {name}", value) for name, value in verdict.items())
    if outcome.get("registered") is not None:
        yield "registered", outcome["registered"]
    for container, options in (outcome.get("started") or {}).items():
        yield from _options(f"started {container}", options)
    yield from _calls(outcome["calls"] or ())
    for kind in ("capacity", "allocatable"):
        yield from ((f"{kind} {resource}", count) for resource, count in outcome[kind].items())
    yield "health updates", sorted(set(outcome["health_updates"]))
    for uid, containers in outcome["devices"].items():
        for container, held in containers.items():
            for resource, ids in held.items():
                yield f"devices {uid} {container} {resource}", ids
                yield f"count {uid} {container} {resource}", len(ids)
    for uid, containers in (outcome.get("status") or {}).items():
        for container, resources in containers.items():
            for resource, health in resources.items():
                yield f"status {uid} {container} {resource}", health
    if outcome["written"] and outcome["checkpoint"]:
        yield from _checkpoint(base64.b64decode(outcome["checkpoint"]))
    yield from _lists(outcome.get("lists") or {})


def _options(path: str, options: Mapping[str, Any] | None) -> Iterator[_Pair]:
    # A container that has no devices has no options at all.
    options = options or dict.fromkeys(_FIELDS)
    if "error" in options:
        yield f"{path} error", options["error"]
        return
    for field, names in _FIELDS.items():
        kept = [{name: each[name] for name in names} for each in options[field] or ()]
        yield f"{path} {field}", _sorted(kept)


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Envs": ("Name", "Value"),
    "Mounts": ("ContainerPath", "HostPath", "ReadOnly"),
    "Devices": ("PathInContainer", "PathOnHost", "Permissions"),
    "Annotations": ("Name", "Value"),
    "CDIDevices": ("Name",),
}
"""What a plugin decides about in ``DeviceRunContainerOptions``."""


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))


def _calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[_Pair]:
    yield "calls", _sorted(calls)
    # Where the ids are random, which calls there were and how large is not.
    counted = [
        {name: len(value) if isinstance(value, list) else value for name, value in call.items()}
        for call in calls
    ]
    yield "calls counted", _sorted(counted)


def _checkpoint(text: bytes) -> Iterator[_Pair]:
    saved = checkpoint.loads(text)
    yield "checkpoint written by ours from what it reads", checkpoint.dumps(saved) == text
    for resource, ids in (saved.registered_devices or {}).items():
        yield f"checkpoint registered {resource}", sorted(ids or ())
    for entry in saved.entries or ():
        path = f"checkpoint entry {entry.pod_uid} {entry.container_name} {entry.resource_name}"
        devices = {str(node): sorted(ids or ()) for node, ids in (entry.device_ids or {}).items()}
        yield f"{path} devices", devices
        yield f"{path} response", base64.b64encode(entry.alloc_resp or b"").decode()


def _lists(lists: Mapping[str, Mapping[str, Any]]) -> Iterator[_Pair]:
    for name, answer in lists.items():
        if "error" in answer:
            yield f"{name}: error", answer["error"]
        elif name.startswith("list"):
            pods = answer.get("pod_resources", [])
            yield f"{name}: pods", sorted(pod["name"] for pod in pods)
            for pod in pods:
                yield from _pod(f"{name}: {pod['name']}", pod)
        elif name == "allocatable":
            for resource, devices in _by_resource(answer.get("devices", ())).items():
                yield f"{name}: {resource}", devices
        else:
            yield from _pod(name, answer["pod_resources"])


def _pod(path: str, pod: Mapping[str, Any]) -> Iterator[_Pair]:
    containers = pod.get("containers", ())
    yield f"{path} containers", [container["name"] for container in containers]
    for container in containers:
        for resource, devices in _by_resource(container.get("devices", ())).items():
            yield f"{path} {container['name']} {resource}", devices


def _by_resource(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in entries:
        nodes = None
        if entry.get("topology") is not None:
            nodes = [int(node.get("ID", 0)) for node in entry["topology"].get("nodes", ())]
        ids = sorted(entry.get("device_ids", ()))
        found.setdefault(entry["resource_name"], []).append([ids, nodes])
    return {resource: _sorted(each) for resource, each in found.items()}
