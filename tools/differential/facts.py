"""Divide the result of a step into facts: plain values by path.

Random values are included: ``comparing`` finds out which facts are random. A value is sorted only
if the kubelet's order has no meaning, as for the device IDs of a container.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import checkpoint
from tools.differential.plain import plain_text

Facts = dict[str, Any]
"""Values of facts, by path."""
_Pair = tuple[str, Any]


def facts_of(outcome: Mapping[str, Any]) -> Facts:
    """Return all facts of a step's result."""
    return dict(_facts(outcome))


def _facts(outcome: Mapping[str, Any]) -> Iterator[_Pair]:
    if outcome.get("admit") is not None:
        yield from _verdict("", outcome)
    if outcome.get("meanwhile") is not None:
        yield from _verdict("meanwhile ", outcome["meanwhile"])
    for kind, hints in (outcome.get("hints") or {}).items():
        yield from ((f"hints {kind} {resource}", each) for resource, each in hints.items())
    for container, hint in (outcome.get("affinity") or {}).items():
        yield f"affinity {container}", hint
    for uid, verdict in (outcome.get("readmitted") or {}).items():
        yield from _verdict(f"readmitted {uid} ", verdict)
    if outcome.get("registered") is not None:
        yield from ((f"registered {name}", each) for name, each in outcome["registered"].items())
    for container, options in (outcome.get("started") or {}).items():
        yield from _options(f"started {container}", options)
    yield from _calls(outcome.get("calls") or ())
    for kind in ("capacity", "allocatable"):
        yield from ((f"{kind} {resource}", count) for resource, count in outcome[kind].items())
    yield "health updates", sorted(set(outcome["health_updates"] or ()))
    for uid, containers in outcome["devices"].items():
        for container, held in containers.items():
            for resource, ids in held.items():
                yield f"devices {uid} {container} {resource}", sorted(ids)
                yield f"count {uid} {container} {resource}", len(ids)
    for uid, containers in (outcome.get("status") or {}).items():
        for container, resources in containers.items():
            for resource, health in resources.items():
                yield f"status {uid} {container} {resource}", health
    yield "written", bool(outcome["written"])
    if outcome["written"] and outcome.get("checkpoint"):
        yield from _checkpoint(base64.b64decode(outcome["checkpoint"]))
    yield from _lists(outcome.get("lists") or {})


def _verdict(path: str, verdict: Mapping[str, Any]) -> Iterator[_Pair]:
    yield f"{path}admit", verdict["admit"]
    yield f"{path}reason", verdict["reason"]
    yield f"{path}message", plain_text(verdict["message"])


def _options(path: str, options: Mapping[str, Any] | None) -> Iterator[_Pair]:
    # A container without devices has no run options.
    options = options or dict.fromkeys(_FIELDS)
    if "error" in options:
        yield f"{path} error", plain_text(str(options["error"]))
        return
    for field, names in _FIELDS.items():
        values = [{name: each[name] for name in names} for each in options[field] or ()]
        yield f"{path} {field}", _sorted(values) if field in _UNORDERED else values


_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Envs": ("Name", "Value"),
    "Mounts": ("ContainerPath", "HostPath", "ReadOnly"),
    "Devices": ("PathInContainer", "PathOnHost", "Permissions"),
    "Annotations": ("Name", "Value"),
    "CDIDevices": ("Name",),
}
"""Fields of ``DeviceRunContainerOptions`` that a plugin sets."""
_UNORDERED: Final = frozenset({"Envs", "Annotations"})
"""Fields that are maps in a plugin's response."""


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))


def _calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[_Pair]:
    yield "calls", list(calls)
    for resource in {call["resource"] for call in calls}:
        yield f"calls of {resource}", [each for each in calls if each["resource"] == resource]
    # Device IDs and the order of resources can be random; the calls and their sizes are not.
    counted = [
        {name: len(value) if isinstance(value, list) else value for name, value in call.items()}
        for call in calls
    ]
    yield "calls counted", _sorted(counted)


