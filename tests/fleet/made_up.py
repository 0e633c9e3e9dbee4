"""A small made-up cluster: objects as an API server has them."""

from __future__ import annotations

from typing import Any

GPU = "vendor.com/gpu"
DRIVER = "gpu.example.com"


def node(name: str, devices: int, healthy: int | None = None, **spec: Any) -> dict[str, Any]:
    common = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "zone": name[-1]},
            "annotations": {"secret": "hidden-annotation"},
        },
        "spec": spec,
        "status": {
            "capacity": {**common, GPU: str(devices)},
            "allocatable": {**common, GPU: str(devices if healthy is None else healthy)},
            "nodeInfo": {"kubeletVersion": "v1.36.1-vendor.3"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str, devices: int = 0, **status: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": "1"}}
    if devices:
        resources["limits"] = {GPU: str(devices)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": f"u-{name}"},
        "spec": {
            **({"nodeName": on} if on else {}),
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/train",
                    "env": [{"name": "TOKEN", "value": "hidden-value"}],
                    "resources": resources,
                }
            ],
        },
        "status": {"phase": "Running", **status},
    }


def slice_(node: str) -> dict[str, Any]:
    """A GPU that can be used whole or as two halves."""
    halves = [{"name": f"half-{number}", "consumesCounters": [_counters(1)]} for number in range(2)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 2},
            "devices": [{"name": "whole", "consumesCounters": [_counters(2)]}, *halves],
        },
    }


def counters(node: str) -> dict[str, Any]:
    slice_of_node = slice_(node)
    del slice_of_node["spec"]["devices"]
    slice_of_node["metadata"] = {"name": f"counters-{node}"}
    slice_of_node["spec"]["sharedCounters"] = [
        {"name": "gpu", "counters": {"slots": {"value": "2"}}}
    ]
    return slice_of_node


def _counters(count: int) -> dict[str, Any]:
    return {"counterSet": "gpu", "counters": {"slots": {"value": str(count)}}}


def device_class() -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }


def claim(name: str, device: str, node: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    exactly = {"deviceClassName": "gpu"}
    config = [{"opaque": {"driver": DRIVER, "parameters": {"key": "hidden-parameter"}}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], "config": config}},
        "status": {"allocation": {"devices": {"results": [result], "config": []}}},
    }


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "half", "namespace": "ml"},
    "spec": {
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    },
}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus", "namespace": "ml"},
    "spec": {"hard": {f"requests.{GPU}": "9", "pods": "100"}},
    "status": {"used": {f"requests.{GPU}": "7", "pods": "5"}},
}
EVERYTHING = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
    node("node-a", 4),
    node("node-b", 4, healthy=3),
    node("node-c", 2, taints=[{"key": "vendor.com/gpu", "effect": "NoSchedule"}]),
    pod("train", "node-a", 3),
    pod("infer", "node-b", 1),
    pod("web", "node-b"),
    pod("done", "node-a", 4, phase="Succeeded"),
    pod("lost", "node-c", 1, phase="Failed", reason="UnexpectedAdmissionError"),
    pod("waits", "", 2, phase="Pending"),
    device_class(),
    slice_("node-a"),
    counters("node-a"),
    claim("shared", "half-0", "node-a"),
    TEMPLATE,
    QUOTA,
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ml"},
        "data": {"a": "aGlkZGVu"},
    },
]
"""Three nodes, with 10 devices, of which 4 are allocated and 1 is unhealthy."""
