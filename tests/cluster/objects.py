"""Objects as users create them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devicemanager.apiserver import Permission
from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.preflight import RequiredPermission

GPU = "vendor.com/gpu"


def gpu_pod(name: str, **spec: Any) -> JsonObject:
    """A pod that requests a GPU and tolerates all taints."""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    tolerations = [{"operator": "Exists"}]
    spec = {"containers": [container], "tolerations": tolerations, **spec}
    return {"metadata": {"name": name}, "spec": spec}


def granted(required: Iterable[RequiredPermission]) -> frozenset[Permission]:
    """Permissions of the fake API server that grant what is required."""
    return frozenset(Permission(each.group, each.resource, each.verb) for each in required)
