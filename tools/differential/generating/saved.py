"""Make checkpoint files: valid, damaged, or of other formats."""

from __future__ import annotations

import base64
import json

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from tools.differential.generating.state import RESOURCES, Plain, State
from tools.replay.scenario import RESPONSE


def saved(state: State, pods: list[Plain]) -> str:
    """Return a checkpoint in base64 with entries of these pods or of unknown pods."""
    text = checkpoint.dumps(_checkpoint(state, pods))
    return base64.b64encode(_damaged(state, text)).decode()


def _checkpoint(state: State, pods: list[Plain]) -> Checkpoint:
    rng = state.rng
    entries = []
    for pod in pods or [{"uid": "old-pod", "containers": [{"name": "main-0", "limits": {}}]}]:
        for container in pod["containers"]:
            wanted = dict(container["limits"]) or {rng.choice(RESOURCES): 1}
            for resource, count in wanted.items():
                if "/" in resource and count:
                    entries.append(_entry(state, pod["uid"], container["name"], resource, count))
    resources = {entry.resource_name for entry in entries}
    if state.chance(0.3):
        resources = {rng.choice(RESOURCES)}
    return Checkpoint(tuple(entries), dict.fromkeys(sorted(resources), ("old-0",)))


def _entry(state: State, uid: str, container: str, resource: str, count: int) -> PodDevicesEntry:
    rng = state.rng
    short = resource.rpartition("/")[2]
    ids = tuple(f"{short}-{number:02}" for number in rng.sample(range(8), min(count, 8)))
    nodes = rng.choice(({-1: ids}, {state.numa[0]: ids}, {state.numa[-1]: ids}))
    response = rng.choice((RESPONSE, RESPONSE, b"", b"\xff\xff\x00broken"))
    return PodDevicesEntry(uid, container, resource, nodes, response)


def _damaged(state: State, text: bytes) -> bytes:
    kind = state.rng.choice(
        ("whole", "whole", "whole", "cut", "sum", "empty", "json", "null", "old", "more")
    )
    data = json.loads(text)
    if kind == "cut":
        return text[: len(text) // 2]
    if kind == "sum":
        data["Checksum"] += 1
    elif kind == "empty":
        return b""
    elif kind == "json":
        return b"[]"
    elif kind == "null":
        return b'{"Data":null,"Checksum":0}'
    elif kind == "old":
        # As kubelets before 1.20 wrote it: device IDs without NUMA nodes.
        for entry in data["Data"]["PodDeviceEntries"] or ():
            entry["DeviceIDs"] = [id_ for ids in entry["DeviceIDs"].values() for id_ in ids]
    elif kind == "more":
        data["Unknown"] = {"a": 1}
    else:
        return text
    return json.dumps(data, separators=(",", ":")).encode()
