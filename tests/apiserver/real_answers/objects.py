"""Valid objects, and changes of them by path."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]
DROP = object()
"""Value of a change that removes the field."""


def changed(value: Object, changes: dict[str, Any]) -> Object:
    """Return a copy with other values at paths such as ``spec.devices.0.name``."""
    found = copy.deepcopy(value)
    for path, new in changes.items():
        *parents, last = path.split("/") if "/" in path else path.split(".")
        at: Any = found
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
        if new is DROP:
            del at[int(last) if isinstance(at, list) else last]
        elif isinstance(at, list) and int(last) == len(at):
            at.append(new)
        else:
            at[int(last) if isinstance(at, list) else last] = new
    return found


def device(name: str = "gpu-0", **fields: Any) -> Object:
    attributes = {"model": {"string": "A100"}, "index": {"int": 3}, "ready": {"bool": True}}
    return {
        "name": name,
        "attributes": {**attributes, "driverVersion": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "40Gi"}},
        **fields,
    }


def slice_(name: str = "s", **spec: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-1",
            "devices": [device()],
            **spec,
        },
    }


def claim(name: str = "c", **devices: Any) -> Object:
    exactly = {"deviceClassName": "gpu.example.com"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], **devices}},
    }


def template(name: str = "t") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim()["spec"]},
    }


def device_class(name: str = "gpu.example.com") -> Object:
    expression = "device.driver == 'gpu.example.com'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def taint_rule(name: str = "r") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
            "taint": {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"},
        },
    }


def result(**fields: Any) -> Object:
    named = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    return {**named, **fields}


def allocation(*results: Object, **fields: Any) -> Object:
    return {"devices": {"results": list(results or (result(),)), **fields}}


def user(uid: str = "11111111-1111-4111-8111-111111111111", name: str = "p") -> Object:
    return {"resource": "pods", "name": name, "uid": uid}


def lease(name: str = "l") -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40},
    }