def _checkpoint(text: bytes) -> Iterator[_Pair]:
    yield "checkpoint text", _in_order(text)
    try:
        saved = checkpoint.loads(text)
    except checkpoint.CheckpointError as error:
        yield "checkpoint cannot be read", str(error)
        return
    yield "checkpoint written by ours from what it reads", checkpoint.dumps(saved) == text
    registered = saved.registered_devices or {}
    yield "checkpoint registered", sorted(registered)
    for resource, ids in registered.items():
        yield f"checkpoint registered {resource}", sorted(ids or ())
    entries = saved.entries or ()
    names = (f"{each.pod_uid} {each.container_name} {each.resource_name}" for each in entries)
    yield "checkpoint entries", sorted(names)
    for entry in entries:
        path = f"checkpoint entry {entry.pod_uid} {entry.container_name} {entry.resource_name}"
        devices = {str(node): sorted(ids or ()) for node, ids in (entry.device_ids or {}).items()}
        yield f"{path} devices", devices
        yield f"{path} response", base64.b64encode(entry.alloc_resp or b"").decode()


def _in_order(text: bytes) -> str:
    """Return the text with entries and IDs sorted, and without the checksum, which depends on their
    order. The order of keys, the form of empty values, escapes and spaces do not change.
    """
    data = json.loads(text)
    form = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        form = form.replace(character, f"\\u{ord(character):04x}")
    spaces = "" if form.encode() == text.strip() else " not as Go writes JSON"
    data.pop("Checksum", None)
    content = data.get("Data") or {}
    if content.get("PodDeviceEntries"):
        for entry in content["PodDeviceEntries"]:
            for ids in (entry["DeviceIDs"] or {}).values():
                if ids is not None:
                    ids.sort()
        content["PodDeviceEntries"] = _sorted(content["PodDeviceEntries"])
    for ids in (content.get("RegisteredDevices") or {}).values():
        if ids is not None:
            ids.sort()
    return json.dumps(data, separators=(",", ":")) + spaces


def _lists(lists: Mapping[str, Mapping[str, Any]]) -> Iterator[_Pair]:
    for name, answer in lists.items():
        if "error" in answer:
            yield f"{name}: error", [answer["code"], answer["error"]]
        elif name.startswith("list"):
            pods = answer.get("pod_resources") or []
            titles = [f"{pod.get('namespace')}/{pod.get('name')}" for pod in pods]
            yield f"{name}: pods", sorted(titles)
            for title, pod in zip(titles, pods, strict=True):
                yield from _pod(f"{name}: {title}", pod)
        elif name == "allocatable":
            yield from _resources(f"{name}:", answer)
        else:
            pod = answer["pod_resources"]
            yield f"{name}: pod", f"{pod.get('namespace')}/{pod.get('name')}"
            yield from _pod(name, pod)


def _pod(path: str, pod: Mapping[str, Any]) -> Iterator[_Pair]:
    containers = pod.get("containers") or ()
    yield f"{path} containers", [container["name"] for container in containers]
    for container in containers:
        yield from _resources(f"{path} {container['name']}", container)
    rest = {name: pod[name] for name in pod.keys() - {"name", "namespace", "containers"}}
    yield f"{path} rest", {name: value for name, value in rest.items() if value}


def _resources(path: str, answer: Mapping[str, Any]) -> Iterator[_Pair]:
    """Yield the facts about devices, CPUs, memory and claims."""
    for resource, devices in _by_resource(answer.get("devices") or ()).items():
        yield f"{path} {resource}", devices
    rest = {name: answer[name] for name in answer.keys() - {"name", "devices"} if answer[name]}
    # In protobuf's JSON, 64-bit numbers are strings. In Go's JSON, they are numbers.
    if "memory" in rest:
        rest["memory"] = [
            {**each, "size": int(each["size"]), "topology": _nodes(each)} for each in rest["memory"]
        ]
    if "cpu_ids" in rest:
        rest["cpu_ids"] = [int(each) for each in rest["cpu_ids"]]
    yield f"{path} rest", rest


def _nodes(entry: Mapping[str, Any]) -> list[int] | None:
    """Return the NUMA nodes of an entry; None if it has no topology."""
    topology = entry.get("topology")
    if topology is None:
        return None
    return [int(node.get("ID", 0)) for node in topology.get("nodes") or ()]


def _by_resource(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in entries:
        ids = sorted(entry.get("device_ids") or ())
        found.setdefault(entry["resource_name"], []).append([ids, _nodes(entry)])
    return {resource: _sorted(each) for resource, each in found.items()}
