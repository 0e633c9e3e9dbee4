"""Node objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.core.nodestatus.conditions import NodeCondition
from devicemanager.objects.status.times import timestamp

__all__ = [
    "ATTACH",
    "NodeSystemInfo",
    "default_labels",
    "node_object",
    "node_reference",
    "node_status_object",
]

Object = dict[str, Any]

ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"


@attrs.frozen
class NodeSystemInfo:
    """``status.nodeInfo``, as far as anybody looks at it."""

    kubelet_version: str
    operating_system: str = "linux"
    architecture: str = "amd64"
    os_image: str = "devicemanager"
    container_runtime_version: str = "devicemanager://1"
    kernel_version: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""

    def as_object(self) -> Object:
        """All ten texts; empty ones are allowed."""
        return {
            "architecture": self.architecture,
            "bootID": self.boot_id,
            "containerRuntimeVersion": self.container_runtime_version,
            "kernelVersion": self.kernel_version,
            "kubeProxyVersion": self.kubelet_version,
            "kubeletVersion": self.kubelet_version,
            "machineID": self.machine_id,
            "operatingSystem": self.operating_system,
            "osImage": self.os_image,
            "systemUUID": self.system_uuid,
        }


def default_labels(name: str, info: NodeSystemInfo) -> dict[str, str]:
    """Those that the kubelet gives every node (``initialNode``, v1.32)."""
    return {
        "beta.kubernetes.io/arch": info.architecture,
        "beta.kubernetes.io/os": info.operating_system,
        "kubernetes.io/arch": info.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": info.operating_system,
    }


def node_object(
    name: str,
    status: Object,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> Object:
    """What registers a node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": dict(labels),
            "annotations": {ATTACH: "true", **(annotations or {})},
        },
        "spec": {"taints": [dict(each) for each in taints]},
        "status": status,
    }


def node_reference(name: str, uid: str) -> Object:
    """A Node as ``ownerReferences`` of what belongs to it name it."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def node_status_object(
    name: str,
    conditions: Sequence[NodeCondition],
    amounts: tuple[Mapping[str, str], Mapping[str, str]],
    info: NodeSystemInfo,
    *,
    now: float,
    before: Mapping[str, Any] | None = None,
    address: str = "",
    port: int = 0,
) -> Object:
    """``status`` of a node at ``now``, in seconds since the epoch. ``before`` is the one told
    last: a condition that says the same keeps its transition time. ``amounts`` are capacity
    and allocatable; ``port`` is that of the kubelet's HTTP server, 0 for none."""
    capacity, allocatable = amounts
    there = [{"type": "InternalIP", "address": address}] if address else []
    return {
        "addresses": [*there, {"type": "Hostname", "address": name}],
        "allocatable": dict(allocatable),
        "capacity": dict(capacity),
        "conditions": _conditions(conditions, now, before or {}),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": info.as_object(),
    }


def _conditions(
    conditions: Sequence[NodeCondition], now: float, before: Mapping[str, Any]
) -> list[Object]:
    known = {each["type"]: each for each in before.get("conditions") or ()}
    text = timestamp(now)
    made = []
    for each in conditions:
        status = "True" if each.status else "False"
        old = known.get(each.type, {})
        same = old.get("status") == status
        made.append(
            {
                "type": str(each.type),
                "status": status,
                "lastHeartbeatTime": text,
                "lastTransitionTime": old["lastTransitionTime"] if same else text,
                "reason": each.reason,
                "message": each.message,
            }
        )
    return made
