"""Pods and ResourceClaims for tests of DRA."""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.example.com"


def claim(
    name: str = "gpu",
    *devices: str,
    uid: str | None = None,
    driver: str = DRIVER,
    request: str = "gpu",
    allocated: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return a ResourceClaim that is allocated these devices of one driver."""
    results = [
        {"driver": driver, "pool": "mock", "device": device, "request": request}
        for device in devices
    ]
    metadata = {"name": name, "uid": uid or f"uid-{name}", **more.pop("metadata", {})}
    status = {"allocation": {"devices": {"results": results}}} if allocated else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "status": {**status, **more.pop("status", {})},
        **more,
    }


def pod(
    name: str = "train",
    claims: dict[str, str | None] | None = None,
    uses: list[dict[str, str]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod with one container; ``claims`` maps its names to ResourceClaims, or to None for
    a template. The container uses all of them unless ``uses`` names others."""
    claims = {"gpu": "gpu"} if claims is None else claims
    entries = [
        {"name": key, "resourceClaimTemplateName": "template"}
        if value is None
        else {"name": key, "resourceClaimName": value}
        for key, value in claims.items()
    ]
    uses = [{"name": key} for key in claims] if uses is None else uses
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": entries,
            "containers": [{"name": "main", "image": "i", "resources": {"claims": uses}}],
            **spec,
        },
    }
