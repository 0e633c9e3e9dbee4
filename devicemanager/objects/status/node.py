"""Node and Lease objects of the Kubernetes API as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.core.nodestatus.conditions import NodeCondition
from devicemanager.objects.status.times import micro_timestamp, timestamp

__all__ = [
    "ATTACH",
    "NodeSystemInfo",
    "default_labels",
    "lease_object",
    "node_object",
    "node_reference",
    "node_status_object",
]

Object = dict[str, Any]

# The kubelet sets this annotation by default (``enableControllerAttachDetach``).
ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"


@attrs.frozen
class NodeSystemInfo:
    """System information of a node (``status.nodeInfo``)."""

    kubelet_version: str = ""
    """Kubelet version that the node reports; empty for the version that the kubelet simulates."""
    operating_system: str = "linux"
    architecture: str = "amd64"
    os_image: str = "devicemanager"
    container_runtime_version: str = "containerd://2.0.0+devicemanager"
    kernel_version: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""

    def as_object(self) -> Object:
        """Return ``status.nodeInfo`` as JSON. The API requires all ten fields, even if empty."""
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
    """Return the labels that the kubelet sets on every node (``initialNode``, v1.32)."""
    # The two ``beta`` labels are deprecated, but a kubelet still sets them.
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
    """Return the Node object with which a kubelet registers its node."""
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
    """Return the entry in ``ownerReferences`` of an object that belongs to a node."""
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
    features: Sequence[str] = (),
) -> Object:
    """Return the status of a node at ``now``, in seconds since the epoch.

    ``amounts``: capacity and allocatable. ``before``: the last reported status. A condition with
    the same status as in ``before`` keeps its transition time. ``port``: the port of the kubelet's
    HTTP server; 0 for a kubelet without one. ``features``: the declared features.
    """
    capacity, allocatable = amounts
    internal = [{"type": "InternalIP", "address": address}] if address else []
    return {
        "addresses": [*internal, {"type": "Hostname", "address": name}],
        "allocatable": dict(allocatable),
        "capacity": dict(capacity),
        "conditions": _conditions(conditions, now, before or {}),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        **({"declaredFeatures": list(features)} if features else {}),
        "nodeInfo": info.as_object(),
    }


def _conditions(
    conditions: Sequence[NodeCondition], now: float, before: Mapping[str, Any]
) -> list[Object]:
    earlier = {each["type"]: each for each in before.get("conditions") or ()}
    text = timestamp(now)
    made = []
    for each in conditions:
        status = "True" if each.status else "False"
        old = earlier.get(each.type, {})
        # The transition time changes only with the status, not with each heartbeat.
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


def lease_object(metadata: Mapping[str, Any], holder: str, *, duration: int, now: float) -> Object:
    """Return a Lease of ``holder`` that is valid for ``duration`` seconds.

    ``now``: the time of the renewal, in seconds since the epoch.
    """
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": dict(metadata),
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": micro_timestamp(now),
        },
    }
