"""Objects as a cluster's users make them."""

from __future__ import annotations

from typing import Any

from devicemanager.cluster.client.protocol import JsonObject

GPU = "vendor.com/gpu"


def gpu_pod(name: str, **spec: Any) -> JsonObject:
    """A pod that wants a GPU and goes to our nodes."""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    tolerations = [{"operator": "Exists"}]
    spec = {"containers": [container], "tolerations": tolerations, **spec}
    return {"metadata": {"name": name}, "spec": spec}
